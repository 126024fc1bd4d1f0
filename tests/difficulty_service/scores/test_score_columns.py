"""What computes a column of a score file, for whoever names one that is absent."""

import pytest

from difficulty_service.base.errors import AuditError, ScoreFileError, Setting
from difficulty_service.cli.wrong_call import as_option
from difficulty_service.scores.file import SCHEMA
from difficulty_service.scores.score_columns import (
    COMPUTED_BY,
    SCORERS,
    absent_column,
    require_columns,
    scorer_of,
)
from tests.command_options import options_by_command

COLUMNS = ["sample_id", "label", "label_name", "rmd", "label_margin"]


def test_only_columns_of_score_files_are_known() -> None:
    assert {*COMPUTED_BY} < {*SCHEMA.names}
    assert {*COMPUTED_BY} > {*SCORERS["suspicion"].columns}


def test_a_column_knows_the_scorer_that_fills_it() -> None:
    names = ("md", "knn", "p_wrong", "rmd_std", "loss", "label")

    assert [scorer_of(name) for name in names] == ["rmd", "knn", "suspicion", None, None, None]


@pytest.mark.parametrize(
    ("column", "remedy"),
    [
        ("knn", "score with --scorers knn"),
        ("suggested_label_name", "score with --scorers suspicion"),
        ("agree", "score with --scorers agree"),
        ("near_duplicate_of", "score with --near-duplicates 0.97"),
        ("rmd_std", "score several views of each sample with --augment-runs 10"),
        ("rmd_loo", "score with Gaussians of the samples themselves, without --gaussians"),
        ("duplicate_of", "score each sample as it is, without --augment-runs"),
        ("el2n", "train a classifier with --write-dynamics dynamics.parquet, whose file has it"),
        ("doubt", "evaluate a classifier with --write-scores loss.parquet, whose file has it"),
    ],
)
def test_an_absent_column_is_named_with_the_option_that_computes_it(
    column: str, remedy: str
) -> None:
    error = absent_column(column, COLUMNS, "scores.parquet")

    assert error.message(as_option) == f"scores.parquet has no {column}; {remedy}"


def test_the_option_of_each_remedy_exists() -> None:
    by_command = options_by_command()
    options = by_command["score"] | by_command["evaluate"] | by_command["train"]

    settings = [
        part for remedy in COMPUTED_BY.values() for part in remedy if isinstance(part, Setting)
    ]

    assert {as_option(each).split()[0] for each in settings} <= options


def test_a_misspelt_column_is_followed_by_what_is_meant_and_by_the_columns() -> None:
    error = absent_column("label_margn", COLUMNS, "scores.csv")

    assert str(error) == (
        "scores.csv has no column 'label_margn'; did you mean 'label_margin'? The columns are "
        "sample_id, label, label_name, rmd, label_margin"
    )


def test_the_first_absent_column_of_several_is_an_error_of_the_given_kind() -> None:
    require_columns(["rmd", "label"], COLUMNS, "the first file")

    with pytest.raises(AuditError, match="the first file has no kmeans") as caught:
        require_columns(
            ["rmd", "kmeans", "knn"], COLUMNS, "the first file", AuditError, "score_column"
        )

    assert caught.value.parameter == "score_column"
    assert not isinstance(caught.value, ScoreFileError)
