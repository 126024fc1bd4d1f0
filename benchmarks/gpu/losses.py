"""Training steps of a ResNet-34 on images of CIFAR's size, with every loss."""

import statistics

import torch

from benchmarks import loss_steps as steps
from benchmarks.gpu.parts import Row, Rows, Setting
from trainer.training.accelerator import make_accelerator

MODEL, SIDE, BATCH = "resnet34", 32, 128
QUICK_MODEL, QUICK_SIDE, QUICK_BATCH, QUICK_LOSSES = "resnet18", 8, 2, 6
EPOCH_IMAGES = 50_000


def measure_losses(setting: Setting) -> Rows:
    """The step with cross-entropy, an epoch of it, and each loss as a ratio to it."""
    quick = setting.quick
    side, size = (QUICK_SIDE, QUICK_BATCH) if quick else (SIDE, BATCH)
    model = QUICK_MODEL if quick else MODEL
    accelerator = make_accelerator(str(setting.device), "auto")
    candidates = dict([*steps.make_candidates().items()][: QUICK_LOSSES if quick else None])
    images = torch.randint(256, (size, 3, side, side), dtype=torch.uint8)
    batch = steps.make_batch(images.to(accelerator.device), steps.CLASSES)
    classifier = steps.make_classifier(accelerator, model)
    seconds = 0 if quick else setting.left() / 2  # a round that has begun is not cut short
    ratios = steps.whole_steps(candidates, classifier, batch, seconds)
    step = statistics.median(ratios.reference)
    rounds = f"{len(ratios.reference)} rounds, mixed precision: {accelerator.mixed_precision}"
    yield Row(f"{model}, step with {steps.REFERENCE}", 1000 * step, "ms", rounds)
    epoch = step * EPOCH_IMAGES / size
    yield Row(f"{model}, epoch of {EPOCH_IMAGES:,} images", epoch, "s", "by that step")
    for name in [*candidates][1:]:
        ratio = statistics.median(ratios.of[name])
        yield Row(f"{model}, {name.strip(' +')}", ratio, "of the step", ratios.show(name, 3))
