"""Predictions are read as they were written, and damaged files are named."""

from pathlib import Path

import numpy as np
import pytest
import torch

from difficulty_service.base.errors import TrainingError
from trainer.evaluation.prediction_file import Predictions, read_predictions, write_predictions


@pytest.fixture
def predictions() -> Predictions:
    return Predictions(
        sample_ids=("a/1.png", "b/ü.png", "c"),
        logits=torch.tensor([[0.5, -1.0], [2.0, 3.0], [0.0, float("-inf")]]),
        targets=torch.tensor([0, 1, 1]),
    )


def test_predictions_read_are_those_written(tmp_path: Path, predictions: Predictions) -> None:
    write_predictions(tmp_path / "test.npz", predictions)

    read = read_predictions(tmp_path / "test.npz")

    assert read.sample_ids == predictions.sample_ids
    assert torch.equal(read.logits, predictions.logits)
    assert torch.equal(read.targets, predictions.targets)
    assert (read.logits.dtype, read.targets.dtype) == (torch.float32, torch.int64)


def test_half_precision_is_widened_and_nothing_else_is_left_in_the_folder(
    tmp_path: Path, predictions: Predictions
) -> None:
    half = Predictions(predictions.sample_ids, predictions.logits.half(), predictions.targets.int())

    write_predictions(tmp_path / "test.npz", half)

    assert [path.name for path in tmp_path.iterdir()] == ["test.npz"]
    assert torch.equal(read_predictions(tmp_path / "test.npz").logits, predictions.logits)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"the file of predictions .*test\.npz is missing"):
        read_predictions(tmp_path / "test.npz")


@pytest.mark.parametrize("place", range(0, 1000, 29))
def test_a_file_with_one_byte_overwritten_is_read_the_same_or_named(
    tmp_path: Path, predictions: Predictions, place: int
) -> None:
    path = tmp_path / "test.npz"
    write_predictions(path, predictions)
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 0xFF
    path.write_bytes(data)

    try:
        read = read_predictions(path)
    except TrainingError as error:
        assert "test.npz" in str(error)  # noqa: PT017 - most places, but not all, do damage
    else:
        assert torch.equal(read.logits, predictions.logits)


@pytest.mark.parametrize("size", [0, 1, 100, 600])
def test_a_truncated_file_is_named(tmp_path: Path, predictions: Predictions, size: int) -> None:
    path = tmp_path / "test.npz"
    write_predictions(path, predictions)
    path.write_bytes(path.read_bytes()[:size])

    with pytest.raises(TrainingError, match=r"test\.npz are damaged"):
        read_predictions(path)


def test_an_archive_without_logits_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "test.npz", sample_ids=np.array(["a"]))

    with pytest.raises(TrainingError, match=r"test\.npz lacks an array: .*logits"):
        read_predictions(tmp_path / "test.npz")


def test_a_single_array_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "test.npz").open("wb") as file:
        np.save(file, np.zeros(3))

    with pytest.raises(TrainingError, match="it is one array"):
        read_predictions(tmp_path / "test.npz")


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "test.npz", sample_ids=np.array([{"a": 1}], dtype=object))

    with pytest.raises(TrainingError, match=r"test\.npz are damaged"):
        read_predictions(tmp_path / "test.npz")


@pytest.mark.parametrize(
    ("ids", "targets", "words"),
    [
        (("a", "b"), [0, 1, 1], "2 sample ids beside 3 rows"),
        (("a", "b", "c"), [0, 1], "targets of shape"),
        (("a", "b", "c"), [0, 1, 2], r"targets \[2\] are outside 0 to 1"),
    ],
)
def test_inconsistent_predictions_are_not_written(
    tmp_path: Path, ids: tuple[str, ...], targets: list[int], words: str
) -> None:
    predictions = Predictions(ids, torch.zeros(3, 2), torch.tensor(targets))

    with pytest.raises(TrainingError, match=words):
        write_predictions(tmp_path / "test.npz", predictions)
    assert not list(tmp_path.iterdir())
