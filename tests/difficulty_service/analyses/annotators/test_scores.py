"""Consensus and annotators of features and scores whose classes are known."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from difficulty_service.analyses.annotators.scores import (
    GIVEN,
    AnnotatorReport,
    ConsensusOptions,
    Source,
    judge_annotators,
)
from difficulty_service.base.errors import StatisticsError
from difficulty_service.datasets.label_tables import LabelColumns, open_label_table
from difficulty_service.features.arrays import ArrayFeatures
from difficulty_service.features.store import FeatureStore
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.interface.arrays import read_arrays
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample, Marks
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.store import score_in_memory
from difficulty_service.settings.options import ScorerOptions
from tests.factories import store_of

SAMPLES, CLASSES = 300, ("cat", "dog", "owl")
RATES = {"ann": 0.1, "bob": 0.2, "cleo": 0.4}

RIGHT = np.arange(SAMPLES) % 3
GIVEN_LABELS = np.where(np.arange(SAMPLES) % 10 == 0, (RIGHT + 1) % 3, RIGHT)
NAMES = np.array(CLASSES)


@cache
def features() -> ArrayFeatures:
    """Features of samples of which a tenth has a wrong given label."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((SAMPLES, 12)) + 2.5 * np.eye(3, 12)[RIGHT]
    source = read_arrays(rows.astype(np.float32), NAMES[GIVEN_LABELS].tolist(), None)
    assert isinstance(source, ArrayFeatures)
    return source


@cache
def scores() -> ScoreFile:
    options = ScorerOptions(scorers=("rmd", "suspicion"))
    return score_in_memory(features(), fit_store(features(), FitOptions()), options)


@cache
def votes() -> pa.Table:
    """Three annotators who err by chance; sample 5 has no label."""
    random = np.random.default_rng(1)
    columns: dict[str, list[str | None]] = {"sample_id": [str(row) for row in range(SAMPLES)]}  # type: ignore[dict-item]
    for name, rate in RATES.items():
        flips = (random.random(SAMPLES) < rate) * random.integers(1, 3, SAMPLES)
        labels = NAMES[(RIGHT + flips) % 3].tolist()
        labels[5] = None
        columns[name] = labels
    return pa.table(columns)


def judge(
    source: Source | None = None,
    table: pa.Table | None = None,
    options: ConsensusOptions | None = None,
) -> AnnotatorReport:
    columns = LabelColumns()
    opened = open_label_table(votes() if table is None else table)
    return judge_annotators(source or features(), opened, columns, options or ConsensusOptions())


def share_right(report: AnnotatorReport) -> float:
    found = report.samples["consensus_label"].to_pylist()
    return float(np.mean([label == NAMES[RIGHT[row]] for row, label in enumerate(found)]))


@pytest.mark.parametrize("source", [features, scores])
def test_the_consensus_is_right_more_often_than_votes_and_given_labels(
    source: Callable[[], Source],
) -> None:
    report = judge(source())

    majority = [
        max(sorted(set(row)), key=row.count)
        for row in zip(*(votes()[name].to_pylist() for name in RATES), strict=True)
        if row[0] is not None
    ]
    others = np.delete(RIGHT, 5)
    assert share_right(report) > np.mean(np.array(majority) == NAMES[others]) + 0.02
    assert share_right(report) > 0.95


def test_annotators_have_their_error_rates_in_the_intervals() -> None:
    report = judge()

    for row in report.annotators.to_pylist():
        labels = votes()[row["annotator"]].to_pylist()
        wrong = np.mean(
            [label != NAMES[RIGHT[at]] for at, label in enumerate(labels) if label is not None]
        )
        assert row["labels"] == SAMPLES - 1
        assert row["error_low"] < wrong < row["error_high"]
        assert row["error_low"] < row["error_rate"] < row["error_high"]


def test_agreement_of_annotators_with_consensus_and_features_is_a_share_of_their_labels() -> None:
    report = judge()

    consensus = report.samples["consensus_label"].to_pylist()
    for row in report.annotators.to_pylist():
        pairs = zip(votes()[row["annotator"]].to_pylist(), consensus, strict=True)
        same = [label == common for label, common in pairs if label is not None]
        assert row["agreement_with_consensus"] == pytest.approx(np.mean(same))
        assert 0 < row["agreement_with_features"] < 1


def test_a_sure_consensus_that_differs_from_the_given_label_is_a_mark() -> None:
    report = judge(options=ConsensusOptions(sure=0.9))

    for row in report.samples.to_pylist():
        moved = (
            row["labels"] > 0
            and row["consensus_label"] != row["given_label"]
            and row["p_consensus"] >= 0.9
        )
        assert (row["mark"] == "relabel") is moved
        assert row["label"] == (row["consensus_label"] if moved else None)
        assert row["another_label"] is not (row["labels"] > 0 and row["p_consensus"] >= 0.9)
    marked = set(report.marks["sample_id"].to_pylist())
    wrong = {str(row) for row in np.flatnonzero(GIVEN_LABELS != RIGHT)}
    assert len(marked & wrong) > 0.8 * len(wrong)
    assert len(marked - wrong) <= 1


def test_a_sample_without_labels_has_no_consensus_and_is_worth_one() -> None:
    report = judge()

    row = report.samples.to_pylist()[5]
    assert (row["consensus_label"], row["p_consensus"], row["agreement"]) == (None, None, None)
    assert (row["labels"], row["another_label"], row["mark"]) == (0, True, None)
    assert "1 sample without a label of an annotator" in report.warnings


def test_the_probability_of_the_given_label_is_that_of_its_class() -> None:
    for row in judge().samples.to_pylist():
        if row["consensus_label"] is not None:
            same = row["consensus_label"] == row["given_label"]
            assert (row["p_given"] == row["p_consensus"]) is same
            assert row["p_given"] <= row["p_consensus"]


def test_the_given_label_counts_as_an_annotator_where_that_is_asked_for() -> None:
    report = judge(options=ConsensusOptions(count_given=True))

    names = report.annotators["annotator"].to_pylist()
    assert names == [*RATES, GIVEN]
    own = report.annotators.to_pylist()[-1]
    assert own["labels"] == SAMPLES
    assert own["error_low"] < 0.1 < own["error_high"]
    assert report.samples["labels"].to_pylist()[5] == 1


def test_the_decisions_of_people_are_certain_and_change_what_is_thought_of_others() -> None:
    # A person says of every second sample that it is what nobody but the person sees.
    marks = {
        str(row): MarkedSample(str(row), Mark.RELABEL, str(NAMES[(RIGHT[row] + 1) % 3]))
        for row in range(0, SAMPLES, 2)
    } | {"1": MarkedSample("1", Mark.KEEP), "3": MarkedSample("3", Mark.DROP)}

    report = judge(options=ConsensusOptions(marks=Marks(marks)))

    rows = report.samples.to_pylist()
    assert rows[2]["consensus_label"] == NAMES[(RIGHT[2] + 1) % 3]
    assert rows[2]["p_consensus"] == rows[1]["p_consensus"] == 1
    assert report.num_verified == SAMPLES / 2 + 1
    rates = report.annotators["error_rate"].to_pylist()
    assert min(rates) > max(judge().annotators["error_rate"].to_pylist()[:2])


def test_marks_that_cannot_be_used_are_told() -> None:
    marks = Marks(
        {
            "gone": MarkedSample("gone", Mark.KEEP),
            "0": MarkedSample("0", Mark.RELABEL, "zebra"),
            "1": MarkedSample("1", Mark.KEEP),
        },
        (),
    )

    report = judge(options=ConsensusOptions(marks=marks))

    assert "1 mark of unknown samples" in report.warnings
    assert "marks of other classes are not used: zebra" in report.warnings
    assert report.num_verified == 1


def test_who_always_says_the_same_class_is_told() -> None:
    table = votes().append_column("dan", pa.array(["owl"] * SAMPLES))

    report = judge(table=table)

    assert "dan always says 'owl', in 300 labels" in " ".join(report.warnings)
    assert not any("ann always says" in sentence for sentence in report.warnings)


def test_who_labels_samples_of_one_class_alone_is_not_told() -> None:
    owls = ["owl" if label == 2 else None for label in RIGHT.tolist()]

    report = judge(table=votes().append_column("dan", pa.array(owls)))

    assert not any("always says" in sentence for sentence in report.warnings)


def test_one_label_per_sample_has_no_agreement() -> None:
    report = judge(table=votes().select(["sample_id", "ann"]))

    assert report.alpha is None
    assert report.samples["agreement"].null_count == SAMPLES
    assert report.annotators["agreement_with_others"].null_count == 1
    assert any("no sample has two labels" in sentence for sentence in report.warnings)


def test_parts_and_runs_of_a_store_give_the_same_as_arrays(tmp_path: Path) -> None:
    rows = features().features
    store = store_of(
        tmp_path / "one",
        rows,
        torch.from_numpy(GIVEN_LABELS),
        [str(row) for row in range(SAMPLES)],
        shard_size=70,
    )
    twice = store_of(
        tmp_path / "two",
        torch.stack([rows, rows], dim=1),
        torch.from_numpy(GIVEN_LABELS),
        [str(row) for row in range(SAMPLES)],
        shard_size=70,
    )

    in_parts, in_runs = judge(store), judge(twice)

    whole = judge()
    assert isinstance(store, FeatureStore)
    assert in_parts.samples["sample_id"].equals(whole.samples["sample_id"])
    np.testing.assert_allclose(
        in_parts.samples["p_given"].drop_null().to_numpy(),
        whole.samples["p_given"].drop_null().to_numpy(),
        atol=1e-3,
    )
    assert share_right(in_runs) > 0.95


def test_a_class_that_nobody_names_is_no_obstacle() -> None:
    table = votes()
    for name in RATES:
        place = table.column_names.index(name)
        kept = [label if label != "owl" else None for label in table[name].to_pylist()]
        table = table.set_column(place, name, pa.array(kept, pa.string()))

    report = judge(features(), table)

    assert {*report.samples["consensus_label"].to_pylist()} <= {None, *CLASSES}


def test_labels_of_a_single_class_are_an_error() -> None:
    same = read_arrays(features().features, ["cat"] * SAMPLES, None)
    table = pa.table({"sample_id": ["1", "2"], "ann": ["cat", "cat"]})

    with pytest.raises(StatisticsError, match="at least two classes"):
        judge(same, table)
