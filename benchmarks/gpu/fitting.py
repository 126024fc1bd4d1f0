"""Gaussians and scores of ImageNet's features in the memory of the device, beside its limits."""

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks import fit_and_score as comparison
from benchmarks.gpu.limits import COPY, FLOAT32, TF32
from benchmarks.gpu.parts import LeftOut, Row, Rows, Setting

SAMPLES, DIM, CLASSES = 1_281_167, 768, 1000
QUICK = (2000, 16, 8)
COPIES = 6
"""Number of arrays as large as the features that must fit into the free memory."""

ROUNDS = 3
PEER = "pytorch-ood"


def fit_and_score(setting: Setting) -> Rows:
    """Seconds of both steps together, here and in another package, and what they could be."""
    samples, dim, classes = QUICK if setting.quick else (SAMPLES, DIM, CLASSES)
    samples = min(samples, setting.free_memory() // (COPIES * dim * 4))
    if samples < 2 * classes:
        raise LeftOut(f"memory for {samples:,} samples only is too little")
    size = f"{samples:,} x {dim}, {classes:,} classes, float32"
    features, labels = make_features(setting.device, samples, dim, classes)
    scores: dict[str, Tensor] = {}
    for method in (comparison.OURS, PEER):
        try:
            warm_up = comparison.METHODS[method](features[: 10 * dim], labels[: 10 * dim] * 0, 1)
            warm_up()
            run = comparison.METHODS[method](features, labels, classes)
            yield from _measure(setting, method, run, size, scores)
        except ImportError as error:
            yield Row(f"fit and score, {method}", None, "s", f"{error.name} is not installed")
        except torch.OutOfMemoryError:
            yield Row(f"fit and score, {method}", None, "s", "its memory is too small")
    yield from floors(setting, samples, dim, classes)
    if len(scores) > 1:
        ours, theirs = scores.values()
        difference = float((ours - theirs).abs().max() / ours.std())
        yield Row("largest difference of two scores", difference, "standard deviations")


def make_features(
    device: torch.device, samples: int, dim: int, classes: int
) -> tuple[Tensor, Tensor]:
    """Classes around their means with a decaying spectrum within, made in place on the device."""
    generator = torch.Generator(device).manual_seed(0)
    labels = torch.randint(classes, (samples,), generator=generator, device=device)
    labels[:classes] = torch.arange(classes, device=device)
    spectrum = torch.logspace(0, -1.3, dim, device=device)
    means = torch.randn(classes, dim, generator=generator, device=device) * spectrum
    features = torch.randn(samples, dim, generator=generator, device=device).mul_(spectrum)
    block = 1 << 16
    for start in range(0, samples, block):  # all means at once would be as large as the features
        features[start : start + block] += means[labels[start : start + block]]
    return features, labels


def _measure(
    setting: Setting,
    method: str,
    run: Callable[[], object],
    size: str,
    scores: dict[str, Tensor],
) -> Rows:
    if setting.on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(setting.device)
        before = torch.cuda.memory_allocated(setting.device)
    seconds = []
    for _ in range(ROUNDS):
        seconds.append(setting.time(lambda: scores.update({method: torch.as_tensor(run())})))
        if setting.left() <= 0:
            break
    yield Row(f"fit and score, {method}", min(seconds), "s", size)
    if setting.on_gpu:
        extra = torch.cuda.max_memory_allocated(setting.device) - before
        yield Row(f"memory beside the features, {method}", extra / 1e9, "GB")


def floors(setting: Setting, samples: int, dim: int, classes: int) -> Rows:
    """The least time by each limit: arithmetic that the answer needs, and one read of each pass."""
    rank = min(dim, classes - 1)
    flops = samples * dim**2 + samples * (2 * dim * rank - rank**2)
    for name in (FLOAT32, TF32):
        if name in setting.limits:
            yield Row(f"floor by products in {name}", flops / setting.limits[name], "s")
    if COPY in setting.limits:
        read = 2 * samples * dim * 4
        yield Row("floor by memory", read / setting.limits[COPY], "s", "features read twice")
