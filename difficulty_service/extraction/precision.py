"""The precision of a network whose user asked for none: measured on CPUs with bfloat16.

bfloat16 is several times as fast there with some networks and changes the ranks of the scores with
others, so some images of the dataset are encoded in both precisions before the choice.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from difficulty_service.backbones import Loader, load_backbone
from difficulty_service.backbones.backbone import Backbone, BackboneOptions
from difficulty_service.base.errors import StatisticsError
from difficulty_service.base.processors import computes_in_bfloat16
from difficulty_service.datasets.sample import Dataset, ImageOpener
from difficulty_service.extraction.batches import FORWARD
from difficulty_service.extraction.runtime import settle_runtime
from difficulty_service.extraction.shards import extract_shards
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.extraction.task import ExtractionTask, ExtractOptions
from difficulty_service.features.description import (
    LEAST_AGREEMENT,
    FeatureKind,
    PrecisionPilot,
    is_store,
    read_description,
)
from difficulty_service.gaussians.fitting import fit
from difficulty_service.scorers.mahalanobis import relative_mahalanobis

NUM_BLOCKS, BLOCK_IMAGES = 8, 64
"""Consecutive images are read fast, and several blocks see several classes of a sorted dataset."""

MAX_GROUPS = 16
"""Number of groups that classes are joined to, so that each has enough images for a mean."""


@dataclass(frozen=True)
class Encoded:
    """Features of some images, and how fast the network was.

    Attributes:
        features: Shape (images, dim).
        labels: Class indices. Shape (images,).
        rate: Images per second of the network alone, reading and decoding left out.
    """

    features: Tensor
    labels: Tensor
    rate: float


def compare_precisions(
    task: ExtractionTask, load: Loader, compared: Callable[[], None] = lambda: None
) -> PrecisionPilot:
    """How both precisions do on some images.

    The first block warms both networks up, and ends the comparison where bfloat16 is no faster.

    The dataset has at least 512 images; `compared` is called after each batch.
    """
    options = task.options.plain()
    task = replace(task, dataset=spread_blocks(task.dataset), options=options)
    tasks = [
        replace(task, network=replace(task.network, precision=precision))
        for precision in (torch.float32, torch.bfloat16)
    ]
    both_ways = [(each, _load_fastest(each, load), compared) for each in tasks]
    first = [_encode(*each, range(1)) for each in both_ways]
    if first[1].rate <= first[0].rate:
        return _pilot(first, None)
    rest = [_encode(*each, range(1, NUM_BLOCKS)) for each in both_ways]
    both = [
        Encoded(  # the first block has warmed up, so its time does not count
            torch.cat([one.features, other.features]),
            torch.cat([one.labels, other.labels]),
            other.rate,
        )
        for one, other in zip(first, rest, strict=True)
    ]
    return _pilot(both, rank_agreement(both[0], both[1]))


def _load_fastest(task: ExtractionTask, load: Loader) -> Backbone:
    """The network by the library that the extraction would run it with."""
    backbone = load(task.backbone, task.network)
    return settle_runtime(task, backbone, LEAST_IMAGES).backbone


def _pilot(both: list[Encoded], agreement: float | None) -> PrecisionPilot:
    return PrecisionPilot(
        num_images=len(both[0].labels),
        float32=round(both[0].rate, 1),
        bfloat16=round(both[1].rate, 1),
        agreement=agreement,
    )


def spread_blocks(dataset: Dataset) -> Dataset:
    """Blocks of consecutive samples from all over a dataset, one in each shard."""
    starts = np.linspace(0, len(dataset.labels) - BLOCK_IMAGES, NUM_BLOCKS).astype(int).tolist()
    positions = [start + row for start in starts for row in range(BLOCK_IMAGES)]

    def open_images(rows: Sequence[int]) -> Iterator[ImageOpener]:
        return dataset.open_images([positions[row] for row in rows])

    return replace(
        dataset,
        sample_ids=[dataset.sample_ids[position] for position in positions],
        labels=dataset.labels[positions],
        shard_size=BLOCK_IMAGES,
        open_images=open_images,
    )


def rank_agreement(full: Encoded, half: Encoded) -> float:
    """Smallest Spearman correlation of RMD in float32 with RMD by features of bfloat16.

    Either the features that are scored, or those that the Gaussians are fitted to, or both are of
    bfloat16, so that features of one precision may be scored by Gaussians of the other. 0 where no
    Gaussians can be fitted, or all images get the same score.
    """
    # Imported here, because SciPy takes time that other extractions need not spend.
    from scipy.stats import spearmanr

    groups = torch.unique(full.labels, return_inverse=True)[1] % MAX_GROUPS
    try:
        by_full, by_half = (
            relative_mahalanobis(fit(each.features, groups, MAX_GROUPS)) for each in (full, half)
        )
        reference = by_full.rmd(full.features, groups)
        others = [
            by_half.rmd(half.features, groups),
            by_half.rmd(full.features, groups),
            by_full.rmd(half.features, groups),
        ]
    except StatisticsError:
        return 0.0
    scored = reference.isfinite()
    if reference[scored].unique().numel() < MAX_GROUPS:
        return 0.0
    found = [float(spearmanr(reference[scored], other[scored]).statistic) for other in others]
    return min(found) if np.isfinite(found).all() else 0.0


def _encode(
    task: ExtractionTask, backbone: Backbone, compared: Callable[[], None], shards: range
) -> Encoded:
    clock = StageClock()
    extracted = extract_shards(task, backbone, shards, lambda *_: compared(), clock=clock)
    parts = [each.part for _, each in extracted]
    labels = torch.cat([part.labels for part in parts])
    (stage,) = (stage for stage in clock.stages() if stage.name == FORWARD)
    seconds = max(stage.busy / stage.threads, 1e-9)
    return Encoded(torch.cat([part.features for part in parts]), labels, len(labels) / seconds)


LEAST_SPEEDUP = 1.2
"""How many times as fast bfloat16 must be: less does not pay for another rounding."""

LEAST_IMAGES = 2048
"""Number of images from which on the comparison takes less time than bfloat16 can save."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class SettledPrecision:
    """The precision that an extraction computes in, and why; None where it is the device's."""

    network: BackboneOptions
    options: ExtractOptions
    reason: str | None


def settle_precision(
    task: ExtractionTask,
    folder: Path | None,
    fitted_on: FeatureKind | None = None,
    *,
    alone: bool = True,
    load: Loader = load_backbone,
    compared: Callable[[], None] = lambda: None,
) -> SettledPrecision:
    """The precision of an extraction, where its options leave it open; otherwise the given one.

    It is that of the features that an earlier run left, else that of the Gaussians that will score
    the features, else on a CPU with bfloat16 what a comparison on some images says, else that of
    the network's options.

    Args:
        folder: Folder of the features where those of an earlier run are kept; None to ignore them.
        alone: Whether this process extracts the whole dataset. Several, or the nodes of a cluster,
            need not have the same processor and must agree on a precision, so none is compared.
    """
    given = SettledPrecision(task.network, task.options, None)
    if not task.options.open_precision:
        return given
    if folder is not None and is_store(folder):
        return _follow(given, read_description(folder), f"the features in {folder} are")
    if fitted_on is not None:
        return _follow(given, fitted_on, "the features of the Gaussians are")
    images = 0 if task.dataset.modality == "text" else len(task.dataset.labels)
    has_choice = task.network.device.type == "cpu" and computes_in_bfloat16()
    if not (alone and has_choice and images >= LEAST_IMAGES):
        return given
    pilot = compare_precisions(task, load, compared)
    if not pilot.num_images:
        return replace(given, reason="float32, as no image that was compared could be read")
    return SettledPrecision(
        replace(task.network, precision=best_precision(pilot)),
        replace(task.options, precision_pilot=pilot),
        reason_of(pilot),
    )


def _follow(given: SettledPrecision, before: FeatureKind, which: str) -> SettledPrecision:
    """The precision of other features, with what it was chosen by."""
    precision = DTYPES.get(str(before.precision))
    if precision is None:  # features of another program
        return given
    reason = None
    if precision != given.network.precision:
        reason = f"{before.precision}, as {which}"
    return SettledPrecision(
        replace(given.network, precision=precision),
        replace(given.options, precision_pilot=before.precision_pilot),
        reason,
    )


def best_precision(pilot: PrecisionPilot) -> torch.dtype:
    """bfloat16 where it is faster and ranks as float32 does, else float32."""
    better = pilot.same_ranks and pilot.speedup >= LEAST_SPEEDUP
    return torch.bfloat16 if better else torch.float32


def reason_of(pilot: PrecisionPilot) -> str:
    """Why that precision is the best one, in a sentence."""
    if pilot.agreement is None or pilot.speedup < LEAST_SPEEDUP:
        return f"float32, as bfloat16 is {pilot.speedup:.1f} times as fast here"
    sentence = (
        f"bfloat16 is {pilot.speedup:.1f} times as fast here, and Spearman's correlation of the "
        f"scores of {pilot.num_images} images is {pilot.agreement:.5f}"
    )
    if best_precision(pilot) == torch.bfloat16:
        return f"bfloat16: {sentence}"
    return f"float32: {sentence}, where {LEAST_AGREEMENT} is asked"
