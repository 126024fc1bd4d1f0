"""Difficulty in Keras 3 with PyTorch as its backend."""

import warnings
from pathlib import Path
from typing import Any

import keras
import torch
from torch import Tensor

from difficulty_service.base.errors import ConfigError
from trainer.loops.attached import Attached
from trainer.own_loop import SampleObjective
from trainer.training.sampling import DifficultySampler


def attach(
    network: keras.Model,
    objective: SampleObjective,
    sampler: DifficultySampler | None = None,
    *,
    validation: tuple[Any, Any] | None = None,
    memory: Path | str | None = None,
) -> keras.callbacks.Callback:
    """A callback for `fit`, after which the network minimises the objective.

    The position of each training sample takes the place of its `sample_weight`, so that metrics
    and validation, which see labels alone, count as usual.

    Args:
        network: A model whose outputs are logits.
        objective: Of the training samples.
        sampler: The batch sampler of the training loader, if it is one by difficulty.
        validation: Inputs and class indices that a loss such as AdaFocal learns from.
        memory: File that the state of the objective is kept in after every epoch, and read from
            where `fit` begins at a later `initial_epoch`.

    Raises:
        ConfigError: Keras has another backend, the network ends in probabilities, or the loss
            learns from validation predictions and there are none.
    """
    if keras.backend.backend() != "torch":
        raise ConfigError(
            f"Keras computes with {keras.backend.backend()}, and losses with PyTorch",
            'set os.environ["KERAS_BACKEND"] = "torch" before Keras is imported',
        )
    if _ends_in_probabilities(network):
        raise ConfigError(
            "the network ends in probabilities, and losses take logits",
            "leave out the activation of its last layer",
        )
    if objective.learns and validation is None:
        raise ConfigError(
            "the loss learns from validation predictions after every epoch",
            "pass validation=(inputs, labels)",
        )
    own_loss, own_metrics = network.compute_loss, network.compute_metrics

    def compute_loss(
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,  # noqa: FBT001, FBT002 - its signature
    ) -> Any:
        made_up = y_pred.device.type == "meta"  # Keras asks for the shape of the loss first
        if sample_weight is None or made_up:
            return own_loss(x, y, y_pred, None, training=training)
        if not training:
            raise ConfigError(
                "sample_weight has the positions of training samples", "leave it out of validation"
            )
        positions = sample_weight.flatten().long()
        loss: Tensor = objective(y_pred, y.flatten().long(), positions).mean()
        return loss + sum(network.losses)  # those of regularised layers

    def compute_metrics(x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:  # noqa: ARG001
        return own_metrics(x, y, y_pred)

    network.compute_loss, network.compute_metrics = compute_loss, compute_metrics
    return _KerasCallback(Attached(objective, sampler), validation, memory)


class _KerasCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Tells the objective where `fit` is."""

    def __init__(
        self, attached: Attached, validation: tuple[Any, Any] | None, memory: Path | str | None
    ) -> None:
        super().__init__()
        self.attached, self.validation = attached, validation
        self.file = None if memory is None else Path(memory)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        is_first = self.attached.objective.epoch is None
        if is_first and epoch and self.file is not None:
            self.attached.objective.load_state_dict(torch.load(self.file, weights_only=True))
        self.attached.start_epoch(epoch, self.params["epochs"])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.validation is not None:
            inputs, labels = self.validation
            with warnings.catch_warnings():
                # Keras 3.15 makes arrays of tensors in a way that NumPy 2 deprecates.
                warnings.simplefilter("ignore", DeprecationWarning)
                logits = torch.as_tensor(self.model.predict(inputs, verbose=0))
            targets = torch.as_tensor(labels).flatten().long()
            self.attached.objective.end_epoch(logits, targets)
        if self.file is not None:
            torch.save(self.attached.objective.state_dict(), self.file)


def _ends_in_probabilities(network: keras.Model) -> bool:
    last = network.layers[-1] if network.layers else None
    activation = getattr(last, "activation", None)
    return activation in (keras.activations.softmax, keras.activations.sigmoid)
