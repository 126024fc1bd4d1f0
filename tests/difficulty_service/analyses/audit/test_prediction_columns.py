"""Predictions of a run as columns that scores are compared with."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from difficulty_service.analyses.audit.audit import AuditOptions, audit
from difficulty_service.analyses.audit.prediction_columns import (
    COLUMNS,
    JOIN,
    is_predictions,
    read_prediction_columns,
)
from difficulty_service.base.errors import AuditError
from difficulty_service.cli import create_app
from difficulty_service.cli.wrong_call import WrongCall
from difficulty_service.scores.agreement import ErrorRateByBin, FlagAgreement, RankAgreement
from difficulty_service.scores.file import write_scores
from difficulty_service.scores.provenance import Provenance
from tests.factories import score_table

LOGITS = np.array([[2.0, 0.0, -1.0], [0.0, 3.0, 0.5], [1.0, 1.0, 0.0], [-200.0, 0.0, 900.0]])
TARGETS = np.array([0, 2, 0, 2])
IDS = ["a/1.png", "b/2.png", "a/3.png", "c/4.png"]
NAMES = ("zebra", "ant", "cat")
"""Names in the run's order of the classes, which is not that of the alphabet."""


def write(folder: Path, names: Sequence[str] = NAMES, **changes: object) -> Path:
    """The files of a seed that say what it predicts."""
    arrays = {"sample_ids": np.array(IDS), "logits": LOGITS.astype(np.float32), "targets": TARGETS}
    np.savez(folder / "test.npz", **{**arrays, **changes})
    if names:
        (folder / "inputs.json").write_text(json.dumps({"class_names": list(names)}))
    return folder / "test.npz"


def scores_by(order: Sequence[str]) -> pa.Table:
    """Scores of the same samples, whose classes have indices by the given order."""
    labels = [order.index(NAMES[target]) for target in TARGETS]
    return score_table(labels, order, IDS, rmd=[0.1, 4.0, 1.0, -2.0])


def test_the_columns_are_those_of_the_textbook(tmp_path: Path) -> None:
    table = read_prediction_columns(write(tmp_path))

    assert table.column_names == [JOIN, *COLUMNS]
    for row, (logits, target) in enumerate(zip(LOGITS.tolist(), TARGETS.tolist(), strict=True)):
        total = sum(math.exp(logit - max(logits)) for logit in logits)
        shares = [math.exp(logit - max(logits)) / total for logit in logits]
        entropy = -sum(share * math.log(share) for share in shares if share)
        loss = max(logits) - logits[target] + math.log(total)
        assert table["loss"][row].as_py() == pytest.approx(loss)
        assert table["doubt"][row].as_py() == pytest.approx(1 - max(shares))
        assert table["entropy"][row].as_py() == pytest.approx(entropy, abs=1e-12)
    assert table["wrong"].to_pylist() == [False, True, False, False]
    assert table["prediction"].to_pylist() == ["zebra", "ant", "zebra", "cat"]


@pytest.mark.parametrize("order", [NAMES, sorted(NAMES)], ids=["same", "other"])
@pytest.mark.parametrize("column", ["wrong", "prediction"])
def test_classes_in_another_order_change_nothing(
    tmp_path: Path, order: Sequence[str], column: str
) -> None:
    against = read_prediction_columns(write(tmp_path))

    result = audit(scores_by(order), against, AuditOptions(JOIN, column))

    assert isinstance(result.agreement, FlagAgreement)
    assert result.agreement.auroc == 1.0  # the only wrong prediction has the highest score


@pytest.mark.parametrize("column", ["loss", "doubt", "entropy"])
def test_numbers_are_ranked(tmp_path: Path, column: str) -> None:
    result = audit(
        scores_by(NAMES), read_prediction_columns(write(tmp_path)), AuditOptions(JOIN, column)
    )

    assert isinstance(result.agreement, RankAgreement)


def test_the_error_rate_is_that_of_the_predictions(tmp_path: Path) -> None:
    options = AuditOptions(JOIN, "wrong", "error-rate", num_bins=2)

    result = audit(scores_by(NAMES), read_prediction_columns(write(tmp_path)), options)

    assert isinstance(result.agreement, ErrorRateByBin)


def test_without_names_of_classes_predictions_are_their_indices(tmp_path: Path) -> None:
    table = read_prediction_columns(write(tmp_path, names=()))

    assert table["prediction"].to_pylist() == [0, 1, 0, 2]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"targets": np.array([0, 3, 0, 2])}, "do not fit together"),
        ({"targets": np.array([0, 1])}, "do not fit together"),
        ({"logits": np.zeros(4)}, "do not fit together"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(AuditError, match=reason):
        read_prediction_columns(write(tmp_path, **changes))


def test_other_damaged_and_missing_files_are_named(tmp_path: Path) -> None:
    damaged = write(tmp_path)
    damaged.write_bytes(damaged.read_bytes()[:-30])
    np.savez(tmp_path / "features.npz", features=np.zeros((2, 2)))

    with pytest.raises(AuditError, match=r"test\.npz is damaged"):
        read_prediction_columns(damaged)
    with pytest.raises(AuditError, match=r"features\.npz is not a file of predictions"):
        read_prediction_columns(tmp_path / "features.npz")
    with pytest.raises(AuditError, match=r"no file of predictions .*gone\.npz"):
        read_prediction_columns(tmp_path / "gone.npz")


def test_damaged_names_of_classes_are_named(tmp_path: Path) -> None:
    path = write(tmp_path)
    (tmp_path / "inputs.json").write_text("{")

    with pytest.raises(AuditError, match=r"inputs\.json is damaged"):
        read_prediction_columns(path)


def test_the_ending_says_that_a_file_holds_predictions() -> None:
    assert is_predictions("run/seed-0/TEST.NPZ")
    assert not is_predictions("votes.parquet")


def test_the_command_takes_a_run_without_a_column_of_ids(tmp_path: Path) -> None:
    scores, predictions = tmp_path / "scores.parquet", write(tmp_path)
    write_scores(scores, scores_by(NAMES), Provenance())
    words = ["audit", str(scores), "--against", str(predictions), "--column"]
    run = create_app()

    run([*words, "loss"])

    with pytest.raises(AuditError, match="its columns are sample_id, loss, doubt, entropy, wrong"):
        run([*words, "logits"])
    with pytest.raises(WrongCall, match="without --join"):
        run([*words, "loss", "--join", "id"])
    with pytest.raises(WrongCall, match="--join has to name the column"):
        run(["audit", str(scores), "--against", "t.csv", "--column", "x"])
