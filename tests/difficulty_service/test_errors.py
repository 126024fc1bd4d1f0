"""Errors carry what to do as data, and each reader gets it in words of their own."""

import pickle

from difficulty_service.errors import Setting, SingularCovariance, StatisticsError

ERROR = SingularCovariance(
    "the covariance has rank 3 of 6",
    "use ",
    Setting("shrinkage", "auto"),
    " or another ",
    Setting("backbone"),
    parameter="shrinkage",
)


def test_python_reads_a_remedy_as_keyword_arguments() -> None:
    assert str(ERROR) == (
        "the covariance has rank 3 of 6; use shrinkage='auto' or another backbone"
    )


def test_a_front_end_spells_settings_in_its_own_way() -> None:
    message = ERROR.message(lambda setting: f"<{setting.parameter}>")

    assert message == "the covariance has rank 3 of 6; use <shrinkage> or another <backbone>"


def test_an_error_without_a_remedy_is_its_problem() -> None:
    assert str(StatisticsError("no samples")) == "no samples"


def test_an_error_is_the_same_after_it_came_from_another_process() -> None:
    copy = pickle.loads(pickle.dumps(ERROR))  # noqa: S301 - our own bytes

    assert type(copy) is SingularCovariance
    assert (str(copy), copy.remedy, copy.parameter) == (str(ERROR), ERROR.remedy, "shrinkage")
