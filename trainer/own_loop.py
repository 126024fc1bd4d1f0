"""What a training loop of one's own needs: scores by sample id, positions, and the objective.

`trainer.train` has all of this inside. A loop in plain PyTorch, of the Trainer of Hugging Face, of
Lightning or of Keras takes these: `read_weights` and `read_difficulty` join a score file to the
samples, `IndexedDataset` says which samples a batch holds, and `SampleObjective` computes their
losses and calls the hooks of losses with memory. `trainer.training.sampling` orders the samples.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol, TypedDict, Unpack

import torch
from pydantic import ValidationError
from torch import Tensor
from torch.utils.data import Dataset

from difficulty_service.base.errors import ConfigError
from difficulty_service.base.wording import explain_invalid
from difficulty_service.interface.arrays import to_texts
from difficulty_service.scores.file import open_scores
from trainer.config import Normalise, ScoreWeights
from trainer.config.table import Needs
from trainer.losses import Loss, call_hook, make_loss
from trainer.metrics.predictions import confidence_and_correct
from trainer.training.objective import Objective
from trainer.training.sampling import process_of_all
from trainer.weights.from_scores import difficulty_of_samples, weights_of_samples

INDEX = "index"
"""Key of the position in a sample that is a mapping."""

FLOAT32_BYTES = 4


class WeightOptions(TypedDict, total=False):
    """How scores become weights: keys of a recipe's [regulariser], for type checkers.

    Attributes:
        column: Column of the score file; larger is harder. `rmd` by default.
        normalise: Normalisation of the scores before the exponential; `minmax` by default.
        winsorise: Fraction of scores clipped at either end by `minmax` and `zscore`; 0.001.
        score_temperature: T of equation 10 of Cui et al. (2023); 0.7 by default.
        c: c of that equation; 0.001 by default.
        missing: `error` (default) refuses samples without a score; `mean` gives them the mean
            weight.
        unreliable: `error` (default) refuses scores that are marked as unreliable, `allow` uses
            them.
    """

    column: str
    normalise: Normalise
    winsorise: float
    score_temperature: float
    c: float
    missing: Literal["error", "mean"]
    unreliable: Literal["error", "allow"]


def read_weights(
    scores: Any,  # noqa: ANN401 - a path, or scores of either package
    sample_ids: Sequence[str],
    **options: Unpack[WeightOptions],
) -> Tensor:
    """Reads the weight of every training sample from a score file, joined by sample id.

    The options are the keys of a recipe's [regulariser]. Only the scores of these samples are used
    for normalisation; scores without a sample are an error unless `missing="mean"`.

    Args:
        scores: Path of a score file, or scores of `difficulty_service`.
        sample_ids: Id of each training sample, as in the score file.

    Returns:
        Weights in (0, 1), larger for harder samples, float32 in the order of `sample_ids`. Shape
        (samples,).

    Raises:
        ConfigError: An option is unknown, wrong or without effect.
        UnmatchedScores: Scores and samples do not fit together.
        TrainingError: The scores are not finite, or marked as unreliable.
    """
    config = _weight_options(options)
    with _score_file(scores) as path, open_scores(path) as opened:
        return weights_of_samples(to_texts(sample_ids, "sample_ids"), opened, config)[0].float()


def read_difficulty(
    scores: Any,  # noqa: ANN401 - a path, or scores of either package
    sample_ids: Sequence[str],
    *,
    column: str = "rmd",
) -> Tensor:
    """Reads the difficulty of every training sample from a score file, joined by sample id.

    Args:
        scores: Path of a score file, or scores of `difficulty_service`.
        sample_ids: Id of each training sample, as in the score file.
        column: Column of scores; larger is harder.

    Returns:
        Float64 in the order of `sample_ids`. Shape (samples,).

    Raises:
        ConfigError: The file has no such scores.
        UnmatchedScores: A sample has no score, or a score no sample.
        TrainingError: The scores are marked as unreliable.
    """
    with _score_file(scores) as path, open_scores(path) as opened:
        return difficulty_of_samples(to_texts(sample_ids, "sample_ids"), opened, column)


@contextmanager
def _score_file(scores: Any) -> Iterator[Path]:  # noqa: ANN401 - a path, or scores
    """The file of some scores, written for as long as it is read where there is none."""
    if isinstance(scores, str | os.PathLike):
        yield Path(scores)
        return
    if not hasattr(scores, "save"):
        raise ConfigError(
            f"scores are of type {type(scores).__name__}",
            "pass the path of a score file, or what difficulty_service.score returned",
            parameter="scores",
        )
    with TemporaryDirectory() as folder:
        yield Path(scores.save(Path(folder) / "scores.parquet"))


def _weight_options(options: Mapping[str, Any]) -> ScoreWeights:
    known = WeightOptions.__annotations__
    unknown = sorted(options.keys() - known.keys())
    if unknown:
        raise ConfigError(
            f"there is no option {unknown[0]!r} of weights", f"choose from {', '.join(known)}"
        )
    try:
        config = ScoreWeights(**options)
    except ValidationError as error:
        sentence = explain_invalid(error, lambda name, value: f"{name}={value!r}")
        raise ConfigError(sentence, parameter=str(error.errors()[0]["loc"][0])) from None
    for name in options:
        for need in ScoreWeights.model_fields[name].metadata:
            deciding = [getattr(config, key.partition(".")[2]) for key in getattr(need, "keys", ())]
            if isinstance(need, Needs) and not need.holds(*deciding):
                sentence = need.remedy.format(*deciding).replace("regulariser.", "")
                raise ConfigError(f"{name}={options[name]!r} {sentence}", parameter=name)
    return config


class Indexable(Protocol):
    """Whatever has a length and samples by position, as map-style datasets do."""

    def __len__(self) -> int:
        """Number of samples."""
        ...

    def __getitem__(self, position: int, /) -> Any:  # noqa: ANN401 - whatever samples are
        """One sample."""
        ...


class IndexedDataset(Dataset[Any]):
    """A dataset whose samples say their position, so that a batch knows its weights.

    A tuple of inputs and target becomes a tuple of inputs, target and position; a mapping gets the
    key `index`; anything else becomes a pair with its position.
    """

    def __init__(self, dataset: Indexable) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.dataset)

    def __getitem__(self, position: int) -> Any:  # noqa: ANN401 - whatever samples are
        """One sample and its position.

        Raises:
            ValueError: The sample is a mapping that has an `index` of its own.
        """
        sample = self.dataset[position]
        if isinstance(sample, Mapping):
            if INDEX in sample:
                raise ValueError(f"samples have a key {INDEX!r} of their own; rename it")
            return {**sample, INDEX: position}
        if isinstance(sample, tuple | list):
            return (*sample, position)
        return sample, position


class SampleObjective:
    """`trainer.Objective` of the samples of a dataset, by their positions, in any loop.

    It knows the weight of every sample, and calls the hooks of losses with memory: call
    `start_epoch` before an epoch, the objective itself once for each training batch, and
    `end_epoch` with the validation predictions, which AdaFocal learns its gammas from. Among
    several processes of `torch.distributed` the memory is that of all of them: they all have to
    make these calls together, each with its own share of the samples.

    Attributes:
        epoch: The epoch that began last, counted from zero; None before the first.
        batches: Number of its training batches so far, of this process.
        has_ended: Whether `end_epoch` was called in it.
    """

    def __init__(
        self,
        loss: Loss | str,
        *,
        sample_ids: Sequence[str],
        alpha: float = 0.0,
        weights: Tensor | None = None,
    ) -> None:
        """Prepares the objective.

        Args:
            loss: Function of logits and targets that returns one loss per sample, such as those of
                `trainer.losses`, or the name of one there.
            sample_ids: Id of each training sample, which names it in the state of the loss.
            alpha: Strength of the entropy term, zero or more.
            weights: Weight of the entropy of each sample, as `read_weights` gives them; None for
                one. Shape (samples,).

        Raises:
            ValueError: There is not one weight per sample, or weights have no effect as alpha is
                zero.
        """
        if weights is not None and weights.shape != (len(sample_ids),):
            raise ValueError(
                f"weights of shape {tuple(weights.shape)} for {len(sample_ids)} samples; give one "
                "weight per sample, in one dimension"
            )
        if weights is not None and alpha == 0:
            raise ValueError("weights have no effect with alpha 0; raise it, such as to 0.3")
        self.objective = Objective(make_loss(loss) if isinstance(loss, str) else loss, alpha)
        self.weights = weights
        self._ids = to_texts(sample_ids, "sample_ids")
        self.epoch: int | None = None
        self.batches = 0
        self.has_ended = False
        self._smallest_target: Tensor | None = None
        call_hook(self.loss, "before_training", self._ids)

    @property
    def loss(self) -> Loss:
        """The loss, with its memory."""
        return self.objective.loss

    @property
    def num_samples(self) -> int:
        """Number of training samples."""
        return len(self._ids)

    @property
    def learns(self) -> bool:
        """Whether the loss learns from validation predictions, so that `end_epoch` has to come."""
        return hasattr(self.loss, "after_epoch")

    def start_epoch(self, epoch: int, epochs: int) -> None:
        """Tells the loss which epoch begins, counted from zero, of how many.

        It may say so again, as where a run resumes within the epoch.

        Raises:
            RuntimeError: The loss learns from validation predictions, and got none of the epoch
                before.
            ValueError: There is no such epoch, or a target of a batch before was negative.
        """
        self._require_labels()
        if epoch < 0 or epochs < 1:
            raise ValueError(
                f"epoch {epoch} of {epochs}: epochs are counted from zero, and there is at least "
                "one of them"
            )
        is_another = self.epoch is not None and epoch != self.epoch
        if is_another and not self.has_ended and self.learns:
            raise RuntimeError(
                "the loss learns from validation predictions; call end_epoch with them after every "
                "epoch"
            )
        if epoch != self.epoch:
            self.epoch, self.batches, self.has_ended = epoch, 0, False
        call_hook(self.loss, "before_epoch", epoch, epochs)

    def __call__(self, logits: Tensor, targets: Tensor, positions: Tensor) -> Tensor:
        """The value to minimise for each sample of a training batch; take the mean or the sum.

        Call it once for each batch: a loss with memory counts its predictions.

        Args:
            logits: Shape (samples, classes).
            targets: Class indices of shape (samples,), or distributions of shape (samples,
                classes), which some losses refuse.
            positions: Positions of the samples in `sample_ids`. Shape (samples,).

        Returns:
            `loss - alpha * weight * entropy`. Shape (samples,).

        Raises:
            RuntimeError: No epoch was started, and the loss depends on it.
            ValueError: There is no sample at a position, or a target is negative; on a GPU, which
                should not wait, the epoch's end or the next one's start says the latter.
        """
        if self.epoch is None and hasattr(self.loss, "before_epoch"):
            raise RuntimeError("the loss depends on the epoch; call start_epoch before each")
        own = positions.tolist()
        for position in own:
            if not 0 <= position < self.num_samples:
                raise ValueError(
                    f"position {position} of {self.num_samples} samples; give those in sample_ids, "
                    "counted from zero"
                )
        self._note_targets(targets)
        call_hook(self.loss, "before_batch", [self._ids[position] for position in own])
        weights = None
        if self.weights is not None:
            weights = self.weights[positions.to(self.weights.device)].to(logits.device)
        # Losses compute in the dtype of the logits, which is too coarse in half precision.
        exact = logits.float() if logits.dtype.itemsize < FLOAT32_BYTES else logits
        losses = self.objective(exact, targets, weights)
        self.batches += 1
        if hasattr(self.loss, "after_batch"):
            likeliest = targets if targets.ndim == 1 else targets.argmax(dim=-1)
            correct = (logits.detach().argmax(dim=-1) == likeliest).tolist()
            everyone = _of_all_processes(list(zip(own, correct, strict=True)))
            if len(everyone) > len(own):
                call_hook(self.loss, "before_batch", [self._ids[row] for row, _ in everyone])
            call_hook(self.loss, "after_batch", torch.tensor([right for _, right in everyone]))
        return losses

    def end_epoch(self, logits: Tensor, targets: Tensor) -> None:
        """Tells the loss the predictions on validation samples, after an epoch.

        Args:
            logits: Those of this process. Shape (samples, classes).
            targets: Class indices. Shape (samples,).

        Raises:
            ValueError: A target of a training batch was negative.
        """
        self._require_labels()
        self.has_ended = True
        if not self.learns:
            return
        confidences, correct = confidence_and_correct(logits, targets)
        pairs = list(zip(confidences.tolist(), correct.tolist(), strict=True))
        all_confidences, all_correct = zip(*_of_all_processes(pairs), strict=True)
        everyone = torch.tensor(all_confidences, dtype=torch.float64), torch.tensor(all_correct)
        call_hook(self.loss, "after_epoch", *everyone)

    def _note_targets(self, targets: Tensor) -> None:
        """Refuses negative class indices, now on the CPU and elsewhere by `_require_labels`.

        PyTorch gives the target -100 a loss of zero.
        """
        if targets.ndim > 1 or not len(targets):
            return
        smallest = targets.min()
        if self._smallest_target is not None:
            smallest = torch.minimum(smallest, self._smallest_target.to(smallest.device))
        self._smallest_target = smallest
        if smallest.device.type == "cpu":
            self._require_labels()

    def _require_labels(self) -> None:
        noted, self._smallest_target = self._smallest_target, None
        if noted is not None and (smallest := int(noted)) < 0:
            raise ValueError(
                f"target {smallest} is no class: classes are counted from zero; leave out samples "
                "without a label"
            )

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint: where the loop is, and the memory of the loss."""
        memory: dict[str, Any] = getattr(self.loss, "state_dict", dict)()
        place = {"epoch": self.epoch, "batches": self.batches, "has_ended": self.has_ended}
        return {**place, "loss": memory}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state of a checkpoint."""
        if state["loss"]:
            call_hook(self.loss, "load_state_dict", state["loss"])
        self.epoch, self.batches = state["epoch"], state["batches"]
        self.has_ended = state["has_ended"]


def _of_all_processes(own: list[Any]) -> list[Any]:
    """The entries of all processes, those of the first one first."""
    _, processes = process_of_all()
    if processes == 1:
        return own
    parts: list[list[Any]] = [[] for _ in range(processes)]
    torch.distributed.all_gather_object(parts, own)
    return [entry for part in parts for entry in part]
