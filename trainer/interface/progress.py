"""The progress of a run that Python started, in a terminal or a notebook."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from trainer.runs.signals import stop_on_signals
from trainer.runs.train import RunCallbacks
from trainer.training.checkpoint import Progress
from trainer.weights.formula import WeightsDistribution

CALLER = 5
"""Frames between a warning and the caller of `trainer.train`."""

SHOWN = {
    "train_loss": "loss {:.4f}",
    "validation_accuracy": "accuracy {:.1%}",
    "validation_adaptive_ece": "adaptive ECE {:.2%}",
}
"""Values of an epoch that the bar shows."""


@contextmanager
def watch(
    epochs: int, on_epoch: Callable[[dict[str, Any]], None] | None, *, shown: bool
) -> Iterator[RunCallbacks]:
    """Shows a progress bar, and lets Ctrl-C save and stop the run.

    Args:
        epochs: Number of epochs of the run.
        on_epoch: Called with the record of each epoch; None for nothing.
        shown: Whether to show the bar.
    """
    from tqdm.auto import tqdm

    with stop_on_signals() as received, tqdm(unit="sample", disable=not shown) as bar:

        def start(samples: int, progress: Progress, _weights: WeightsDistribution | None) -> None:
            bar.reset(total=samples * epochs)
            bar.initial = samples * progress.epoch
            bar.update(bar.initial)
            bar.set_description(f"epoch {progress.epoch + 1}/{epochs}")

        def end_epoch(record: dict[str, Any]) -> None:
            values = [text.format(record[key]) for key, text in SHOWN.items() if key in record]
            bar.set_postfix_str(", ".join(values))
            bar.set_description(f"epoch {min(record['epoch'] + 1, epochs)}/{epochs}")
            if on_epoch is not None:
                on_epoch(record)

        yield RunCallbacks(
            on_start=start,
            on_step=bar.update,
            on_epoch=end_epoch,
            should_stop=lambda: received() != 0,
            on_warnings=_warn,
        )


def _warn(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        warnings.warn(sentence, UserWarning, stacklevel=CALLER)
