"""The scorers, which columns of a score file each computes, and what to say where one is absent.

The command line, Python, the service and its pages read `SCORERS`; nothing heavy is imported here.
A score file has only columns that were computed. Whoever names another one is told which scorer or
option to ask for; this module alone knows which column belongs to which.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from difficulty_service.base.errors import DifficultyError, ScoreFileError, Setting
from difficulty_service.base.wording import did_you_mean
from difficulty_service.plugins import Scorer, declared

Remedy: TypeAlias = tuple[str | Setting, ...]
"""Parts of a suggested solution, as an error takes them."""

_CLASSIFIER: Remedy = (
    "evaluate a classifier with ",
    Setting("write_scores", "loss.parquet"),
    ", whose file has it",
)


_OWN = (
    Scorer(
        "rmd",
        "relative Mahalanobis distance: hard whatever its label; always computed",
        ("md", "md_agnostic", "rmd"),
    ),
    Scorer(
        "suspicion",
        "log-odds that the label is wrong, and the class it may be instead",
        ("suspicion", "p_wrong", "suggested_label", "suggested_label_name"),
    ),
    Scorer("agree", "log-odds against the label, in line with what people doubt"),
    Scorer(
        "kmeans",
        "distance to the nearest centre",
        compute="difficulty_service.scorers.kmeans:score_samples",
        package="faiss",
    ),
    Scorer(
        "knn",
        "distance to the nearest neighbours",
        compute="difficulty_service.scorers.knn:score_samples",
        package="faiss",
    ),
)

_OTHER_COLUMNS: Mapping[str, Remedy] = {
    "rmd_std": ("score several views of each sample with ", Setting("augment_runs", 10)),
    "rmd_loo": ("score with Gaussians of the samples themselves, without ", Setting("gaussians")),
    "duplicate_of": ("score each sample as it is, without ", Setting("augment_runs")),
    "near_duplicate_of": ("score with ", Setting("near_duplicates", 0.97)),
    "loss": _CLASSIFIER,
    "doubt": _CLASSIFIER,
}


_ANY_FILE = frozenset(
    {"sample_id", "label", "label_name", "nearest_label", "nearest_label_name", "label_margin"}
    | {"percentile"}
)


PLUGGED = tuple(
    declared(
        "difficulty.scorers",
        Scorer,
        {*_ANY_FILE, *_OTHER_COLUMNS, *(name for scorer in _OWN for name in scorer.columns)},
    )
)
"""Scorers that other packages offer; each fills one column of its name, of double precision."""

SCORERS: Mapping[str, Scorer] = {scorer.name: scorer for scorer in (*_OWN, *PLUGGED)}
"""Every scorer by its name."""

COMPUTED_BY: Mapping[str, Remedy] = {
    **{
        column: ("score with ", Setting("scorers", scorer.name))
        for scorer in SCORERS.values()
        for column in scorer.columns
    },
    **_OTHER_COLUMNS,
}
"""How to get each column that not every score file has."""


def scorer_of(column: str) -> str | None:
    """The scorer that fills a column, by its name; None where no scorer does."""
    return next((each.name for each in SCORERS.values() if column in each.columns), None)


def require_columns(
    names: Collection[str],
    columns: Sequence[str],
    where: str,
    error: type[DifficultyError] = ScoreFileError,
    parameter: str | None = None,
) -> None:
    """Raises an error about the first column that is absent.

    Args:
        parameter: Keyword argument that names the column, if there is one.
    """
    for name in names:
        if name not in columns:
            raise absent_column(name, columns, where, error, parameter)


def absent_column(
    name: str,
    columns: Sequence[str],
    where: str,
    error: type[DifficultyError] = ScoreFileError,
    parameter: str | None = None,
) -> DifficultyError:
    """The error that a score file lacks a column; arguments as for `require_columns`."""
    known = name if name in COMPUTED_BY else f"column {name!r}"
    return error(f"{where} has no {known}", *remedy_of(name, columns), parameter=parameter)


def remedy_of(name: str, columns: Sequence[str]) -> Remedy:
    """What to do about an absent column: ask for its scorer, or correct its name."""
    if name in COMPUTED_BY:
        return COMPUTED_BY[name]
    meant = did_you_mean(name, [*columns, *COMPUTED_BY])
    return (f"{meant}{'The' if meant else 'the'} columns are {', '.join(columns)}",)
