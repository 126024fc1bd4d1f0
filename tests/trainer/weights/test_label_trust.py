"""What a score file says about labels is joined by sample id and class name."""

import math
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from difficulty_service.base.errors import (
    ConfigError,
    DifficultyError,
    ScoreFileError,
    UnmatchedScores,
)
from difficulty_service.scores.file import open_scores, read_scores, write_scores
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.score_columns import LIKELIEST_CLASSES
from trainer.config import LossConfig
from trainer.samples import Samples
from trainer.training.supervision import LabelBeliefs
from trainer.weights.label_trust import label_beliefs, trust_in_labels

CLASSES = ("bird", "cat", "dog")

Row = tuple[str, str, float | None, str | None]

ROWS: list[Row] = [
    ("c.png", "dog", 0.25, "cat"),
    ("a.png", "bird", 0.75, "dog"),
    ("held-out.png", "bird", 0.5, "cat"),
    ("b.png", "cat", 0.5, "bird"),
]


class NoInputs:
    """Inputs that are never read."""


def samples(*labels: int) -> Samples:
    ids = ("a.png", "b.png", "c.png")[: len(labels)]
    return Samples(ids, torch.tensor(labels), CLASSES, NoInputs())  # type: ignore[arg-type]


def save(path: Path, rows: Sequence[Row]) -> Path:
    ids, names, shares, suggested = zip(*rows, strict=True)
    # The classes of the file have other numbers than those of the samples.
    order = sorted({*CLASSES}, reverse=True)
    table = pa.table(
        {
            "sample_id": list(ids),
            "label": pa.array([order.index(name) for name in names], pa.int32()),
            "label_name": pa.array(names).dictionary_encode(),
            "p_wrong": pc.subtract(1, pa.array(shares, pa.float32())),
            "suggested_label_name": pa.array(suggested, pa.string()).dictionary_encode(),
        }
    )
    write_scores(path, table, Provenance())
    return path


def read(path: Path, rows: Sequence[Row] = ROWS, **options: str) -> LabelBeliefs:
    config = LossConfig(targets="posterior", **options)  # type: ignore[arg-type]
    with open_scores(save(path, rows)) as scores:
        return label_beliefs(samples(0, 1, 2), scores, config)


@pytest.mark.parametrize("name", ["scores.parquet", "scores.csv", "scores.jsonl"])
def test_beliefs_follow_the_ids_and_names_of_the_file(tmp_path: Path, name: str) -> None:
    beliefs = read(tmp_path / name)

    assert beliefs.probabilities.tolist() == [0.75, 0.5, 0.25]
    assert beliefs.others.tolist() == [2, 0, 1]
    assert beliefs.known.all()


def test_a_belief_is_described_by_how_many_labels_it_doubts(tmp_path: Path) -> None:
    described = read(tmp_path / "scores.parquet").describe()

    assert described == {
        "mean_probability": 0.5,
        "more_likely_wrong": 1,
        "effective_share": pytest.approx(0.25 / ((0.0625 + 0.25 + 0.5625) / 3)),
        "missing": 0,
    }


@pytest.mark.parametrize(
    "rows", [ROWS[1:], [("c.png", "dog", None, None), *ROWS[1:]]], ids=["absent", "null"]
)
def test_a_label_about_which_nothing_is_known_is_kept_only_where_that_is_asked_for(
    tmp_path: Path, rows: list[Row]
) -> None:
    with pytest.raises(UnmatchedScores, match=r"1 of 3 training samples .*'c\.png'.*\"keep\""):
        read(tmp_path / "scores.parquet", rows)

    beliefs = read(tmp_path / "scores.parquet", rows, missing="keep")

    assert beliefs.probabilities.tolist() == [0.75, 0.5, 1.0]
    assert beliefs.others.tolist() == [2, 0, 2]
    weights = beliefs.as_weights().weights
    assert weights is not None
    torch.testing.assert_close(weights, torch.tensor([1.2, 0.8, 1.0]))


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([(*row[:2], None, None) for row in ROWS], ConfigError, "no sample of .* has a p_wrong"),
        ([*ROWS, ROWS[0]], ScoreFileError, "more than one score for 1 sample ids"),
        (
            [("c.png", "bird", 0.25, "cat"), *ROWS[1:]],
            UnmatchedScores,
            "1 of 3 training samples have another label .*'c.png': 'dog', and 'bird' there",
        ),
        (
            [("c.png", "dog", 0.25, "cow"), *ROWS[1:]],
            UnmatchedScores,
            "classes that the training samples lack: 'cow'",
        ),
        ([ROWS[2]], UnmatchedScores, "3 of 3 training samples are not in it"),
    ],
    ids=["nothing known", "twice", "another label", "another class", "another dataset"],
)
def test_scores_that_do_not_fit_are_refused_with_a_remedy(
    tmp_path: Path, rows: list[Row], error: type[DifficultyError], message: str
) -> None:
    with pytest.raises(error, match=message):
        read(tmp_path / "scores.parquet", rows)


def test_scores_that_were_not_asked_about_labels_are_refused_with_the_scorer(
    tmp_path: Path,
) -> None:
    path = save(tmp_path / "all.parquet", ROWS)
    plain = read_scores(path, ["sample_id", "label", "label_name"])
    write_scores(path, plain.table, plain.provenance)

    missing = pytest.raises(ScoreFileError, match=r"no p_wrong; .* scorers='suspicion'")
    with missing, open_scores(path) as scores:
        label_beliefs(samples(0, 1, 2), scores, LossConfig(weights="label_probability"))


def with_likeliest(
    path: Path, likeliest: Sequence[Sequence[tuple[int, float]]], marks: Sequence[str | None]
) -> Path:
    """A score file that names the classes which fit each sample best, by their numbers there."""
    known = read_scores(path)
    table = known.table
    for place, (label, probability) in enumerate(LIKELIEST_CLASSES.items()):
        numbers, shares = zip(*(each[place] for each in likeliest), strict=True)
        table = table.append_column(label, pa.array(numbers, pa.int32()))
        table = table.append_column(probability, pa.array(shares, pa.float32()))
    if any(marks):
        table = table.append_column("mark", pa.array(marks, pa.string()).dictionary_encode())
    write_scores(path, table, known.provenance)
    return path


def test_trust_is_the_mean_of_what_wrong_labels_and_the_features_alone_say(tmp_path: Path) -> None:
    rows: list[Row] = [
        ("a", "dog", 0.5, "cat"),  # class 0 of the file
        ("b", "cat", 0.75, "bird"),  # 1
        ("c", "dog", 0.875, "cat"),
        ("d", "bird", 1.0, "cat"),  # 2
        ("e", "bird", None, None),
    ]
    likeliest = [
        [(1, 0.75), (0, 0.125), (2, 0.0625)],
        [(1, 0.5), (2, 0.25), (0, 0.125)],
        [(1, 0.5), (2, 0.25), (3, 0.125)],  # two of five classes share the rest
        [(1, 0.5), (2, 0.25), (0, 0.125)],
        [(-1, float("nan"))] * 3,
    ]
    path = with_likeliest(
        save(tmp_path / "scores.parquet", rows), likeliest, [None, None, None, "keep", None]
    )

    trust = trust_in_labels(read_scores(path).table, num_classes=5)

    expected = [(0.5 + 0.125) / 2, (0.75 + 0.5) / 2, (0.875 + 0.0625) / 2, 1.0]
    assert trust.tolist()[:4] == expected
    assert math.isnan(trust[4])


def test_with_two_classes_a_label_that_is_not_the_likeliest_has_the_rest(tmp_path: Path) -> None:
    rows: list[Row] = [("a", "dog", 0.5, "cat"), ("b", "cat", 1.0, "dog")]
    nothing = (-1, float("nan"))
    likeliest = [[(1, 0.75), (0, 0.25), nothing], [(1, 0.5), nothing, nothing]]
    path = with_likeliest(save(tmp_path / "scores.parquet", rows), likeliest, [None, None])

    assert trust_in_labels(read_scores(path).table, num_classes=2).tolist() == [0.375, 0.75]
