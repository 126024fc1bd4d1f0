"""Some images of a dataset in both precisions: how fast they are, and whether ranks agree."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from difficulty_service.backbones import Loader
from difficulty_service.backbones.backbone import Backbone
from difficulty_service.datasets.sample import Dataset, ImageOpener
from difficulty_service.errors import StatisticsError
from difficulty_service.extraction.batches import FORWARD
from difficulty_service.extraction.shards import extract_shards
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.extraction.task import ExtractionTask
from difficulty_service.feature_description import PrecisionPilot
from difficulty_service.scorers.mahalanobis import relative_mahalanobis
from difficulty_service.statistics.fitting import fit

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


def compare_precisions(task: ExtractionTask, load: Loader) -> PrecisionPilot:
    """How both precisions do on some images.

    The first block warms both networks up, and ends the comparison where bfloat16 is no faster.

    Args:
        task: A dataset of at least 512 images, and how to extract its features.
        load: Loads the backbone.

    Raises:
        BackboneError: The pretrained weights are missing.
    """
    options = replace(task.options, augment_runs=0, stop_on_error=False)
    task = replace(task, dataset=spread_blocks(task.dataset), options=options)
    tasks = [
        replace(task, network=replace(task.network, precision=precision))
        for precision in (torch.float32, torch.bfloat16)
    ]
    loaded = [load(each.backbone, each.network) for each in tasks]
    first = [_encode(*each, range(1)) for each in zip(tasks, loaded, strict=True)]
    if first[1].rate <= first[0].rate:
        return _pilot(first, None)
    rest = [_encode(*each, range(1, NUM_BLOCKS)) for each in zip(tasks, loaded, strict=True)]
    both = [_joined(*each) for each in zip(first, rest, strict=True)]
    return _pilot(both, rank_agreement(both[0], both[1]))


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

    def open_images(rows: range) -> Iterator[ImageOpener]:
        first = positions[rows.start]
        return dataset.open_images(range(first, first + len(rows)))

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
    bfloat16, so that features of one precision may be scored by Gaussians of the other.

    Args:
        full: Features in float32.
        half: Features of the same images in bfloat16.

    Returns:
        0 where no Gaussians can be fitted, or all images get the same score.
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


def _encode(task: ExtractionTask, backbone: Backbone, shards: range) -> Encoded:
    clock = StageClock()
    parts = [each.part for _, each in extract_shards(task, backbone, shards, clock=clock)]
    labels = torch.cat([part.labels for part in parts])
    (stage,) = (stage for stage in clock.stages() if stage.name == FORWARD)
    seconds = max(stage.busy / stage.threads, 1e-9)
    return Encoded(torch.cat([part.features for part in parts]), labels, len(labels) / seconds)


def _joined(first: Encoded, rest: Encoded) -> Encoded:
    """Two blocks of features as one; the first has warmed up, so its time does not count."""
    return Encoded(
        torch.cat([first.features, rest.features]),
        torch.cat([first.labels, rest.labels]),
        rest.rate,
    )
