"""RMD: golden numbers, invariants, small and unknown classes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import StatisticsError, UnknownLabel
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit
from difficulty_service.scorers.mahalanobis import MahalanobisScorer, relative_mahalanobis
from difficulty_service.scorers.rmd_reference import rmd_reference

GOLDEN = np.load(Path(__file__).parents[2] / "data" / "rmd.npz")
NUM_CLASSES = 5


def golden(name: str) -> Tensor:
    return torch.from_numpy(GOLDEN[name])


def make_blobs(rows: int = 600, dim: int = 5, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Well separated classes."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % classes
    centres = 8 * torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    return centres[labels] + torch.randn(rows, dim, generator=generator).double(), labels


def fitted(
    features: Tensor, labels: Tensor, classes: int = 3, request: FitOptions | None = None
) -> MahalanobisScorer:
    return relative_mahalanobis(fit(features, labels, classes, request or FitOptions("none")))


def test_distances_match_the_golden_numbers() -> None:
    features, labels = golden("X"), golden("y")

    distances = fitted(features, labels, NUM_CLASSES).distances(features, labels)

    close = {"rtol": 1e-8, "atol": 1e-8}
    torch.testing.assert_close(distances.md, golden("np_pooled__md_own"), **close)
    torch.testing.assert_close(distances.md_agnostic, golden("np__md_agn"), **close)
    torch.testing.assert_close(distances.rmd, golden("np_pooled__rmd_own"), **close)


def test_nearest_label_and_margin_match_the_golden_distances_to_all_classes() -> None:
    features, labels = golden("X"), golden("y")
    to_all = golden("np_pooled__md_all")
    others = to_all.scatter(1, labels[:, None], torch.inf)

    distances = fitted(features, labels, NUM_CLASSES).distances(features, labels)

    assert torch.equal(distances.nearest_label, to_all.argmin(dim=1))
    margin = to_all.gather(1, labels[:, None])[:, 0] - others.amin(dim=1)
    torch.testing.assert_close(distances.label_margin, margin, rtol=1e-8, atol=1e-8)


def test_new_samples_match_the_golden_distances_of_the_nearest_class() -> None:
    features = golden("X_test")
    scorer = fitted(golden("X"), golden("y"), NUM_CLASSES)
    nearest = scorer.distances(features, torch.zeros(len(features))).nearest_label

    distances = scorer.distances(features, nearest)

    torch.testing.assert_close(distances.md, golden("np_pooled__test_md_min"), rtol=1e-8, atol=0)
    torch.testing.assert_close(
        distances.rmd, golden("np_pooled__test_rmd_min"), rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("case", ["dup_dim", "n_lt_d"])
def test_singular_covariances_give_the_golden_pseudo_inverse_distances(case: str) -> None:
    features, labels = golden(f"degenerate_{case}__X"), golden(f"degenerate_{case}__y")
    request = FitOptions("none")

    distances = fitted(features, labels, int(labels.max()) + 1, request).distances(features, labels)

    close = {"rtol": 1e-8, "atol": 1e-8}
    torch.testing.assert_close(distances.md, golden(f"degenerate_{case}__np_pinv_md_own"), **close)
    torch.testing.assert_close(
        distances.rmd, golden(f"degenerate_{case}__np_pinv_rmd_own"), **close
    )


@pytest.mark.parametrize(("dim", "classes"), [(32, 5), (6, 40), (20, 1)])
def test_rmd_alone_is_the_difference_of_the_two_distances(dim: int, classes: int) -> None:
    features, labels = make_blobs(900, dim, classes)
    scorer = fitted(features, labels, classes)

    distances = scorer.distances(features, labels)

    torch.testing.assert_close(scorer.rmd(features, labels), distances.rmd)
    torch.testing.assert_close(distances.md - distances.md_agnostic, distances.rmd)


@pytest.mark.parametrize("classes", [3, 40])
def test_float32_products_agree_with_float64(classes: int) -> None:
    features, labels = make_blobs(2000, 12, classes)
    exact = fitted(features, labels, classes).rmd(features, labels)

    rounded = fitted(features.float(), labels, classes).rmd(features.float(), labels)

    torch.testing.assert_close(rounded, exact, rtol=1e-4, atol=2e-3)


def test_the_mean_rmd_of_the_samples_fitted_on_is_zero() -> None:
    features, labels = make_blobs(dim=30)

    rmd = fitted(features, labels).rmd(features, labels)

    assert abs(float(rmd.mean())) < 1e-9


def test_a_mislabelled_sample_scores_harder_than_the_same_sample_labelled_right() -> None:
    features, labels = make_blobs()
    scorer = fitted(features, labels)

    right = scorer.rmd(features, labels)
    wrong = scorer.rmd(features, (labels + 1) % 3)

    assert (wrong > right).all()
    assert (scorer.distances(features, (labels + 1) % 3).label_margin > 0).all()


@pytest.mark.parametrize("classes", [3, 12])
def test_scores_ignore_an_invertible_linear_map_of_the_features(classes: int) -> None:
    features, labels = make_blobs(classes=classes)
    linear_map = torch.eye(5).double() + torch.ones(5, 5).double().triu(1)
    mapped = features @ linear_map

    scores = fitted(features, labels, classes).rmd(features, labels)

    torch.testing.assert_close(fitted(mapped, labels, classes).rmd(mapped, labels), scores)


def test_shrunk_covariances_follow_the_textbook_formula() -> None:
    features, labels = make_blobs()
    gaussians = fit(features, labels, 3, FitOptions(shrinkage=0.3))

    distances = relative_mahalanobis(gaussians).distances(features, labels)

    own = features - gaussians.class_means[labels]
    covariance = own.T @ own / len(own)
    covariance = 0.7 * covariance + 0.3 * covariance.trace() / 5 * torch.eye(5).double()
    expected = ((own @ torch.linalg.inv(covariance)) * own).sum(dim=1)
    torch.testing.assert_close(distances.md, expected)


def test_a_class_of_one_sample_has_no_score_but_the_others_do() -> None:
    features, labels = make_blobs()
    labels[7] = 3

    distances = fitted(features, labels, 4).distances(features, labels)

    assert distances.rmd.isnan().nonzero().flatten().tolist() == [7]
    assert distances.md.isnan().nonzero().flatten().tolist() == [7]
    assert not distances.md_agnostic.isnan().any()
    assert not (distances.nearest_label == 3).any()


def test_a_class_that_was_not_fitted_has_no_score_but_a_nearest_label() -> None:
    features, labels = make_blobs()
    scorer = fitted(features, labels)
    known = scorer.distances(features[:1], labels[:1])

    distances = scorer.distances(features[:1], torch.tensor([-1]))

    assert distances.rmd.isnan().all()
    assert distances.label_margin.isnan().all()
    torch.testing.assert_close(distances.md_agnostic, known.md_agnostic)
    assert torch.equal(distances.nearest_label, known.nearest_label)


def test_a_class_without_samples_changes_nothing_for_the_others() -> None:
    features, labels = make_blobs()
    labels = labels * 2

    scores = fitted(features, labels, 6).rmd(features, labels)

    torch.testing.assert_close(scores, fitted(features, labels // 2, 3).rmd(features, labels // 2))


@pytest.mark.parametrize("label", [-2, 3])
def test_labels_out_of_range_are_named(label: int) -> None:
    features, labels = make_blobs()
    scorer = fitted(features, labels)

    with pytest.raises(UnknownLabel, match=rf"\[{label}\]"):
        scorer.rmd(features[:1], torch.tensor([label]))


def test_features_of_another_length_are_refused() -> None:
    scorer = fitted(*make_blobs())

    with pytest.raises(StatisticsError, match="fitted to 5 dimensions"):
        scorer.rmd(torch.zeros(2, 4), torch.zeros(2))


def test_zero_samples_give_zero_scores() -> None:
    scorer = fitted(*make_blobs())

    assert scorer.rmd(torch.zeros(0, 5), torch.zeros(0)).shape == (0,)


def test_many_batches_give_the_same_distances_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = make_blobs()
    scorer = fitted(features, labels)
    whole = scorer.distances(features, labels)

    monkeypatch.setattr("difficulty_service.scorers.mahalanobis.BATCH_ROWS", 37)
    monkeypatch.setattr("difficulty_service.gaussians.products.BLOCK_ROWS", 10)
    chunked = scorer.distances(features, labels)

    for name in ("md", "md_agnostic", "rmd", "label_margin"):
        torch.testing.assert_close(getattr(chunked, name), getattr(whole, name))


def test_comparing_classes_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = make_blobs()
    scorer = fitted(features, labels)
    whole = scorer.distances(features, labels)

    monkeypatch.setattr("difficulty_service.scorers.mahalanobis.DISTANCES_PER_BLOCK", 10)
    blocks = scorer.distances(features, labels)

    assert torch.equal(blocks.nearest_label, whole.nearest_label)
    torch.testing.assert_close(blocks.label_margin, whole.label_margin)


@pytest.mark.gpu
@pytest.mark.parametrize("matmul_dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [40, 40_000])  # with a ridge, and in several batches
def test_a_gpu_fits_and_scores_as_the_processor_does(rows: int, matmul_dtype: str) -> None:
    features, labels = make_blobs(rows, dim=64, classes=4)
    options = FitOptions(matmul_dtype=matmul_dtype)
    here = fit(features.float(), labels, 4, options)
    there = fit(features.float().cuda(), labels, 4, options)

    ours = relative_mahalanobis(here).distances(features.float(), labels)
    device = torch.device("cuda")
    theirs = relative_mahalanobis(there, device).distances(features.float().cuda(), labels.cuda())

    torch.testing.assert_close(there.moments.scatter, here.moments.scatter, rtol=1e-5, atol=1e-2)
    for name in ("md", "md_agnostic", "rmd", "label_margin"):
        torch.testing.assert_close(getattr(theirs, name), getattr(ours, name), rtol=1e-3, atol=0.01)
    assert torch.equal(theirs.nearest_label, ours.nearest_label)


@pytest.mark.parametrize(("rows", "dim", "classes"), [(60, 2, 2), (500, 8, 3), (400, 30, 11)])
def test_the_fast_form_is_equal_to_the_plain_one(rows: int, dim: int, classes: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    labels = torch.arange(rows) % classes
    spread = torch.randn(dim, dim, generator=generator)
    features = (torch.randn(rows, dim, generator=generator) @ spread).double()
    features += labels[:, None] % 3

    rmd = fitted(features, labels, classes).rmd(features, labels)

    torch.testing.assert_close(rmd, rmd_reference(features, labels), rtol=1e-8, atol=1e-8)
