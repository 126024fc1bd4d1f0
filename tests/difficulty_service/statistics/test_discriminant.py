"""Both forms of the map that keeps what tells classes apart give the same RMD."""

from dataclasses import replace

import torch
from torch import Tensor

from difficulty_service.statistics.discriminant import contrast_of
from difficulty_service.statistics.fitting import FitRequest, fit
from difficulty_service.statistics.gaussian import Gaussians, squared_mahalanobis

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
    return fit(features, labels, CLASSES, FitRequest(products="float32"))


def maps(gaussians: Gaussians) -> tuple[Tensor, Tensor, Tensor]:
    whitened = (gaussians.class_means - gaussians.mean) @ gaussians.within.whitening.T
    return contrast_of(gaussians, whitened, whitened.square().sum(dim=1))


def rmd_by(contrast: tuple[Tensor, Tensor, Tensor], offset: Tensor, label: int) -> Tensor:
    linear, points, constants = contrast
    return (linear @ offset - points[label]).square().sum() + constants[label]


def test_more_classes_than_dimensions_have_a_cheaper_form_of_the_same_map() -> None:
    gaussians = make_gaussians(DIM)
    options = replace(gaussians.options, products=torch.float64)
    offset = torch.arange(float(DIM)).double()
    feature = (gaussians.mean + offset)[None]

    cheap = maps(gaussians)
    careful = maps(replace(gaussians, options=options))

    own = squared_mahalanobis(feature, gaussians.class_means[7], gaussians.within.whitening)
    agnostic = squared_mahalanobis(feature, gaussians.mean, gaussians.agnostic.whitening)
    torch.testing.assert_close(rmd_by(cheap, offset, 7)[None], own - agnostic)
    torch.testing.assert_close(rmd_by(careful, offset, 7)[None], own - agnostic)
    assert torch.equal(cheap[0], cheap[0].triu())


def test_directions_in_which_no_classes_differ_are_left_out_of_the_map() -> None:
    gaussians = make_gaussians(2)

    linear, points, _ = maps(gaussians)

    assert linear.shape == (2, DIM)
    assert points.shape == (CLASSES, 2)


def test_the_map_is_upper_trapezoidal() -> None:
    linear, _, _ = maps(make_gaussians(4))

    torch.testing.assert_close(linear, linear.triu())
