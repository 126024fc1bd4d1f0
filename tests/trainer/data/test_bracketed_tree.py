"""Trees in the notation of the Stanford Sentiment Treebank."""

import pytest

from trainer.data.trees import parse_tree

GOOD = "(3 (2 It) (4 (2 's) (4 good)))"


def test_children_come_before_their_parent_and_the_root_is_last() -> None:
    tree = parse_tree(GOOD)

    assert tree.labels == [2, 2, 4, 4, 3]
    assert tree.words == ["It", "'s", "good", None, None]
    assert tree.children == [None, None, None, (1, 2), (0, 3)]
    assert tree.heights == [0, 0, 0, 1, 2]


def test_a_tree_may_be_one_word_and_a_leaf_may_have_several() -> None:
    assert parse_tree("(2 yes)").words == ["yes"]
    assert parse_tree("(2 (3 8 1/2) (2 hours))").words == ["8 1/2", "hours", None]


def test_white_space_does_not_matter() -> None:
    assert parse_tree(" (3\n(2 It)(4 ( 2 's )(4 good)) ) ") == parse_tree(GOOD)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "there are 0 trees"),
        ("(2 a) (2 b)", "there are 2 trees"),
        ("(2 a", "1 brackets are not closed"),
        ("2 a)", "'2' stands outside"),
        ("(2 a))", "'\\)' stands outside"),
        ("(good a)", "label 'good'"),
        ("()", "label ''"),
        ("(2)", "0 words and 0 children"),
        ("(2 (2 a))", "0 words and 1 children"),
        ("(2 (2 a) (2 b) (2 c))", "0 words and 3 children"),
        ("(2 a (2 b) (2 c))", "1 words and 2 children"),
    ],
)
def test_what_is_no_binary_tree_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_tree(text)


def test_a_deep_tree_does_not_exhaust_the_stack() -> None:
    depth = 20_000

    tree = parse_tree("(2 (2 a) " * depth + "(2 b)" + ")" * depth)

    assert tree.heights[-1] == depth
