"""The columns of a score file, the scorers that compute them, and what to say where one is absent.

The command line, Python, the service, its pages and `docs/score-file.md` read `COLUMNS` and
`SCORERS`; nothing heavy is imported here.
A score file has only columns that were computed. Whoever names another one is told which scorer or
option to ask for; this module alone knows which column belongs to which.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeAlias

from difficulty_service.base.errors import DifficultyError, ScoreFileError, Setting
from difficulty_service.base.plugins import Scorer, declared
from difficulty_service.base.wording import did_you_mean

Remedy: TypeAlias = tuple[str | Setting, ...]
"""Parts of a suggested solution, as an error takes them."""

ColumnType: TypeAlias = Literal["string", "dictionary of string", "int32", "float32", "float64"]
"""Types of columns, in words."""


@dataclass(frozen=True)
class ColumnKind:
    """A column that a score file may have.

    Attributes:
        name: Name of the column.
        type: Type of its values.
        values: Their unit, range and sign.
        sentence: What it is and where it is null, in Markdown.
        required: Whether every file has it, without nulls.
        remedy: How to get it; empty where a scorer fills it or every scored file has it.
    """

    name: str
    type: ColumnType
    values: str
    sentence: str
    required: bool = False
    remedy: Remedy = ()


LIKELIEST_CLASSES = {
    "first_label": "p_first",
    "second_label": "p_second",
    "third_label": "p_third",
}
"""Columns of the classes that fit best, and those of their probabilities."""

FAULT_COLUMN = "image_fault"
"""Column of the faults of images."""

_CLASSIFIER: Remedy = (
    "evaluate a classifier with ",
    Setting("write_scores", "loss.parquet"),
    ", whose file has it",
)


_DYNAMICS: Remedy = (
    "train a classifier with ",
    Setting("write_dynamics", "dynamics.parquet"),
    ", whose file has it",
)

_TWO_CLASSES: Remedy = (
    "name classes with ",
    Setting("classes", "cat,dog"),
    ", make some with ",
    Setting("clusters", "auto"),
    ", or score a dataset with several",
)

SUSPICION = Scorer(
    "suspicion",
    "log-odds that the label is wrong, and the class it may be instead",
    (
        *("suspicion", "p_wrong", "suggested_label", "suggested_label_name"),
        *chain.from_iterable(LIKELIEST_CLASSES.items()),
    ),
)

_OWN = (
    Scorer(
        "rmd",
        "relative Mahalanobis distance: hard whatever its label; always computed",
        ("md", "md_agnostic", "rmd"),
    ),
    SUSPICION,
    Scorer("agree", "log-odds against the label, in line with what people doubt"),
    Scorer(
        "ambiguity",
        "agree and a logistic probe together, still more in line with it; all features in memory",
        compute="difficulty_service.scorers.ambiguity:score_samples",
    ),
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
    Scorer(
        "name_margin",
        "how much better the name of another class fits, by a CLIP",
        compute="difficulty_service.scorers.label_names:score_samples",
        needs_words=True,
    ),
)

MEASURES: Mapping[str, str] = {
    "rmd": "RMD",
    "loss": "loss",
    "md_agnostic": "distance",
    "el2n": "EL2N",
}
"""Columns of difficulty and a word for each; a file is ordered by the first that it has."""

LEARNED = ("aum", "el2n", "forgetting", "incorrectness")
"""Columns of a file of how a classifier learned its training samples."""

OF_CLASSES = (
    *("md", "rmd", "rmd_std", "rmd_loo", "nearest_label", "nearest_label_name", "label_margin"),
    *SUSPICION.columns,
    *("agree", "ambiguity", "name_margin"),
)
"""Columns that compare classes, which no file has whose samples are of one class."""

_DISTANCE = "squared distance, no unit, 0 or more"
_DIFFICULTY = "no unit, either sign; larger is harder"
_LENGTH = "in the unit of the features; larger is harder"
_INDEX = "class index, from 0"

_OWN_COLUMNS = (
    ColumnKind(
        "sample_id",
        "string",
        "unique text",
        "Path relative to the dataset; in a table the column of `--id-column`, else the path of "
        "the image or a column such as `path`, `file` or `file_name` if it differs in every row, "
        "else `file#row`.",
        required=True,
    ),
    ColumnKind("label", "int32", _INDEX, "Class of the sample.", required=True),
    ColumnKind(
        "label_name", "dictionary of string", "class name", "Name of the class.", required=True
    ),
    ColumnKind(
        "md",
        "float64",
        _DISTANCE,
        "Distance to the class of the label; null in a class with fewer than two fitted samples.",
    ),
    ColumnKind(
        "md_agnostic", "float64", _DISTANCE, "Distance to all samples, whatever their class."
    ),
    ColumnKind("rmd", "float64", _DIFFICULTY, "The difficulty, `md` minus `md_agnostic`."),
    ColumnKind(
        "rmd_std",
        "float32",
        "0 or more",
        "Standard deviation of `rmd` over the augmented views.",
        remedy=("score several views of each sample with ", Setting("augment_runs", 10)),
    ),
    ColumnKind(
        "rmd_loo",
        "float64",
        _DIFFICULTY,
        "`rmd` as if the sample had not been part of the fit; null where it is alone in its "
        "class, or the covariance is singular without it.",
        remedy=(
            "score with Gaussians of the samples themselves, without ",
            Setting("gaussians"),
        ),
    ),
    ColumnKind(
        "nearest_label",
        "int32",
        _INDEX,
        "Class with the smallest `md`, among those with two samples or more.",
    ),
    ColumnKind("nearest_label_name", "dictionary of string", "class name", "Name of that class."),
    ColumnKind(
        "label_margin",
        "float64",
        "no unit; above 0, another class fits better",
        "`md` of the label minus the smallest `md` of another class. With a ridge, the sample is "
        "left out of the fit, and `md_agnostic` stands for the label of a single-sample class.",
    ),
    ColumnKind(
        "percentile",
        "float32",
        "0 easiest to 1 hardest",
        "Rank in this file by `rmd`, or without it by `loss`, `md_agnostic` or `el2n`.",
    ),
    ColumnKind(
        "duplicate_of",
        "string",
        "`sample_id`",
        "First sample with the same features; null for that sample and for one without a copy.",
        remedy=("score each sample as it is, without ", Setting("augment_runs")),
    ),
    ColumnKind(
        "near_duplicate_of",
        "string",
        "`sample_id`",
        "First sample with nearly the same features; null without an earlier one.",
        remedy=("score with ", Setting("near_duplicates", 0.97)),
    ),
    ColumnKind(
        FAULT_COLUMN,
        "dictionary of string",
        "name of a fault",
        "Clearest fault of the image, whatever its label; null without one. Only features that "
        "this version extracted from images have the column.",
        remedy=("extract the features of images again with ", Setting("resume", value=False)),
    ),
    ColumnKind(
        "kmeans",
        "float32",
        _LENGTH,
        "Euclidean distance to the nearest centroid of K-means, with as many clusters as classes.",
    ),
    ColumnKind(
        "knn", "float32", _LENGTH, "Mean Euclidean distance to the ten nearest other samples."
    ),
    ColumnKind(
        "name_margin",
        "float32",
        "difference of cosines, -2 to 2; above 0, another name fits better",
        "Largest cosine of the image with the name of another class, as a CLIP sees both, minus "
        "that with the name of the label.",
    ),
    ColumnKind(
        "suspicion",
        "float64",
        "log-odds; above 0, the label is more likely wrong than right",
        "Log-odds of `p_wrong`; null for the only sample of a class, and where a person decided.",
    ),
    ColumnKind(
        "p_wrong",
        "float32",
        "probability, 0 to 1",
        "Probability that the label is wrong, for the most probable number of wrong labels; null "
        "like `suspicion`.",
    ),
    ColumnKind(
        "suggested_label",
        "int32",
        _INDEX,
        "Likeliest class other than the label by the posterior of `suspicion`, among those with "
        "two samples or more; null like `suspicion`.",
    ),
    ColumnKind("suggested_label_name", "dictionary of string", "class name", "Name of that class."),
    ColumnKind(
        "first_label",
        "int32",
        _INDEX,
        "Class that fits the sample best by the densities of `suspicion`, without its label; null "
        "like `suspicion`.",
    ),
    ColumnKind("p_first", "float32", "probability, 0 to 1", "Its probability, without the label."),
    ColumnKind(
        "second_label",
        "int32",
        _INDEX,
        "Class that fits second best; null like `suspicion`, and without a second class.",
    ),
    ColumnKind("p_second", "float32", "probability, 0 to 1", "Its probability, without the label."),
    ColumnKind(
        "third_label",
        "int32",
        _INDEX,
        "Class that fits third best; null like `suspicion`, and without a third class.",
    ),
    ColumnKind("p_third", "float32", "probability, 0 to 1", "Its probability, without the label."),
    ColumnKind(
        "agree",
        "float64",
        "log-odds; larger where people disagree more",
        "Log-odds against the label by the posterior without landmarks and wrong labels; null like "
        "`suspicion`.",
    ),
    ColumnKind(
        "ambiguity",
        "float64",
        "log-odds; larger where people disagree more",
        "Log-odds against the label by `agree` and a logistic probe together, both without the "
        "sample, one third their mean over alike samples; null for the only sample of a class.",
    ),
    ColumnKind(
        "mark",
        "dictionary of string",
        "`keep`, `relabel` or, of a box, `misplaced`",
        "What a person decided; `label` follows it, `p_wrong` is 0 and `suspicion` null. Null "
        "without a decision.",
        remedy=("score with ", Setting("marks", "marks.csv")),
    ),
    ColumnKind(
        "loss",
        "float64",
        "nats, 0 or more; larger is harder",
        "Cross-entropy of the label by a trained classifier.",
        remedy=_CLASSIFIER,
    ),
    ColumnKind(
        "doubt",
        "float64",
        "0 to 1; larger is harder",
        "1 minus the confidence of that classifier.",
        remedy=_CLASSIFIER,
    ),
    ColumnKind(
        "aum",
        "float64",
        "logits, either sign; larger is harder",
        "Largest logit of another class minus the label's, mean over the epochs of a training: the "
        "area under the margin, negated.",
        remedy=_DYNAMICS,
    ),
    ColumnKind(
        "el2n",
        "float64",
        "0 to √2; larger is harder",
        "Length of the probabilities minus the one-hot label, mean over those epochs.",
        remedy=_DYNAMICS,
    ),
    ColumnKind(
        "forgetting",
        "float64",
        "epochs; larger is harder",
        "How often the sample was wrong after it had been right; the number of epochs where it "
        "never was.",
        remedy=_DYNAMICS,
    ),
    ColumnKind(
        "incorrectness",
        "float64",
        "0 to 1; larger is harder",
        "Share of those epochs in which the sample was wrong.",
        remedy=_DYNAMICS,
    ),
)

PLUGGED = tuple(
    declared(
        "difficulty.scorers",
        Scorer,
        {*(scorer.name for scorer in _OWN), *(column.name for column in _OWN_COLUMNS)},
    )
)
"""Scorers that other packages offer; each fills one column of its name, of double precision."""

SCORERS: Mapping[str, Scorer] = {scorer.name: scorer for scorer in (*_OWN, *PLUGGED)}
"""Every scorer by its name."""

DEFAULT_SCORERS = ("rmd", "suspicion")
"""Scorers that are computed where none are named."""

COLUMNS: Mapping[str, ColumnKind] = {
    **{column.name: column for column in _OWN_COLUMNS},
    **{
        scorer.name: ColumnKind(scorer.name, "float64", "larger is harder", f"{scorer.sentence}.")
        for scorer in PLUGGED
    },
}
"""Every column that a file may have, by its name, in their order."""

CLASS_INDICES = tuple(column.name for column in COLUMNS.values() if column.values == _INDEX)
"""Columns that hold the index of a class."""

COMPUTED_BY: Mapping[str, Remedy] = {
    **{
        column: ("score with ", Setting("scorers", scorer.name))
        for scorer in SCORERS.values()
        for column in scorer.columns
    },
    **{column.name: column.remedy for column in COLUMNS.values() if column.remedy},
}
"""How to get each column that not every score file has."""


def measure_of(columns: Collection[str]) -> str:
    """The column of difficulty of a file with these columns; the first of all without any."""
    return next((name for name in MEASURES if name in columns), next(iter(MEASURES)))


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
    """What to do about an absent column: ask for its scorer or for classes, or correct its name."""
    if name in OF_CLASSES and measure_of(columns) == "md_agnostic":
        return _TWO_CLASSES
    if name in COMPUTED_BY:
        return COMPUTED_BY[name]
    if name in COLUMNS:
        return ("every score file has it: keep it where another program writes the file again",)
    meant = did_you_mean(name, [*columns, *COMPUTED_BY])
    return (f"{meant}{'The' if meant else 'the'} columns are {', '.join(columns)}",)
