"""What a loop of one's own gets: weights by id, positions, and the objective with its hooks."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import difficulty_service as ds
import trainer
from difficulty_service.base.errors import ConfigError, DatasetError, UnmatchedScores
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from tests.factories import write_image_folder, write_score_file
from trainer.config import AnyRegulariser, ScoreWeights
from trainer.losses.adafocal import AdaFocal
from trainer.losses.correctness_ranking import CorrectnessRanking
from trainer.losses.cross_entropy import cross_entropy
from trainer.own_loop import WeightOptions
from trainer.weights.formula import sample_weights

SCORES = {"a": 1.0, "b": 5.0, "c": 3.0, "d": -2.0}


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    return write_score_file(tmp_path / "scores.parquet", SCORES)


def batch(samples: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, 3, generator=generator), torch.arange(samples) % 3


def test_weights_are_joined_to_the_samples_by_their_ids(scores: Path) -> None:
    ids = ["d", "b", "a", "c"]

    weights = trainer.read_weights(scores, ids, normalise="zscore", score_temperature=2.0)

    values = torch.tensor([SCORES[each] for each in ids])
    expected = sample_weights(values, normalise="zscore", score_temperature=2.0)
    torch.testing.assert_close(weights, expected.float())


def test_weights_come_from_scores_in_memory_as_from_their_file(tmp_path: Path) -> None:
    labels = np.arange(40) % 2
    features = np.random.default_rng(0).standard_normal((40, 3)) + 5 * labels[:, None]
    scores = ds.score(features, labels)
    path = scores.save(tmp_path / "scores.parquet")

    weights = trainer.read_weights(scores, scores.sample_id[::-1])

    assert torch.equal(weights, trainer.read_weights(path, scores.sample_id[::-1]))


@pytest.mark.parametrize("make", [range, np.arange, torch.arange, lambda count: list(range(count))])
def test_samples_without_ids_are_named_by_their_numbers(
    make: Callable[[int], Sequence[int]],
) -> None:
    labels = np.arange(40) % 2
    features = np.random.default_rng(0).standard_normal((40, 3)) + 5 * labels[:, None]
    scores = ds.score(features, labels)

    weights = trainer.read_weights(scores, make(40))

    assert torch.equal(weights, trainer.read_weights(scores, scores.sample_id))
    with pytest.raises(UnmatchedScores, match="35 of its scores belong to no sample"):
        trainer.read_weights(scores, make(5))


@pytest.mark.parametrize("wrong", [1.0, None, Path("b"), b"b"])
def test_ids_that_are_neither_text_nor_whole_numbers_are_named(scores: Path, wrong: object) -> None:
    with pytest.raises(DatasetError, match=r"sample_ids hold .*; pass text or whole numbers"):
        trainer.read_weights(scores, ["a", wrong])  # type: ignore[list-item]


def test_the_ids_of_an_image_folder_of_torchvision_are_those_of_a_score_file(
    tmp_path: Path,
) -> None:
    from torchvision.datasets import ImageFolder

    folder = ImageFolder(write_image_folder(tmp_path / "photos", each=2))
    ids = [Path(path).relative_to(folder.root).as_posix() for path, _ in folder.samples]

    listed = open_dataset(str(tmp_path / "photos"), DatasetOptions())

    assert ids == list(listed.sample_ids)


@pytest.mark.parametrize(
    ("ids", "options", "error", "message"),
    [
        ("abc", {}, UnmatchedScores, "1 of its scores belong to no sample"),
        ("abcde", {}, UnmatchedScores, "'e'"),
        ("abcd", {"colum": "rmd"}, ConfigError, "no option 'colum'"),
        ("abcd", {"c": -1.0}, ConfigError, "c=-1.0 should be greater than or equal to 0"),
        ("abcd", {"column": "knn"}, ConfigError, "knn"),
        (
            "abcd",
            {"normalise": "none", "winsorise": 0.1},
            ConfigError,
            'winsorise=0.1 has no effect with normalise = "none"',
        ),
    ],
)
def test_weights_that_cannot_be_made_are_an_error(
    scores: Path, ids: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        trainer.read_weights(scores, list(ids), **options)


def test_the_options_of_weights_are_the_keys_of_a_recipe() -> None:
    keys = ScoreWeights.model_fields.keys() - AnyRegulariser.model_fields.keys()

    assert get_type_hints(WeightOptions).keys() == keys - {"weights", "scores"}


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ((5.0, 1), (5.0, 1, 0)),
        ([5.0, 1], (5.0, 1, 0)),
        (5.0, (5.0, 0)),
        ({"labels": 1}, {"labels": 1, "index": 0}),
    ],
)
def test_a_sample_of_an_indexed_dataset_says_its_position(sample: object, expected: object) -> None:
    indexed = trainer.IndexedDataset([sample])

    assert len(indexed) == 1
    assert indexed[0] == expected


def test_a_sample_with_an_index_of_its_own_is_not_overwritten() -> None:
    with pytest.raises(ValueError, match="'index' of their own"):
        trainer.IndexedDataset([{"index": 7}])[0]


def test_the_objective_of_a_batch_has_the_weights_of_its_samples() -> None:
    logits, targets = batch()
    weights = torch.tensor([0.1, 0.9, 0.5, 0.3, 0.7, 0.2, 0.8, 0.4])
    positions = torch.tensor([7, 0, 3, 3, 1, 6])
    objective = trainer.SampleObjective(
        "cross_entropy", sample_ids=list("abcdefgh"), alpha=0.3, weights=weights
    )

    losses = objective(logits, targets, positions)

    probabilities = logits.softmax(1)
    entropy = -(probabilities * probabilities.log()).sum(1)
    nll = F.cross_entropy(logits, targets, reduction="none")
    torch.testing.assert_close(losses, nll - 0.3 * weights[positions] * entropy)


def test_a_loss_is_computed_in_float32_of_logits_in_half_precision() -> None:
    logits, targets = batch()
    objective = trainer.SampleObjective(cross_entropy, sample_ids=list("abcdef"))

    losses = objective(logits.bfloat16(), targets, torch.arange(6))

    expected = F.cross_entropy(logits.bfloat16().float(), targets, reduction="none")
    assert torch.equal(losses, expected)


def test_a_loss_with_a_history_counts_each_sample_of_a_batch_by_its_position() -> None:
    logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    loss = CorrectnessRanking()
    objective = trainer.SampleObjective(loss, sample_ids=list("abcd"))

    for epoch in range(2):
        objective.start_epoch(epoch, 2)
        objective(logits, torch.tensor([0, 1, 1]), torch.tensor([3, 0, 1]))
        objective.end_epoch(logits, torch.tensor([0, 1, 1]))

    assert objective.state_dict()["loss"]["counts"].tolist() == [0, 2, 0, 2]
    again = trainer.SampleObjective(CorrectnessRanking(), sample_ids=list("abcd"))
    again.load_state_dict(objective.state_dict())
    assert again.state_dict()["loss"]["counts"].tolist() == [0, 2, 0, 2]


def test_adafocal_learns_from_the_predictions_after_an_epoch() -> None:
    logits, targets = batch(40)
    objective = trainer.SampleObjective("adafocal", sample_ids=list("abcdef"))
    expected = AdaFocal()
    confidences, predictions = logits.double().softmax(1).max(1)
    expected.after_epoch(confidences, predictions == targets)

    objective.start_epoch(0, 2)
    objective.end_epoch(logits, targets)

    torch.testing.assert_close(objective.state_dict()["loss"], expected.state_dict())


def test_a_call_that_a_loss_with_memory_lacks_is_an_error() -> None:
    logits, targets = batch()
    scheduled = trainer.SampleObjective("scheduled_focal", sample_ids=list("abcdef"))
    with pytest.raises(RuntimeError, match="call start_epoch before each"):
        scheduled(logits, targets, torch.arange(6))
    learning = trainer.SampleObjective("adafocal", sample_ids=list("abcdef"))
    learning.start_epoch(0, 2)
    with pytest.raises(RuntimeError, match="call end_epoch with them after every epoch"):
        learning.start_epoch(1, 2)


def test_an_epoch_may_begin_again_where_a_run_resumes_within_it() -> None:
    logits, targets = batch(40)
    objective = trainer.SampleObjective("adafocal", sample_ids=list("abcdef"))

    objective.start_epoch(1, 3)
    objective.start_epoch(1, 3)

    with pytest.raises(RuntimeError, match="call end_epoch"):
        objective.start_epoch(2, 3)
    objective.end_epoch(logits, targets)
    objective.start_epoch(2, 3)


@pytest.mark.parametrize("epoch_of", [(0, -1), (0, 0), (-1, 3)])
def test_an_epoch_that_there_cannot_be_is_refused(epoch_of: tuple[int, int]) -> None:
    """Such as of the -1 epochs that Lightning has with max_steps."""
    objective = trainer.SampleObjective("scheduled_focal", sample_ids=list("abcdef"))

    with pytest.raises(ValueError, match="epochs are counted from zero"):
        objective.start_epoch(*epoch_of)


@pytest.mark.parametrize("position", [-1, 6])
def test_positions_that_no_sample_has_are_refused(position: int) -> None:
    logits, targets = batch()
    objective = trainer.SampleObjective("cross_entropy", sample_ids=list("abcdef"))

    with pytest.raises(ValueError, match=rf"position {position} of 6 samples"):
        objective(logits, targets, torch.tensor([0, 1, position, 3, 4, 5]))


def test_a_target_that_pytorch_would_leave_out_is_refused() -> None:
    logits, targets = batch()
    targets[2] = -100
    objective = trainer.SampleObjective("cross_entropy", sample_ids=list("abcdef"))

    with pytest.raises(ValueError, match="target -100"):
        objective(logits, targets, torch.arange(6))
    objective(logits, targets.abs() % 3, torch.arange(6))


@pytest.mark.gpu
@pytest.mark.parametrize("at_start", [True, False])
def test_on_a_gpu_such_a_target_is_refused_with_the_epoch(
    at_start: bool,  # noqa: FBT001
) -> None:
    logits, targets = batch()
    targets[2] = -100
    objective = trainer.SampleObjective("cross_entropy", sample_ids=list("abcdef"))

    objective.start_epoch(0, 2)
    objective(logits.cuda(), targets.cuda(), torch.arange(6))

    with pytest.raises(ValueError, match="target -100"):
        objective.start_epoch(1, 2) if at_start else objective.end_epoch(logits, targets)


def test_weights_without_effect_or_of_other_samples_are_refused() -> None:
    ids: Sequence[str] = list("abc")
    with pytest.raises(ValueError, match="no effect with alpha 0"):
        trainer.SampleObjective(cross_entropy, sample_ids=ids, weights=torch.ones(3))
    with pytest.raises(ValueError, match=r"shape \(2,\) for 3 samples"):
        trainer.SampleObjective(cross_entropy, sample_ids=ids, alpha=0.3, weights=torch.ones(2))
