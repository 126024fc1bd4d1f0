"""Which class each sample looks like, by densities whose ridge and scale the labels chose."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from difficulty_service.runtime.parallel import map_in_order, num_workers
from difficulty_service.runtime.process_setup import give_back_freed_memory
from difficulty_service.statistics.chunks import Chunk, ChunkSource
from difficulty_service.statistics.class_densities import ClassDensities, fit_densities
from difficulty_service.statistics.feature_map import FeatureMap
from difficulty_service.statistics.label_noise import (
    LabelVerdict,
    add_label_sums,
    gain_of_noise,
    judge_labels,
)
from difficulty_service.statistics.moments import Moments
from difficulty_service.statistics.products import BLOCK_ROWS, Workspace, chunk_ranges
from difficulty_service.statistics.ridge import LabelledRows, RidgeChoice, likeliest_ridge
from difficulty_service.statistics.row_sample import read_chunk_samples

PRODUCTS_PER_BLOCK = 1 << 20
"""Approximate number of inner products with classes that are held at a time."""


@dataclass(frozen=True)
class Rule:
    """Class densities with the choice of their ridge and scale.

    Attributes:
        densities: The densities.
        choice: Ridge and scale.
        work: Memory for intermediate results, for each thread.
    """

    densities: ClassDensities
    choice: RidgeChoice
    work: Workspace = field(default_factory=Workspace)

    @property
    def sharp(self) -> float:
        """The scale of the posterior that ranks labels: 1, or more where labels call for more.

        A large ridge, which few samples need, makes all distances small.
        """
        return max(1.0, self.choice.scale)

    def log_densities(self, mapped: Tensor, labels: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Some samples at a time and their log-densities; see `ClassDensities`."""
        return self.densities.log_densities(mapped, labels, self.work)

    def log_joint(self, log_densities: Tensor, scale: float) -> Tensor:
        """Log-density times a scale, plus log-prior, in other memory. Shape as given."""
        joint = self.work.like("joint", log_densities)
        prior = self.densities.log_prior.to(joint.dtype)
        return torch.add(prior, log_densities, alpha=scale, out=joint)

    def judge(
        self, log_densities: Tensor, labels: Tensor, scale: float, noise: Tensor | None = None
    ) -> LabelVerdict:
        """What is thought of labels, by indices of classes, at a scale."""
        return judge_labels(self.log_joint(log_densities, scale), labels, noise, self.work)


def samples_at_once(rule: Rule) -> int:
    """Number of samples whose products with all classes are computed at a time."""
    runs = rule.densities.runs
    return max(1, min(BLOCK_ROWS // runs, PRODUCTS_PER_BLOCK // len(rule.densities.classes)))


def first_dimensions(moments: Moments, dim: int) -> Moments:
    """The moments of the first dimensions of the same samples."""
    return Moments(
        moments.pilot[:dim],
        moments.counts,
        moments.class_sums[:, :dim],
        moments.scatter[:dim, :dim],
    )


def scaled_dimensions(moments: Moments, factors: Tensor) -> Moments:
    """The moments after each dimension is multiplied by a factor, shape (dim,)."""
    factors = factors.double()
    return Moments(
        moments.pilot * factors,
        moments.counts,
        moments.class_sums * factors,
        moments.scatter * factors * factors[:, None],
    )


def fit_rule(sample: LabelledRows, moments: Moments, matmul_dtype: torch.dtype) -> Rule:
    """The densities with the ridge and scale under which the labels are likeliest.

    Args:
        sample: Samples from all over the dataset; only the dimensions of the moments are read.
        moments: Moments of all samples.
        matmul_dtype: dtype of the matrix products.

    Raises:
        StatisticsError: All features are the same.
    """
    known = LabelledRows(sample.features[:, : moments.dim], sample.labels, sample.runs)
    choice = likeliest_ridge(known, moments)
    give_back_freed_memory()
    return Rule(fit_densities(moments, choice.ridge, sample.runs, matmul_dtype), choice)


def sum_labels(
    source: ChunkSource[Chunk], counts: Sequence[int], seen: Tensor, rule: Rule, mapped: FeatureMap
) -> Tensor:
    """Sums for the label noise over some samples, float64. Shape (classes, classes).

    Args:
        source: Labelled features as they are.
        counts: Number of rows of each chunk.
        seen: Numbers of the samples, ascending.
        rule: Densities of mapped features.
        mapped: The map.
    """
    runs, work = rule.densities.runs, Workspace()
    classes = len(rule.densities.classes)

    def sums_of_chunk(item: tuple[Chunk, int]) -> Tensor:
        chunk, first_row = item
        sums = mapped.scale.new_zeros(classes, classes)
        sample = read_chunk_samples(source, chunk, first_row, seen, runs)
        for block in chunk_ranges(len(sample.labels), samples_at_once(rule)):
            features = sample.features[block.start * runs : block.stop * runs]
            own = rule.densities.places(sample.labels[block])
            for rows, densities in rule.log_densities(mapped(features, work), own):
                add_label_sums(rule.log_joint(densities, rule.sharp), own[rows], sums)
        return sums

    numbered = zip(source.chunks(), accumulate(counts[:-1], initial=0), strict=True)
    total = torch.zeros(classes, classes, dtype=torch.float64)
    for sums in map_in_order(sums_of_chunk, numbered, num_workers()):
        total += sums
    return total


def mean_gain_of_noise(sample: LabelledRows, counted: Tensor, sums: Tensor, rule: Rule) -> float:
    """Mean of `gain_of_noise` over the samples that have a density, in nats; NaN without any.

    Args:
        sample: Samples from all over the dataset, mapped.
        counted: As for `gain_of_noise`.
        sums: As for `gain_of_noise`.
        rule: Densities of mapped features.
    """
    gains, runs = [], sample.runs
    for block in chunk_ranges(len(sample.labels), samples_at_once(rule)):
        points = sample.features[block.start * runs : block.stop * runs]
        own = rule.densities.places(sample.labels[block])
        for rows, densities in rule.log_densities(points, own):
            joint = rule.log_joint(densities, rule.sharp)
            gains.append(gain_of_noise(joint, own[rows], sums, counted[block][rows]))
    return float(torch.cat(gains).nanmean())
