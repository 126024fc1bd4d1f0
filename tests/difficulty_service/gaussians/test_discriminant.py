"""Both forms of the discriminant give the same RMD."""

from dataclasses import replace

import torch
from torch import Tensor

from difficulty_service.gaussians.discriminant import Discriminant, compute_discriminant
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit
from difficulty_service.gaussians.gaussian import Gaussians

DIM, CLASSES = 6, 30


def make_gaussians(directions: int) -> Gaussians:
    """Classes whose means differ in the first few directions only."""
    generator = torch.Generator().manual_seed(5)
    labels = torch.arange(3000) % CLASSES
    centres = torch.zeros(CLASSES, DIM, dtype=torch.float64)
    centres[:, :directions] = 2 * torch.randn(CLASSES, directions, generator=generator).double()
    noise = torch.randn(len(labels), DIM, generator=generator, dtype=torch.float64)
    features = noise + centres[labels]
    for label in range(CLASSES):  # exactly no difference in the other directions
        rows = labels == label
        features[rows] += centres[label] - features[rows].mean(dim=0)
    return fit(features, labels, CLASSES, FitOptions(matmul_dtype="float32"))


def discriminant_of(gaussians: Gaussians) -> Discriminant:
    whitened = (gaussians.class_means - gaussians.mean) @ gaussians.within.whitening.T
    return compute_discriminant(gaussians, whitened, whitened.square().sum(dim=1))


def rmd_by(discriminant: Discriminant, offset: Tensor, label: int) -> Tensor:
    distances = discriminant.linear_map @ offset - discriminant.class_points[label]
    return distances.square().sum() + discriminant.class_constants[label]


def squared_mahalanobis(feature: Tensor, mean: Tensor, whitening: Tensor) -> Tensor:
    """The textbook formula, with an explicit precision matrix."""
    precision = whitening.T @ whitening
    return (feature - mean) @ precision @ (feature - mean)


def test_more_classes_than_dimensions_have_a_cheaper_form_of_the_same_map() -> None:
    gaussians = make_gaussians(DIM)
    options = replace(gaussians.options, matmul_dtype="float64")
    offset = torch.arange(float(DIM)).double()
    feature = gaussians.mean + offset

    cheap = discriminant_of(gaussians)
    careful = discriminant_of(replace(gaussians, options=options))

    own = squared_mahalanobis(feature, gaussians.class_means[7], gaussians.within.whitening)
    agnostic = squared_mahalanobis(feature, gaussians.mean, gaussians.agnostic.whitening)
    torch.testing.assert_close(rmd_by(cheap, offset, 7), own - agnostic)
    torch.testing.assert_close(rmd_by(careful, offset, 7), own - agnostic)
    assert torch.equal(cheap.linear_map, cheap.linear_map.triu())


def test_the_map_drops_directions_in_which_classes_do_not_differ() -> None:
    gaussians = make_gaussians(2)

    discriminant = discriminant_of(gaussians)

    assert discriminant.linear_map.shape == (2, DIM)
    assert discriminant.class_points.shape == (CLASSES, 2)


def test_the_map_is_upper_trapezoidal() -> None:
    linear_map = discriminant_of(make_gaussians(4)).linear_map

    torch.testing.assert_close(linear_map, linear_map.triu())
