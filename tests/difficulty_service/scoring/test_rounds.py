"""Rounds of review: which samples one made doubtful."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample, MarkHistory, Marks
from difficulty_service.scores.file import read_scores, write_scores
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.samples import Decided
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.marked_features import apply_marks
from difficulty_service.scoring.store import score_store
from tests.factories import store_of

FLIPPED = [f"s{row}" for row in range(6)]
"""Samples with a wrong label."""


class Rounds:
    """Scores of three clear classes, of which some samples have the label of another one."""

    def __init__(self, folder: Path) -> None:
        generator = np.random.default_rng(1)
        labels = torch.arange(300) % 3
        features = torch.from_numpy(generator.standard_normal((300, 6))).float()
        features += 8 * torch.eye(3, 6)[labels]
        labels[: len(FLIPPED)] = torch.tensor([1, 2, 0, 2, 0, 1])
        self.store = store_of(folder, features, labels)
        self.out = folder.with_suffix(".parquet")

    def score(self, *drop: str, before: Path | None = None) -> Provenance:
        """Scores without some samples, of which each was dropped in a round of its own."""
        marks = [MarkedSample(each, Mark.DROP, round=row) for row, each in enumerate(drop, 1)]
        marked = apply_marks(self.store, MarkHistory(Marks.of(marks)))
        source = marked if drop else self.store
        score_store(source, fit_store(source, FitOptions()), self.out, before=before)
        return read_scores(self.out, ["sample_id"]).provenance

    def edit(self, suspicion: Mapping[str, float], **known: object) -> None:
        """Changes the suspicion of samples, and what the file says of itself."""
        scores = read_scores(self.out)
        ids, values = (scores.table[name].to_pylist() for name in ("sample_id", "suspicion"))
        changed = [suspicion.get(*pair) for pair in zip(ids, values, strict=True)]
        index = scores.table.column_names.index("suspicion")
        table = scores.table.set_column(index, "suspicion", pa.array(changed, pa.float64()))
        write_scores(self.out, table, scores.provenance.updated(Provenance.of(known)))


@pytest.fixture
def rounds(tmp_path: Path) -> Rounds:
    return Rounds(tmp_path / "features")


@pytest.mark.slow
def test_samples_are_newly_doubtful_that_were_neither_doubtful_nor_verified(rounds: Rounds) -> None:
    assert rounds.score().newly_doubtful is None
    rounds.edit({"s1": -1.0, "s2": 0.0, "s3": None, "s4": float("nan"), "s60": -1.0})

    provenance = rounds.score("s0")

    assert provenance.newly_doubtful == 2, "s1 and s2"
    assert Decided.of(provenance).round == (
        "Round 2: 0 relabelled, 1 dropped, 0 kept · 2 newly doubtful"
    )
    assert rounds.score("s0").newly_doubtful == 2, "the same scores once more"
    assert rounds.score("s0", "s1").newly_doubtful == 0
    assert rounds.score("s0").newly_doubtful is None, "a round was taken back"


def test_earlier_scores_may_lie_elsewhere(rounds: Rounds) -> None:
    rounds.score()
    rounds.edit({"s1": -1.0})
    before = rounds.out.rename(rounds.out.with_name("before.parquet"))

    assert rounds.score("s0", before=before).newly_doubtful == 1
    assert rounds.score("s0", before=before.with_name("gone.parquet")).newly_doubtful is None


@pytest.mark.parametrize("reason", ["damaged", "of another dataset", "without suspicion"])
def test_what_cannot_be_compared_does_not_end_a_run(rounds: Rounds, reason: str) -> None:
    rounds.score()
    if reason == "damaged":
        rounds.out.write_bytes(rounds.out.read_bytes()[:-100])
    elif reason == "of another dataset":
        rounds.edit({"s1": -1.0}, fingerprint="another")
    else:
        scores = read_scores(rounds.out)
        write_scores(rounds.out, scores.table.drop_columns(["suspicion"]), scores.provenance)

    assert rounds.score("s0").newly_doubtful is None


def test_no_other_column_of_earlier_scores_is_read(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds.score()
    read, columns = pq.ParquetFile.read, list[str]()

    def watched(self: pq.ParquetFile, **options: list[str]) -> pa.Table:
        columns.extend(options["columns"])
        return read(self, **options)

    with monkeypatch.context() as patched:
        patched.setattr(pq.ParquetFile, "read", watched)
        drop = Marks.of([MarkedSample("s0", Mark.DROP)])
        marked = apply_marks(rounds.store, MarkHistory(drop))
        score_store(marked, fit_store(marked, FitOptions()), rounds.out)

    assert columns == ["sample_id", "suspicion"]
