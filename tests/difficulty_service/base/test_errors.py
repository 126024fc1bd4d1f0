"""Errors hold their remedy as data, and each front end spells it in its own way."""

import pickle

from difficulty_service.base.errors import DuplicateSampleId, Setting, StatisticsError

ERROR = DuplicateSampleId(
    "the covariance has rank 3 of 6",
    "use ",
    Setting("shrinkage", "auto"),
    " or another ",
    Setting("backbone"),
    parameter="shrinkage",
)


def test_the_text_of_an_error_spells_settings_as_keyword_arguments() -> None:
    assert str(ERROR) == (
        "the covariance has rank 3 of 6; use shrinkage='auto' or another backbone"
    )


def test_a_front_end_spells_settings_in_its_own_way() -> None:
    message = ERROR.message(lambda setting: f"<{setting.parameter}>")

    assert message == "the covariance has rank 3 of 6; use <shrinkage> or another <backbone>"


def test_an_error_without_a_remedy_shows_only_its_problem() -> None:
    assert str(StatisticsError("no samples")) == "no samples"


def test_an_error_survives_pickling_between_processes() -> None:
    copy = pickle.loads(pickle.dumps(ERROR))  # noqa: S301 - our own bytes

    assert type(copy) is DuplicateSampleId
    assert (str(copy), copy.remedy, copy.parameter) == (str(ERROR), ERROR.remedy, "shrinkage")
