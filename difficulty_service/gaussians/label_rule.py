"""Which class each sample looks like, by densities whose ridge and scale the labels chose.

Log-densities of the classes at each sample, as if it had not taken part in the fit.

Unlike `class_distances`, which serves some thousand samples, this is for a pass over all of them:
one triangular product and one with the class means for each row, and no matrix per sample.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from difficulty_service.base.process_setup import give_back_freed_memory
from difficulty_service.base.threads import map_in_order, num_workers
from difficulty_service.gaussians.batches import Batch, BatchSource
from difficulty_service.gaussians.class_distances import (
    ClassGeometry,
    class_distances_left_out,
    class_geometry,
    distances_of_rows_left_out,
)
from difficulty_service.gaussians.factor import whiten_with_ridge
from difficulty_service.gaussians.feature_map import FeatureMap
from difficulty_service.gaussians.gaussian import covariance_within, mean_variance
from difficulty_service.gaussians.label_noise import (
    SHARPNESS_OF_SUMS,
    LabelNoise,
    LabelVerdict,
    add_label_sums,
    fit_noise,
    judge_labels,
    likeliest_classes,
    log_class_prior,
)
from difficulty_service.gaussians.moments import Moments
from difficulty_service.gaussians.products import (
    Projection,
    Workspace,
    block_rows,
    matmul,
    one_thread_per_product,
    projection,
    row_ranges,
    squared_lengths,
)
from difficulty_service.gaussians.ridge import LabelledRows, RidgeChoice, likeliest_ridge
from difficulty_service.gaussians.row_sample import read_batch_samples

DISTANCES_IN_CACHE, DISTANCES_THERE = 1 << 16, 1 << 24
"""Approximate number of distances to classes that are worked on at a time, in several copies: by a
core, and by an accelerator."""


@dataclass(frozen=True)
class ClassDensities:
    """Gaussians of the classes with one covariance; made by `fit_densities`.

    Attributes:
        classes: Label of each class that has samples, ascending; all else is about these. Shape
            (fitted,).
        log_prior: Logarithm of the prior probability of each class, from `log_class_prior`. Shape
            (fitted,).
        mean: Mean of all samples. Shape (dim,).
        whitening: Map to the space where the covariance within classes and its ridge are 1. None
            where all samples are taken to be `own_distance` from their own class, so that no row
            needs to be mapped.
        class_points: Class means minus the mean in that space, or without the map the inverse
            covariance times these. Shape (fitted, dim).
        geometry: Lengths of the class points and distances between them, and rows of each class.
        runs: Rows per sample.
        own_distance: Mean squared distance of the samples of the fit to their own class mean.
    """

    classes: Tensor
    log_prior: Tensor
    mean: Tensor
    whitening: Projection | None
    class_points: Tensor
    geometry: ClassGeometry
    runs: int
    own_distance: float

    def places(self, labels: Tensor) -> Tensor:
        """Index among the fitted classes of each label, which must be one of them."""
        return torch.searchsorted(self.classes, labels)

    def log_densities(
        self, features: Tensor, labels: Tensor, work: Workspace
    ) -> Iterator[tuple[slice, Tensor]]:
        """Minus half the squared distance to each class mean, without the sample in the fit.

        Args:
            features: Mapped features of the fit, the rows of a sample adjacent. Shape (samples *
                runs, dim).
            labels: Index of the own class of each sample from `places`. Shape (samples,).

        Yields:
            As many samples as a core's cache holds the distances of, and their mean over the runs,
            up to a constant for all classes, in memory that is overwritten later. NaN for the own
            class of a sample alone in it, and for all where the covariance becomes singular. Shape
            (samples, fitted).
        """
        points = work.matrix("whitened", len(features), features.shape[1], self.mean)
        torch.sub(features, self.mean, out=points)
        if self.whitening is not None:
            # The whitening map is triangular, so that it can be applied in place.
            self.whitening.apply(points, points)
        num_classes, runs = len(self.class_points), self.runs
        if runs == 1:
            products = work.matrix("products", len(points), num_classes, points)
            matmul(points, self._class_factors.T, out=products)
            lengths = self._lengths(points, products, labels)
        most = DISTANCES_IN_CACHE if points.device.type == "cpu" else DISTANCES_THERE
        for rows in row_ranges(len(labels), max(1, most // num_classes)):
            if runs == 1:
                left_out = distances_of_rows_left_out(
                    lengths[rows],
                    products[rows],
                    labels[rows],
                    self.geometry,
                    work,
                    relative=self.whitening is None,
                )
                yield rows, left_out.distances.div_(-2)
                continue
            distances = class_distances_left_out(
                points[rows.start * runs : rows.stop * runs],
                labels[rows],
                self.class_points,
                self.geometry.counts,
                runs,
            ).distances
            yield rows, distances.view(-1, runs, num_classes).mean(dim=1).div_(-2)

    @cached_property
    def _class_factors(self) -> Tensor:
        """What `distances_of_rows_left_out` takes the products of rows with. (fitted, dim)."""
        return -2 * self.class_points

    def with_mean_distance(self) -> "ClassDensities":
        """The same densities with `own_distance` for all samples, for rows of one run each."""
        if self.whitening is None or self.whitening.triangle is None:
            raise ValueError("a map to whitened rows is needed, which has a triangle")
        points = matmul(self.class_points.double(), self.whitening.triangle.T.double())
        return replace(self, whitening=None, class_points=points.to(self.class_points.dtype))

    def _lengths(self, points: Tensor, products: Tensor, labels: Tensor) -> Tensor:
        """Squared length of each whitened row, by its products with the factors. (samples,)."""
        if self.whitening is not None:
            return squared_lengths(points)
        own = products.gather(1, labels[:, None])[:, 0]
        return -own - self.geometry.norms.to(own.dtype)[labels] + self.own_distance


@one_thread_per_product()
def fit_densities(
    moments: Moments, ridge: float, runs: int, matmul_dtype: torch.dtype
) -> ClassDensities:
    """Class densities with a ridge on the covariance: a share of the mean variance of samples."""
    classes = (moments.counts > 0).nonzero().flatten()
    counts = moments.counts[classes]
    variance = mean_variance(moments)
    whitening = whiten_with_ridge(covariance_within(moments), ridge, variance)
    mean = moments.class_sums.sum(dim=0) / moments.num_samples
    class_points = (moments.class_sums[classes] / counts[:, None] - mean) @ whitening.T
    return ClassDensities(
        classes=classes,
        log_prior=log_class_prior(counts // runs),
        mean=(moments.pilot + mean).to(matmul_dtype),
        whitening=projection(whitening, matmul_dtype, torch.device("cpu")),
        class_points=class_points.to(matmul_dtype),
        geometry=class_geometry(class_points, counts, matmul_dtype),
        runs=runs,
        # The trace of the covariance times the inverse of the covariance with the ridge.
        own_distance=moments.dim - ridge * variance * float(whitening.square().sum()),
    )


PRODUCTS_PER_BLOCK = 1 << 20
"""Approximate number of inner products with classes that are held at a time."""


@dataclass(frozen=True)
class Rule:
    """Class densities with the choice of their ridge and scale."""

    densities: ClassDensities
    choice: RidgeChoice
    work: Workspace = field(default_factory=Workspace)

    def log_densities(self, mapped: Tensor, labels: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Some samples at a time and their log-densities; see `ClassDensities`."""
        return self.densities.log_densities(mapped, labels, self.work)

    def log_joint(self, log_densities: Tensor, scale: float) -> Tensor:
        """Log-density times a scale, plus log-prior, in other memory. Shape as given."""
        joint = self.work.like("joint", log_densities)
        prior = self.densities.log_prior.to(joint.dtype)
        return torch.add(prior, log_densities, alpha=scale, out=joint)

    def judge(self, log_densities: Tensor, labels: Tensor) -> LabelVerdict:
        """What is thought of labels, by indices of classes, if none is wrong."""
        return judge_labels(self.log_joint(log_densities, self.choice.scale), labels)

    def judge_by_noise(
        self, log_densities: Tensor, labels: Tensor, noise: LabelNoise | None
    ) -> tuple[LabelVerdict, tuple[Tensor, Tensor]]:
        """What is thought of labels that may be wrong, and their `likeliest_classes`."""
        joint = self.log_joint(log_densities, self.choice.scale if noise is None else noise.scale)
        likeliest = likeliest_classes(joint)
        if noise is None:
            return judge_labels(joint, labels), likeliest
        transitions = noise.transitions_of(log_densities, labels, self.work)
        return judge_labels(joint, labels, transitions), likeliest


def samples_at_once(rule: Rule) -> int:
    """Number of samples whose products with all classes are computed at a time."""
    runs, device = rule.densities.runs, rule.densities.mean.device
    most = PRODUCTS_PER_BLOCK if device.type == "cpu" else DISTANCES_THERE
    return max(1, min(block_rows(device) // runs, most // len(rule.densities.classes)))


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

    Of the sample, from all over the dataset, only the dimensions of the moments are read.
    """
    known = LabelledRows(sample.features[:, : moments.dim], sample.labels, sample.runs)
    choice = likeliest_ridge(known, moments)
    give_back_freed_memory()
    return Rule(fit_densities(moments, choice.ridge, sample.runs, matmul_dtype), choice)


def sum_labels(
    source: BatchSource[Batch], counts: Sequence[int], seen: Tensor, rule: Rule, mapped: FeatureMap
) -> Tensor:
    """Sums for the label noise over the samples seen, ascending. Float64, (classes, classes)."""
    runs, work = rule.densities.runs, Workspace()
    classes = len(rule.densities.classes)

    def sums_of_batch(item: tuple[Batch, int]) -> Tensor:
        batch, first_row = item
        sums = mapped.scale.new_zeros(classes, classes)
        sample = read_batch_samples(source, batch, first_row, seen, runs)
        for block in row_ranges(len(sample.labels), samples_at_once(rule)):
            features = sample.features[block.start * runs : block.stop * runs]
            own = rule.densities.places(sample.labels[block])
            for rows, densities in rule.log_densities(mapped(features, work), own):
                joint = rule.log_joint(densities, SHARPNESS_OF_SUMS * rule.choice.scale)
                add_label_sums(joint, own[rows], sums)
        return sums

    numbered = zip(source.batches(), accumulate(counts[:-1], initial=0), strict=True)
    total = torch.zeros(classes, classes, dtype=torch.float64)
    for sums in map_in_order(sums_of_batch, numbered, num_workers()):
        total += sums
    return total


def fit_label_noise(
    sample: LabelledRows, counted: Tensor, sums: Tensor, rule: Rule, given: Tensor | None = None
) -> LabelNoise | None:
    """The noise of the labels; `counted` and the sums are as for `fit_noise`.

    Where `given` is a label, a person was shown the sample with it and has verified the label that
    the sample has now; -1 elsewhere. Shape (samples,).
    """
    found, places, runs = [], [], sample.runs
    for block in row_ranges(len(sample.labels), samples_at_once(rule)):
        points = sample.features[block.start * runs : block.stop * runs]
        own = rule.densities.places(sample.labels[block])
        places.append(own)
        # Taken from each block before the next one overwrites it.
        found += [each.to(torch.float64, copy=True) for _, each in rule.log_densities(points, own)]
    now, verified = torch.cat(places), None
    before = now
    if given is not None:
        verified = torch.where(given >= 0, now, -1)
        # A class that has lost its last sample explains nothing any more.
        told = torch.isin(given, rule.densities.classes)
        before = torch.where(told, rule.densities.places(given), now)
        counted = torch.where(before == now, counted, 0)
    return fit_noise(
        torch.cat(found),
        rule.densities.log_prior,
        before,
        sums,
        counted,
        rule.choice.scale,
        verified=verified,
    )
