"""What was dropped by a condition is counted, and no claim is made of what it hides."""

from pathlib import Path

import pyarrow as pa
import pytest

from difficulty_service.base.errors import CleaningError
from difficulty_service.cleaning.clean import write_table
from difficulty_service.cleaning.decisions import CleaningRules, decide
from difficulty_service.datasets.dropped import dropped_unseen
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.label_counts import LabelCounts
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.tiers import CONDITIONS

SCORES = {
    "sample_id": ["a", "b", "c", "d", "e", "f"],
    "label": pa.array([0, 0, 0, 1, 1, 1], pa.int32()),
    "label_name": ["cat", "cat", "cat", "dog", "dog", "dog"],
    "rmd": [1.0] * 6,
}
P_WRONG = [0.97, 0.1, 0.01, 0.4, 0.6, None]


def dropped_table(drop: str) -> pa.Table:
    scores = ScoreFile(pa.table({**SCORES, "p_wrong": P_WRONG}), Provenance())
    marks = {"b": MarkedSample("b", Mark.DROP)}
    return decide(scores, CleaningRules(marks, drop)).dropped()


@pytest.mark.parametrize("name", ["cleaned.csv", "cleaned.parquet"])
@pytest.mark.parametrize(
    ("drop", "number"),
    [("p_wrong > 0.5", 2), ("probably wrong", 2), ("almost certainly wrong", 1), ("rmd < 0", 0)],
)
def test_a_list_beside_a_cleaned_dataset_tells_what_a_condition_dropped(
    tmp_path: Path, name: str, drop: str, number: int
) -> None:
    cleaned = tmp_path / name
    write_table(dropped_table(drop), cleaned.with_suffix(f".dropped{cleaned.suffix}"))

    assert dropped_unseen(str(cleaned), frozenset(CONDITIONS)) == number


def test_a_folder_tells_what_a_condition_dropped(tmp_path: Path) -> None:
    write_table(dropped_table("p_wrong > 0.5"), tmp_path / "dropped.csv")

    assert dropped_unseen(str(tmp_path)) == 2


def test_what_another_program_wrote_is_no_list_of_dropped_samples(tmp_path: Path) -> None:
    (tmp_path / "dropped.csv").write_bytes(b"\xff\xfe no table")
    (tmp_path / "cleaned.dropped.parquet").write_bytes(b"no table")

    assert dropped_unseen(str(tmp_path)) == 0
    assert dropped_unseen(str(tmp_path / "cleaned.parquet")) == 0
    assert dropped_unseen("s3://bucket/cleaned.parquet") == 0


def test_a_misspelt_tier_is_refused() -> None:
    with pytest.raises(CleaningError, match="probaly wrong"):
        dropped_table("probaly wrong")


@pytest.mark.parametrize(
    ("low", "beginning"),
    [
        (0.0, "28 samples were dropped"),
        (0.02, "At least 17 labels are wrong and not found yet."),
    ],
)
def test_after_such_drops_nothing_is_said_of_no_wrong_labels(low: float, beginning: str) -> None:
    counts = LabelCounts(1000, 0, 0, 0, (low, 0.03), dropped_unseen=28)

    assert counts.number_wrong.startswith(beginning)
    assert "There may be no" not in counts.number_wrong
    assert "only labels checked in a random order tell" in counts.number_wrong
