"""Suspicion of labels: planted errors are found, and every number is that of plain refits."""

import math
from dataclasses import replace

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from difficulty_service.base.errors import StatisticsError
from difficulty_service.gaussians.batches import TensorBatches
from difficulty_service.gaussians.fitting import fit
from difficulty_service.gaussians.label_noise import SHARPNESS_OF_SUMS, log_class_prior
from difficulty_service.gaussians.products import Workspace
from difficulty_service.scorers import suspicion
from difficulty_service.scorers.mahalanobis import relative_mahalanobis
from difficulty_service.scorers.suspicion import (
    POSTERIORS,
    LabelPosteriors,
    PosteriorOptions,
    fit_posteriors,
)
from tests.naive_noise import naive_rates

DIM, CLASSES = 6, 3
OPTIONS = PosteriorOptions(POSTERIORS, CLASSES, matmul_dtype=torch.float64)


def samples_of_classes(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Overlapping classes of two clusters each, on opposite sides of the mean."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    sides = torch.randint(0, 2, (count,), generator=generator) * 2.0 - 1
    features = torch.randn(count, DIM, generator=generator, dtype=torch.float64)
    features[torch.arange(count), labels] += 3.5 * sides
    features[:, 3] += 0.5 * labels
    return features + 7, labels


def few_of_many_dimensions() -> tuple[Tensor, Tensor]:
    """Fewer samples than dimensions, which differ much in their variance."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(24) % CLASSES
    spread = torch.linspace(2, 0.05, 100, dtype=torch.float64)
    features = spread * torch.randn(24, 100, generator=generator, dtype=torch.float64)
    features[torch.arange(24), labels] += 4
    return features, labels


def flip_some(labels: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Labels of which some are those of the next class, and which those are."""
    generator = torch.Generator().manual_seed(9)
    wrong = torch.rand(len(labels), generator=generator) < share
    return torch.where(wrong, (labels + 1) % CLASSES, labels), wrong


def fitted(
    features: Tensor, labels: Tensor, options: PosteriorOptions = OPTIONS
) -> LabelPosteriors:
    return fit_posteriors(TensorBatches(features, labels), options)


def naive_log_joint(
    mapped: Tensor, labels: Tensor, ridge: float, scale: float
) -> list[list[float]]:
    """Log-densities by a fit to all other samples, times a scale, plus the log-priors."""
    size, dim = mapped.shape
    variance = (mapped - mapped.mean(dim=0)).square().mean()
    added = ridge * variance * size * torch.eye(dim, dtype=torch.float64)
    prior = log_class_prior(labels.bincount()).tolist()
    rows = []
    for sample in range(size):
        kept = torch.arange(size) != sample
        means = torch.stack(
            [mapped[kept & (labels == label)].mean(dim=0) for label in range(CLASSES)]
        )
        offsets = mapped[kept] - means[labels[kept]]
        precision = torch.linalg.inv((offsets.T @ offsets + added) / (size - 1))
        gaps = mapped[sample] - means
        distances = [float(gap @ precision @ gap) for gap in gaps]
        row = [-scale * distance / 2 + prior[label] for label, distance in enumerate(distances)]
        # So that the exponentials of a row do not all vanish.
        rows.append([value - max(row) for value in row])
    return rows


def softmax(row: list[float]) -> list[float]:
    total = sum(map(math.exp, row))
    return [math.exp(value) / total for value in row]


@pytest.mark.parametrize("few", [False, True])
def test_suspicion_is_that_of_refits_and_loops(*, few: bool) -> None:
    features, labels = few_of_many_dimensions() if few else samples_of_classes(60)
    labels, _ = flip_some(labels, 0.1)
    posteriors = fitted(features, labels)
    chosen = posteriors.description["suspicion"]
    mapped = posteriors.suspicion_map(features, Workspace())
    assert chosen["landmarks"] == (0 if few else 15)
    wrong, seen = chosen["noise_wrong"], chosen["noise_seen"]
    counted, joint = (
        naive_log_joint(mapped, labels, chosen["ridge"], scale)
        for scale in (SHARPNESS_OF_SUMS * chosen["scale"], chosen["noise_scale"])
    )
    counted = [softmax(row) for row in counted]
    prior = log_class_prior(labels.bincount()).exp().tolist()
    rates = naive_rates(counted, labels.tolist(), [1.0] * len(labels))

    columns = posteriors.columns(features, labels)

    for sample, label in enumerate(labels.tolist()):
        odds = []
        for right in range(CLASSES):
            # How often samples of the class, without this one, have each other label.
            weights = [
                0.0 if given == right else prior[given] / (1 - prior[right])
                for given in range(CLASSES)
            ]
            by_chance = weights[label]
            for other, given in enumerate(labels.tolist()):
                if other != sample and given != right:
                    weights[given] += counted[other][right]
            followed = rates[right] * weights[label] / sum(weights)
            if right == label:
                followed = 1 - rates[right]
            share = wrong * ((1 - seen) * by_chance + seen * followed)
            share += (1 - wrong) * (right == label)
            odds.append(math.exp(joint[sample][right]) * share)
        others = sum(value for right, value in enumerate(odds) if right != label)
        assert columns["suspicion"][sample] == pytest.approx(
            math.log(others / odds[label]), rel=1e-6
        )
        assert columns["p_wrong"][sample] == pytest.approx(others / sum(odds))
        odds[label] = 0
        assert columns["suggested_label"][sample] == odds.index(max(odds))


def test_agree_is_the_posterior_of_refits_without_landmarks() -> None:
    features, labels = samples_of_classes(60)
    posteriors = fitted(features, labels)
    chosen = posteriors.description["agree"]
    mapped = posteriors.feature_map(features, Workspace())[:, :DIM]
    joint = naive_log_joint(mapped, labels, chosen["ridge"], chosen["scale"])

    agree = posteriors.columns(features, labels)["agree"]

    for sample, label in enumerate(labels.tolist()):
        others = sum(math.exp(value) for value in joint[sample]) - math.exp(joint[sample][label])
        expected = math.log(others) - joint[sample][label]
        assert agree[sample] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_agree_is_the_same_with_and_without_suspicion() -> None:
    features, labels = samples_of_classes(90)

    both, alone = (
        fitted(features, labels, replace(OPTIONS, names=names)).columns(features, labels)
        for names in (POSTERIORS, ("agree",))
    )

    assert list(alone) == ["agree"]
    torch.testing.assert_close(both["agree"], alone["agree"], rtol=1e-9, atol=1e-9)


def test_planted_errors_rank_higher_than_by_the_label_margin() -> None:
    features, right = samples_of_classes(1500)
    labels, wrong = flip_some(right, 0.15)
    margin = relative_mahalanobis(fit(features, labels, CLASSES)).distances(features, labels)

    columns = fitted(features, labels).columns(features, labels)

    found = roc_auc_score(wrong, columns["suspicion"])
    assert found > 0.95
    assert found > roc_auc_score(wrong, margin.label_margin) + 0.05
    assert (columns["suggested_label"][wrong] == right[wrong]).double().mean() > 0.95
    assert columns["p_wrong"][wrong].mean() > 0.8
    assert columns["p_wrong"][~wrong].mean() < 0.05


@pytest.mark.slow
def test_noise_from_a_sample_hardly_differs_from_that_of_all_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features, labels = samples_of_classes(2500)
    labels, wrong = flip_some(labels, 0.15)
    everything = fitted(features, labels, replace(OPTIONS, names=("suspicion",)))
    monkeypatch.setattr(suspicion, "NOISE_SAMPLES", 600)

    sampled = fitted(features, labels, replace(OPTIONS, names=("suspicion",)))

    assert everything.description["suspicion"]["noise_samples"] == 2500
    assert sampled.description["suspicion"]["noise_samples"] == 600
    areas = [
        roc_auc_score(wrong, each.columns(features, labels)["suspicion"])
        for each in (sampled, everything)
    ]
    assert areas[0] == pytest.approx(areas[1], abs=1e-3)
    assert areas[0] != areas[1]


def planted_errors(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Overlapping classes, labels of which a tenth is that of the next class, and which those."""
    features, labels = samples_of_classes(count)
    given, wrong = flip_some(labels, 0.1)
    return features.float(), given, wrong


LARGE = replace(OPTIONS, names=("suspicion",), matmul_dtype=torch.float32)


@pytest.fixture
def few_landmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few that some thousand samples are a large dataset."""
    monkeypatch.setattr(suspicion, "LANDMARKS", 40)


@pytest.mark.usefixtures("few_landmarks")
@pytest.mark.parametrize(("count", "covariance_samples"), [(4000, None), (20_000, 5000 + 256 * 46)])
def test_a_large_dataset_has_the_planted_errors_found_as_by_the_exact_form(
    monkeypatch: pytest.MonkeyPatch, count: int, covariance_samples: int | None
) -> None:
    features, labels, wrong = planted_errors(count)

    large = fitted(features, labels, LARGE)
    monkeypatch.setattr(suspicion, "is_large", lambda *_: False)
    exact = fitted(features, labels, LARGE)

    described = large.description["suspicion"]
    assert described["own_distance"] > 0
    assert described.get("covariance_samples") == covariance_samples
    assert not {"own_distance", "covariance_samples"} & set(exact.description["suspicion"])
    found, expected = (each.columns(features, labels) for each in (large, exact))
    areas = [roc_auc_score(wrong, each["suspicion"]) for each in (found, expected)]
    assert areas[0] == pytest.approx(areas[1], abs=5e-4)
    assert areas[1] > 0.95
    assert float(found["p_wrong"].sum()) == pytest.approx(
        float(expected["p_wrong"].sum()), rel=0.02
    )
    doubted = expected["suspicion"] > 0
    assert found["suggested_label"][doubted].equal(expected["suggested_label"][doubted])
    assert not found["suspicion"].equal(expected["suspicion"])


@pytest.mark.usefixtures("few_landmarks")
def test_a_large_dataset_has_the_same_bytes_again_with_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features, labels, _ = planted_errors(20_000)
    found = []
    for threads in (1, 3):
        for module in ("products", "label_rule"):
            monkeypatch.setattr(
                f"difficulty_service.gaussians.{module}.num_workers",
                lambda threads=threads: threads,
            )
        found.append(fitted(features, labels, LARGE).columns(features, labels))

    for name, values in found[0].items():
        assert torch.equal(values, found[1][name]), name


@pytest.mark.usefixtures("few_landmarks")
def test_a_sample_alone_in_its_class_is_not_judged_among_many_either() -> None:
    features, labels, _ = planted_errors(4000)
    labels[0] = CLASSES
    features[0] = features[3] + 0.01

    posteriors = fitted(features, labels, replace(LARGE, num_classes=CLASSES + 1))
    columns = posteriors.columns(features, labels)

    assert "own_distance" in posteriors.description["suspicion"]
    assert columns["suspicion"].isnan().nonzero().flatten().tolist() == [0]
    assert columns["p_first"].isnan().nonzero().flatten().tolist() == [0]
    assert int(columns["suggested_label"][1:].max()) < CLASSES


@pytest.mark.parametrize(
    ("samples", "classes", "large"),
    [
        (24 * 1536, 96, True),
        (24 * 1536 - 1, 96, False),
        (50_000, 1000, False),
        (1_281_167, 1000, True),
    ],
)
def test_a_dataset_is_large_by_its_samples_for_each_dimension_and_in_each_class(
    samples: int, classes: int, *, large: bool
) -> None:
    assert suspicion.is_large(samples, classes, 1536) == large


@pytest.mark.parametrize(
    ("samples", "dim", "class_sizes", "enough"),
    [
        (200_000, 1536, [50] * 100, 64 * 1536),
        (200_000, 1536, [200] * 25, 32 * 8000),
        (200_000, 1536, [2500, *[25] * 100], 32 * 50_500),
        (2_000_000, 1536, [500] * 10, 256 * 1536),
    ],
)
def test_a_covariance_is_of_so_many_samples_that_class_means_are_the_less_certain(
    samples: int, dim: int, class_sizes: list[int], enough: int
) -> None:
    labels = torch.arange(len(class_sizes)).repeat_interleave(torch.tensor(class_sizes))

    found = suspicion.covariance_samples(samples, dim, labels)

    assert found == min(enough, 256 * dim)


@pytest.mark.slow
@pytest.mark.usefixtures("few_landmarks")
def test_with_many_classes_fewer_samples_of_the_covariance_find_the_same_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    classes = 60
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(20_000) % classes
    features = torch.randn(20_000, DIM, generator=generator)
    features += 2 * torch.randn(classes, DIM, generator=generator)[labels]
    wrong = torch.rand(20_000, generator=generator) < 0.1
    given = torch.where(wrong, (labels + 1) % classes, labels)
    options = replace(LARGE, num_classes=classes)

    some = fitted(features, given, options)
    monkeypatch.setattr(suspicion, "covariance_samples", lambda *_: 20_000)
    every = fitted(features, given, options)

    # The seeded sample, and 32 samples for each one of a class.
    assert some.description["suspicion"]["covariance_samples"] == pytest.approx(15_800, rel=0.01)
    assert "covariance_samples" not in every.description["suspicion"]
    found, expected = (each.columns(features, given) for each in (some, every))
    areas = [roc_auc_score(wrong, each["suspicion"]) for each in (found, expected)]
    assert areas[0] == pytest.approx(areas[1], abs=5e-4)
    assert areas[1] > 0.8
    assert not found["suspicion"].equal(expected["suspicion"])


@pytest.mark.usefixtures("few_landmarks")
def test_augmented_samples_are_judged_by_the_exact_form_however_many() -> None:
    features, labels, _ = planted_errors(4000)

    posteriors = fitted(
        features.repeat_interleave(2, dim=0),
        labels.repeat_interleave(2),
        replace(LARGE, runs=2),
    )

    assert "own_distance" not in posteriors.description["suspicion"]


def test_a_seed_gives_the_same_numbers_again_and_another_one_other_landmarks() -> None:
    features, labels = samples_of_classes(200)

    first, again, other = (
        fitted(features, labels, replace(OPTIONS, seed=seed)).columns(features, labels)["suspicion"]
        for seed in (0, 0, 1)
    )

    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def test_runs_of_a_sample_are_judged_together() -> None:
    features, labels = samples_of_classes(120)
    repeated, rows = features.repeat_interleave(2, dim=0), labels.repeat_interleave(2)

    once = fitted(features, labels).columns(features, labels)
    twice = fitted(repeated, rows, replace(OPTIONS, runs=2)).columns(repeated, labels)

    assert twice["suspicion"].shape == (120,)
    # Landmarks are chosen among the rows, so that they differ.
    ranks = torch.stack([each["agree"].argsort().argsort().double() for each in (once, twice)])
    assert torch.corrcoef(ranks)[0, 1] > 0.99


def test_a_sample_alone_in_its_class_is_not_judged_and_nothing_looks_like_it() -> None:
    features, labels = samples_of_classes(60)
    labels[0] = CLASSES
    features[0] = features[3] + 0.01  # as near to another sample as can be

    columns = fitted(features, labels, replace(OPTIONS, num_classes=CLASSES + 1)).columns(
        features, labels
    )

    for name in ("suspicion", "p_wrong", "agree"):
        assert columns[name].isnan().nonzero().flatten().tolist() == [0]
    assert int(columns["suggested_label"][1:].max()) < CLASSES


def test_with_a_single_class_no_sample_is_judged() -> None:
    features, labels = samples_of_classes(60)

    columns = fitted(features, torch.zeros_like(labels)).columns(features, 0 * labels)

    for name in ("suspicion", "p_wrong", "agree"):
        assert columns[name].isnan().all()


def test_a_handful_of_samples_needs_no_landmark() -> None:
    features, labels = samples_of_classes(3)

    assert fitted(features, labels).description["suspicion"]["landmarks"] == 0


def test_features_that_are_all_the_same_are_refused() -> None:
    with pytest.raises(StatisticsError, match="the same"):
        fitted(torch.ones(30, DIM), torch.arange(30) % CLASSES)


def test_a_value_that_is_not_finite_is_refused_by_its_row() -> None:
    features, labels = samples_of_classes(60)
    features[17, 2] = torch.inf

    with pytest.raises(StatisticsError, match="row 17"):
        fitted(features, labels)


@pytest.mark.slow
def test_products_in_float32_suffice_where_most_directions_hold_rounding_noise() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(3000) % CLASSES
    features = torch.randn(3000, 2, generator=generator) + labels[:, None]

    coarse, fine = (
        fitted(features, labels, replace(OPTIONS, matmul_dtype=dtype)).columns(features, labels)
        for dtype in (torch.float32, torch.float64)
    )

    ranks = torch.stack([each["suspicion"].argsort().argsort().double() for each in (coarse, fine)])
    assert torch.corrcoef(ranks)[0, 1] > 0.99


def test_few_samples_are_compared_by_unit_vectors_alone_where_labels_are_likelier() -> None:
    posteriors = fitted(*few_of_many_dimensions())

    assert len(posteriors.feature_map.landmarks) == 6
    assert len(posteriors.suspicion_map.landmarks) == 0
    assert posteriors.description["suspicion"]["landmarks"] == 0


def with_wrong_labels(count: int, share: float, apart: float = 7) -> tuple[Tensor, Tensor, Tensor]:
    """Classes so far apart, their labels, of which a share is any other, and which those are."""
    generator = torch.Generator().manual_seed(5)
    right = torch.arange(count) % CLASSES
    features = torch.randn(count, DIM, generator=generator, dtype=torch.float64)
    features[torch.arange(count), right] += apart
    wrong = torch.rand(count, generator=generator) < share
    steps = torch.randint(1, CLASSES, (count,), generator=generator)
    return features, torch.where(wrong, (right + steps) % CLASSES, right), wrong


@pytest.mark.parametrize("share", [0.02, 0.15, 0.3])
def test_the_mean_probability_is_the_share_of_wrong_labels_where_classes_are_far_apart(
    share: float,
) -> None:
    features, labels, wrong = with_wrong_labels(1500, share)

    posteriors = fitted(features, labels)
    columns = posteriors.columns(features, labels)

    planted = float(wrong.double().mean())
    chosen = posteriors.description["suspicion"]
    assert float(columns["p_wrong"].mean()) == pytest.approx(planted, abs=0.005)
    assert chosen["noise_wrong_low"] < planted < chosen["noise_wrong_high"]
    assert ((columns["p_wrong"] > 0.5) == wrong).double().mean() > 0.995
    assert (columns["suspicion"] > 0).equal(columns["p_wrong"] > 0.5)


def test_hardly_anybody_is_accused_where_labels_are_right_but_classes_overlap() -> None:
    features, labels, _ = with_wrong_labels(1500, share=0, apart=3)
    margin = relative_mahalanobis(fit(features, labels, CLASSES)).distances(features, labels)

    posteriors = fitted(features, labels)
    columns = posteriors.columns(features, labels)

    assert (margin.label_margin > 0).sum() > 30
    assert (columns["agree"] > 0).sum() > 30
    assert (columns["p_wrong"] > 0.5).sum() <= 3
    assert posteriors.description["suspicion"]["noise_wrong_low"] < 0.003


def test_the_numbers_of_a_sample_are_the_same_in_any_part_of_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features, labels = samples_of_classes(600)
    labels, _ = flip_some(labels, 0.1)
    whole = fitted(features, labels).columns(features, labels)
    monkeypatch.setattr("difficulty_service.gaussians.batches.summed_rows", lambda _: 170)
    monkeypatch.setattr("difficulty_service.gaussians.label_rule.DISTANCES_IN_CACHE", 50 * CLASSES)

    posteriors = fitted(features, labels)

    parts = [
        posteriors.columns(features[rows], labels[rows]) for rows in torch.arange(600).split(130)
    ]
    for name, values in whole.items():
        together = torch.cat([part[name] for part in parts])
        torch.testing.assert_close(together, values, rtol=1e-5, atol=1e-5, equal_nan=True)
