"""Calibration metrics in milliseconds, one thread, beside torchmetrics where it is installed.

Run: python -m benchmarks.metrics [samples] [classes]

Each is given what it needs: probabilities and targets, or confidence and correctness. The peer's
class-wise error is its binary calibration error class by class, over a few classes and scaled up;
its bootstrap is that of its own wrapper, over a few resamples and scaled up.
"""

import importlib.util
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from trainer.metrics.bootstrap import NUM_RESAMPLES, ece_interval
from trainer.metrics.calibration import (
    NUM_BINS,
    classwise_ece,
    classwise_ece_of_probabilities,
    ece,
    equal_mass_bins,
    equal_width_bins,
)
from trainer.metrics.predictions import confidence_and_correct
from trainer.metrics.selective import aurc

SAMPLES, CLASSES, ROUNDS = 50_000, 1000, 3
PEER_CLASSES, PEER_RESAMPLES = 5, 3


def make_batch(samples: int, classes: int) -> tuple[Tensor, Tensor]:
    """Over-confident logits, right about four times in five with a thousand classes."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(classes, (samples,), generator=generator)
    logits = 2 * torch.randn(samples, classes, generator=generator)
    logits[torch.arange(samples), targets] += 8
    return logits, targets


def best(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Milliseconds of the best of a few rounds: other work can only slow one down."""
    fastest = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        fastest = min(fastest, time.perf_counter() - start)
    return 1000 * fastest


def time_peer(probabilities: Tensor, targets: Tensor) -> None:
    """The same three by torchmetrics."""
    from torchmetrics.classification import MulticlassCalibrationError
    from torchmetrics.functional.classification import (
        binary_calibration_error,
        multiclass_calibration_error,
    )
    from torchmetrics.wrappers import BootStrapper

    classes = probabilities.shape[1]

    def classwise() -> None:
        for number in range(PEER_CLASSES):
            hits = (targets == number).long()
            binary_calibration_error(probabilities[:, number], hits, n_bins=NUM_BINS)

    def bootstrap() -> None:
        metric = MulticlassCalibrationError(classes, n_bins=NUM_BINS)
        wrapper = BootStrapper(metric, PEER_RESAMPLES, sampling_strategy="multinomial")
        wrapper.update(probabilities, targets)
        wrapper.compute()

    plain = best(
        lambda: multiclass_calibration_error(probabilities, targets, classes, n_bins=NUM_BINS)
    )
    print(f"torchmetrics  ECE from probabilities {plain:,.1f} ms")
    print(f"torchmetrics  class-wise ECE {best(classwise, 1) * classes / PEER_CLASSES:,.0f} ms")
    scale = NUM_RESAMPLES / PEER_RESAMPLES
    print(f"torchmetrics  {NUM_RESAMPLES:,} resamples of ECE {best(bootstrap, 1) * scale:,.0f} ms")


def main() -> None:
    """Prints one line per metric."""
    torch.set_num_threads(1)
    samples, classes = (*map(int, sys.argv[1:3]), *(SAMPLES, CLASSES)[len(sys.argv) - 1 :])
    logits, targets = make_batch(samples, classes)
    probabilities = logits.softmax(dim=1)
    confidence, correct = confidence_and_correct(logits, targets)
    methods: dict[str, Callable[[], object]] = {
        "ECE from logits": lambda: ece(logits, targets),
        "ECE from confidence": lambda: equal_width_bins(confidence, correct).mean_gap,
        "adaptive ECE from confidence": lambda: equal_mass_bins(confidence, correct).mean_gap,
        "class-wise ECE from logits": lambda: classwise_ece(logits, targets),
        "class-wise ECE from probabilities": lambda: classwise_ece_of_probabilities(
            probabilities, targets
        ),
        "AURC from confidence": lambda: aurc(confidence, correct),
        f"{NUM_RESAMPLES:,} resamples of ECE": lambda: ece_interval(confidence, correct),
    }
    print(f"{samples:,} samples, {classes:,} classes, accuracy {correct.double().mean():.3f}")
    for name, work in methods.items():
        print(f"ours  {name} {best(work):,.1f} ms")
    if importlib.util.find_spec("torchmetrics"):
        time_peer(probabilities, targets)


if __name__ == "__main__":
    main()
