"""Fitting chooses the dtype of its products, and parts give the same result as the whole."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest
import sklearn.covariance
import torch
from torch import Tensor

from difficulty_service.gaussians.batches import TensorBatches
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit, fit_batches
from difficulty_service.gaussians.products import Workspace


@dataclass
class ManyBlocks:
    """A source of batches that hold several blocks each."""

    features: Tensor
    labels: Tensor
    device = torch.device("cpu")

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.labels.split(700), self.features.split(700), strict=True)

    def read(
        self,
        batch: tuple[Tensor, Tensor],
        work: Workspace,  # noqa: ARG002
    ) -> tuple[Tensor, Iterable[Tensor]]:
        labels, features = batch
        return labels, features.split(100)


def make_features(smallest_scale: float = 1.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    scales = torch.logspace(0, torch.tensor(smallest_scale).log10().item(), 6).double()
    rotation = torch.linalg.qr(torch.randn(6, 6, generator=generator).double())[0]
    features = (torch.randn(4000, 6, generator=generator).double() * scales) @ rotation
    return features, torch.arange(4000) % 5


def test_parts_give_the_gaussians_of_the_whole() -> None:
    features, labels = make_features()
    whole = fit(features, labels, 5)

    parts = fit_batches(ManyBlocks(features, labels), features, 5, FitOptions())

    torch.testing.assert_close(
        parts.within.whitening, whole.within.whitening, rtol=1e-12, atol=1e-12
    )
    torch.testing.assert_close(parts.class_means, whole.class_means, rtol=1e-12, atol=1e-12)


def test_a_block_may_end_between_the_rows_of_a_sample() -> None:
    features, _ = make_features()
    labels = (torch.arange(800) % 5).repeat_interleave(5)
    options = FitOptions(shrinkage="leave-one-out", runs=5)

    divided = fit(features, labels, 5, options)  # into blocks of 1,024 rows

    undivided = fit_batches(ManyBlocks(features, labels), features, 5, options)
    assert divided.within.ridge == pytest.approx(undivided.within.ridge, rel=1e-9)
    assert divided.within.ridge > 0


@pytest.mark.parametrize(
    ("smallest_scale", "matmul_dtype"), [(0.1, torch.float32), (1e-4, torch.float64)]
)
def test_ill_conditioned_features_get_float64_products(
    smallest_scale: float, matmul_dtype: torch.dtype
) -> None:
    features, labels = make_features(smallest_scale)

    gaussians = fit(features.float(), labels, 5)

    assert gaussians.matmul_dtype == matmul_dtype


def test_a_float32_fit_with_an_ill_conditioned_result_is_repeated_in_float64() -> None:
    features, labels = make_features(1e-4)
    misleading_pilot = torch.randn(100, 6, generator=torch.Generator().manual_seed(0))

    gaussians = fit_batches(
        TensorBatches(features.float(), labels), misleading_pilot, 5, FitOptions()
    )

    assert gaussians.matmul_dtype == torch.float64


def test_float64_features_get_float64_products() -> None:
    assert fit(*make_features(), 5).matmul_dtype == torch.float64


def test_a_chosen_dtype_is_used_even_for_ill_conditioned_features() -> None:
    gaussians = fit(*make_features(1e-4), 5, FitOptions(matmul_dtype="float32"))

    assert gaussians.matmul_dtype == torch.float32


def test_ledoit_wolf_equals_scikit_learn_on_features_minus_their_class_means() -> None:
    features, labels = make_features()
    centred = features.clone()
    for label in range(5):
        centred[labels == label] -= centred[labels == label].mean(dim=0)

    gaussians = fit(features, labels, 5, FitOptions(shrinkage="ledoit-wolf"))

    _, within = sklearn.covariance.ledoit_wolf(centred.numpy(), assume_centered=True)
    _, agnostic = sklearn.covariance.ledoit_wolf(features.numpy())
    assert gaussians.within.intensity == pytest.approx(within, rel=1e-8)
    assert gaussians.agnostic.intensity == pytest.approx(agnostic, rel=1e-8)
