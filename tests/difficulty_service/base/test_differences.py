"""Two descriptions are compared in words."""

from difficulty_service.base.wording import differences


def test_equal_descriptions_have_no_differences() -> None:
    description = {"seed": 0, "preprocessing": {"size": 32}}

    assert differences(description, dict(description)) == []


def test_each_difference_names_its_key_and_both_values() -> None:
    first = {"seed": 0, "backbone": "builtin", "preprocessing": {"size": 32, "mean": [0.5]}}
    second = {"seed": 1, "backbone": "builtin", "preprocessing": {"size": 64, "mean": [0.5]}}

    assert differences(first, second) == [
        "preprocessing.size: 32 then, 64 now",
        "seed: 0 then, 1 now",
    ]


def test_the_two_are_called_as_the_caller_says() -> None:
    phrases = differences({"seed": 0}, {"seed": 1}, names=("in a", "in b"))

    assert phrases == ["seed: 0 in a, 1 in b"]


def test_a_key_that_one_side_lacks_is_a_difference() -> None:
    assert differences({}, {"split": "train"}) == ['split: none then, "train" now']


def test_ignored_keys_may_differ() -> None:
    assert differences({"dataset": "a"}, {"dataset": "b"}, ignored={"dataset"}) == []


def test_long_values_are_cut() -> None:
    (phrase,) = differences({"names": "x" * 500}, {"names": "y"})

    assert len(phrase) < 100
