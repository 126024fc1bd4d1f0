"""Relative Mahalanobis distance (RMD): large for a sample far from its class but typical overall.

Larger is harder. Cui et al. (2023), equations 5 to 7, print both distances with a minus sign,
which reverses the order their text describes; the sign here follows the text.

If both covariances are plain, the total covariance is the sum of the covariances within and
between classes, so all directions in which class means do not differ cancel from the difference of
the two distances. RMD is then one squared distance in at most classes - 1 dimensions plus a
constant per class. That is several times cheaper and also more accurate, because two numbers of
the size of the feature dimension are never subtracted; `docs/method.md` has the derivation.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from difficulty_service.base.device_copies import fetch_all, send
from difficulty_service.base.errors import StatisticsError, UnknownLabel
from difficulty_service.base.threads import map_in_order
from difficulty_service.gaussians.discriminant import compute_discriminant
from difficulty_service.gaussians.feature_map import scale_to_unit_length
from difficulty_service.gaussians.gaussian import Gaussians
from difficulty_service.gaussians.products import (
    BATCH_ROWS,
    Projection,
    Workspace,
    argmin,
    block_rows,
    matmul,
    one_thread_per_product,
    project,
    projection,
    row_ranges,
    squared_lengths,
    threads_of,
)

DISTANCES_PER_BLOCK = 1 << 20
"""Approximate number of distances to classes that are compared at a time; they fit into a cache."""


@dataclass(frozen=True)
class Distances:
    """Squared distances of samples, unitless float64 of shape (samples,); larger is harder.

    Attributes:
        md: Distance to the mean of the own class; NaN if that class has fewer than two samples.
        nearest_label: Class with the smallest md among those with at least two samples, int64.
        label_margin: md minus the smallest md of another class; another class fits better if it
            is positive. NaN if there is no other class.
    """

    md: Tensor
    md_agnostic: Tensor
    rmd: Tensor
    nearest_label: Tensor
    label_margin: Tensor

    def columns(self) -> tuple[Tensor, ...]:
        """All attributes, in order."""
        return self.md, self.md_agnostic, self.rmd, self.nearest_label, self.label_margin


@dataclass(frozen=True)
class MahalanobisScorer:
    """Scores samples; made by `relative_mahalanobis`.

    Attributes:
        centre: As for `Gaussians`. Shape (dim,).
        mean: Mean of all samples. Shape (dim,).
        discriminant: Map to the space of the class points; None where that is the whitened space.
        agnostic: Whitening map of the covariance of all samples; None if not needed.
        class_points: Class means in the discriminant space. Shape (classes, rank).
        class_norms: Squared distance of each class mean from the mean of all samples; infinite for
            a class with fewer than two samples. Shape (classes,).
        class_constants: RMD minus the squared distance in that space. Shape (classes,).
    """

    centre: Tensor | None
    mean: Tensor
    whitening: Projection
    discriminant: Projection | None
    agnostic: Projection | None
    class_points: Tensor
    class_norms: Tensor
    class_constants: Tensor

    def rmd(self, features: Tensor, labels: Tensor) -> Tensor:
        """RMD without its two distances, which are not needed for it.

        Args:
            features: Shape (samples, dim).
            labels: Class indices, or -1 for a class that was not fitted. Shape (samples,).

        Returns:
            RMD, larger is harder; NaN if the own class has fewer than two samples.
            Shape (samples,), float64.

        Raises:
            UnknownLabel: A label is outside -1 to classes - 1.
        """
        return self._in_batches(lambda *block: (self.rmd_of_block(*block),), features, labels)[0]

    def rmd_of_block(self, features: Tensor, labels: Tensor, work: Workspace) -> Tensor:
        """`rmd` of a block of at most BLOCK_ROWS rows, which stays in the processor's cache.

        Features in the buffer of `work` are overwritten, and labels are not checked.
        """
        if self.discriminant is None:
            return self.distances_of_block(features, labels, work).rmd
        points = self._project(self.discriminant, "points", self._centred(features, work), work)
        squared = squared_lengths(self._from_own_class(points, labels, work)).double()
        return self._mask_unfitted(squared + self.class_constants[labels.clamp(min=0)], labels)

    def distances(self, features: Tensor, labels: Tensor) -> Distances:
        """Distances, RMD and nearest classes of samples; args, shapes and errors as for `rmd`."""
        columns = self._in_batches(
            lambda *block: self.distances_of_block(*block).columns(), features, labels
        )
        return Distances(*columns)

    def distances_of_block(self, features: Tensor, labels: Tensor, work: Workspace) -> Distances:
        """As `distances`, for a block; see `rmd_of_block`."""
        centred = self._centred(features, work)
        whitened = self._project(self.whitening, "whitened", centred, work)
        points = whitened
        if self.discriminant is not None:
            points = self._project(self.discriminant, "points", centred, work)
        in_discriminant_space = squared_lengths(self._from_own_class(points, labels, work)).double()
        in_discriminant_space += self.class_constants[labels.clamp(min=0)]
        if self.agnostic is None:
            lengths = squared_lengths(whitened).double(), squared_lengths(points).double()
            md_agnostic = (lengths[0] - lengths[1]).clamp_(min=0)
            rmd = self._mask_unfitted(in_discriminant_space, labels)
            md = (md_agnostic + rmd).clamp_(min=0)
        else:
            unlabelled = self._project(self.agnostic, "agnostic", centred, work)
            md_agnostic = squared_lengths(unlabelled).double()
            md = self._mask_unfitted(in_discriminant_space, labels)
            rmd = md - md_agnostic
        return Distances(md, md_agnostic, rmd, *self._compare_classes(points, labels, work))

    def _compare_classes(
        self, points: Tensor, labels: Tensor, work: Workspace
    ) -> tuple[Tensor, Tensor]:
        """Nearest class and label margin of each sample; see `Distances`."""
        nearest, margins = [], []
        num_classes = len(self.class_norms)
        rows = max(1, DISTANCES_PER_BLOCK // num_classes)
        half_norms = self.class_norms / 2
        for block, own in zip(points.split(rows), labels.split(rows), strict=True):
            # Half the squared distance, without the term that does not depend on the class.
            relative = work.matrix("relative", len(block), num_classes, points)
            matmul(block, self.class_points.T, out=relative)
            torch.sub(half_norms, relative, out=relative)
            nearest.append(argmin(relative))
            column = own.clamp(min=0)[:, None]
            own_distance = relative.gather(1, column)[:, 0]
            smallest_other = relative.scatter_(1, column, torch.inf).amin(dim=1)
            margin = 2 * (own_distance.double() - smallest_other.double())
            margins.append(torch.where(torch.isfinite(margin) & (own >= 0), margin, torch.nan))
        return torch.cat(nearest), torch.cat(margins)

    def _centred(self, features: Tensor, work: Workspace) -> Tensor:
        """Features minus the mean, scaled to unit length before where that is how to see them."""
        if self.centre is None:
            return work.centred(features, self.mean)
        return scale_to_unit_length(features, self.centre).to(self.mean.dtype).sub_(self.mean)

    def _from_own_class(self, points: Tensor, labels: Tensor, work: Workspace) -> Tensor:
        """Points minus the mean of their own class."""
        means = work.matrix("means", points.shape[0], points.shape[1], points)
        torch.index_select(self.class_points, 0, labels.clamp(min=0), out=means)
        return torch.sub(points, means, out=means)

    def _mask_unfitted(self, values: Tensor, labels: Tensor) -> Tensor:
        """Replaces values by NaN where the class was fitted to fewer than two samples."""
        fitted = torch.isfinite(self.class_norms)[labels.clamp(min=0)] & (labels >= 0)
        return torch.where(fitted, values, torch.nan)

    def _project(self, linear: Projection, name: str, rows: Tensor, work: Workspace) -> Tensor:
        return linear.apply(rows, work.matrix(name, len(rows), linear.rank, self.mean))

    def _in_batches(
        self,
        function: Callable[[Tensor, Tensor, Workspace], tuple[Tensor, ...]],
        features: Tensor,
        labels: Tensor,
    ) -> list[Tensor]:
        self._check(features, labels)
        labels = send(labels.long(), features.device)
        work = Workspace()
        num_rows = block_rows(features.device)

        def score_batch(rows: slice) -> list[Tensor]:
            blocks = zip(features[rows].split(num_rows), labels[rows].split(num_rows), strict=True)
            return concatenate(function(*block, work) for block in blocks)

        batch_rows = max(BATCH_ROWS, num_rows)
        ranges = list(row_ranges(len(features), batch_rows)) or [slice(0, 0)]
        with one_thread_per_product():
            if len(ranges) == 1:  # starting a thread takes longer than scoring a few rows
                columns = score_batch(ranges[0])
            else:
                workers = threads_of(features.device)
                columns = concatenate(map_in_order(score_batch, ranges, workers))
            return fetch_all(columns)

    def _check(self, features: Tensor, labels: Tensor) -> None:
        if features.ndim != 2 or features.shape[1] != len(self.mean):  # noqa: PLR2004
            raise StatisticsError(
                f"features have shape {tuple(features.shape)}, but the Gaussians were fitted to "
                f"{len(self.mean)} dimensions"
            )
        num_classes = len(self.class_norms)
        is_unknown = (labels < -1) | (labels >= num_classes)
        if is_unknown.any():
            raise UnknownLabel(
                f"labels {labels[is_unknown].unique().tolist()} are not among the {num_classes} "
                "fitted classes"
            )


def concatenate(groups: Iterable[Iterable[Tensor]]) -> list[Tensor]:
    """Concatenates groups of rows, each given as columns, column by column."""
    return [torch.cat(column) for column in zip(*groups, strict=True)]


@one_thread_per_product()
def relative_mahalanobis(
    gaussians: Gaussians, device: torch.device = torch.device("cpu")
) -> MahalanobisScorer:
    """Prepares the scorer of fitted Gaussians, with the matmul dtype of the fit."""
    dtype = gaussians.matmul_dtype
    means = gaussians.class_means - gaussians.mean
    usable = gaussians.samples_per_class > 1
    means[~usable] = 0
    whitened = project(gaussians.within.whitening, means)
    norms = whitened.square().sum(dim=1).masked_fill(~usable, torch.inf)
    if gaussians.within.plain and gaussians.agnostic.plain:
        fitted = compute_discriminant(gaussians, whitened, norms)
        points, constants = fitted.class_points, fitted.class_constants
        discriminant = projection(fitted.linear_map, dtype, device)
        agnostic = None
    else:
        points, constants, discriminant = whitened, torch.zeros(len(means)).double(), None
        agnostic = projection(gaussians.agnostic.whitening, dtype, device)
    centre = gaussians.centre
    return MahalanobisScorer(
        centre=None if centre is None else send(centre, device),
        mean=send(gaussians.mean.to(dtype), device),
        whitening=projection(gaussians.within.whitening, dtype, device),
        discriminant=discriminant,
        agnostic=agnostic,
        class_points=send(points.to(dtype), device),
        class_norms=send(norms.to(dtype), device),
        class_constants=send(constants, device),
    )
