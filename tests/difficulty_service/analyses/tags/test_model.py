"""Tags are judged by Gaussians of features and tags together, each sample left out of the fit."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor

from difficulty_service.analyses.tags.model import (
    GivenTags,
    TagFit,
    TaggedBatches,
    TagRule,
    fit_tags,
    make_rule,
)
from difficulty_service.analyses.tags.tag_errors import TagErrors, fit_errors
from difficulty_service.base.errors import StatisticsError
from difficulty_service.gaussians.batches import TensorBatches
from difficulty_service.gaussians.feature_map import FeatureMap
from difficulty_service.gaussians.moments import accumulate_moments, pilot_of
from difficulty_service.gaussians.products import Workspace

TAGS = 6


@dataclass(frozen=True)
class Tagged:
    """Features, the tags that are right, and those that are given. Each (samples, …)."""

    features: Tensor
    right: Tensor
    has: Tensor

    @property
    def given(self) -> GivenTags:
        return given_of(self.has)

    @property
    def source(self) -> TensorBatches:
        return TensorBatches(self.features, torch.arange(len(self.features)))


def given_of(has: Tensor) -> GivenTags:
    rows, tags = has.nonzero(as_tuple=True)
    starts = torch.cat(
        [torch.zeros(1, dtype=torch.int64), rows.bincount(minlength=len(has)).cumsum(0)]
    )
    return GivenTags(starts, tags, has.shape[1])


def draw(samples: int, wrong: float, missing: float, seed: int = 0) -> Tagged:
    """Samples of which each tag moves the features in a direction of its own."""
    random = np.random.default_rng(seed)
    right = random.random((samples, TAGS)) < np.linspace(0.1, 0.4, TAGS)
    features = random.standard_normal((samples, 12)) + right @ (3.5 * np.eye(TAGS, 12))
    share = right.mean(axis=0) / (1 - right.mean(axis=0))
    has = np.where(
        right, random.random(right.shape) >= missing, random.random(right.shape) < wrong * share
    )
    return Tagged(torch.tensor(features).float(), torch.tensor(right), torch.tensor(has))


@pytest.fixture(scope="module")
def tagged() -> Tagged:
    return draw(1000, wrong=0.05, missing=0.1, seed=1)


@pytest.fixture(scope="module")
def rule(tagged: Tagged) -> TagRule:
    return fit_tags(tagged.source, tagged.given, 0, torch.float32)


def test_the_tags_of_samples_are_those_that_were_given() -> None:
    has = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0]], dtype=torch.bool)

    assert torch.equal(given_of(has).has(torch.tensor([2, 0, 1, 0])), has[[2, 0, 1, 0]])


def test_each_sample_is_judged_as_by_a_fit_without_it() -> None:
    tagged = draw(60, wrong=0.05, missing=0.1)
    plain = FeatureMap(
        tagged.features.double().mean(0), torch.ones(12).double(), torch.empty(0, 12).double(), 1.0
    )
    joined = TaggedBatches(tagged.source, plain, tagged.given, torch.arange(TAGS))
    points = joined.join(tagged.features, torch.arange(60), Workspace()).double()
    moments = accumulate_moments(joined, pilot_of(points), 1, matmul_dtype=torch.float64)
    fit, errors = TagFit(0.1, 0.3, 1.0, 0.0, 0), TagErrors(0.05, 0.1, -1.0, 1.0, 1.0)
    whole = make_rule(joined, moments, fit, errors, torch.float64)

    ((_, judged),) = whole.judge(tagged.features, torch.arange(60))

    for sample in (0, 17, 59):
        expected = naive_log_odds(points.numpy(), sample, fit)
        log_prior = whole.geometry.log_prior(judged.has)[sample].numpy()
        sign = np.where(judged.has[sample], -2, 2)
        found = judged.margin[sample].numpy() / sign  # with these numbers, the evidence itself
        np.testing.assert_allclose(found, expected + log_prior, rtol=1e-6, atol=1e-8)


def naive_log_odds(points: NDArray[np.float64], sample: int, fit: TagFit) -> NDArray[np.float64]:
    """One tag at a time, by the mean and the covariance of all other samples."""
    others = np.delete(points, sample, axis=0)
    whole = np.cov(points.T, bias=True)
    centred = others - others.mean(axis=0)
    # The ridges, and what features do not say on the whole, stay those of all samples.
    covariance = centred.T @ centred / len(points)
    ridges = np.r_[
        np.full(12, fit.ridge * whole.diagonal()[:12].mean()), fit.tag_ridge * whole.diagonal()[12:]
    ]
    found = []
    for tag in range(12, 12 + TAGS):
        rest = np.delete(np.arange(12 + TAGS), tag)
        ours, of_all = (
            np.linalg.solve(of[np.ix_(rest, rest)] + np.diag(ridges[rest]), of[rest, tag])
            for of in (covariance, whole)
        )
        said = ours @ (points[sample] - others.mean(axis=0))[rest]
        variance = whole[tag, tag]
        unsaid = variance - whole[rest, tag] @ of_all
        share, said_share = points[:, tag].mean(), 1 - unsaid / variance
        # Two normal distributions of what is said, with the tag and without.
        with_tag, without = said_share * (1 - share), -said_share * share
        within = said_share * unsaid
        found.append(((said - without) ** 2 - (said - with_tag) ** 2) / within / 2)
    return np.array(found)


def test_an_error_is_as_probable_as_bayes_says() -> None:
    errors = TagErrors(wrong=0.05, missing=0.2, offset=-0.5, slope_below=1.5, slope_above=0.5)
    evidence, shares = (
        torch.tensor([[-3.0, 0.0], [2.0, -1.0]]).double(),
        torch.tensor([0.1, 0.3]).double(),
    )
    has = torch.tensor([[True, False], [False, True]])

    found = errors.log_odds_of_error(evidence, has, shares).sigmoid()

    for row in range(2):
        for tag in range(2):
            moved = float(evidence[row, tag]) + 1
            belongs = 1 / (1 + np.exp(0.5 - (1.5 if moved < 0 else 0.5) * moved))
            prior = float(shares[tag]) * 0.95 / 0.8
            by_mistake = 0.05 * float(shares[tag]) / (1 - prior)
            if has[row, tag]:
                expected = (1 - belongs) * by_mistake / ((1 - belongs) * by_mistake + belongs * 0.8)
            else:
                expected = belongs * 0.2 / (belongs * 0.2 + (1 - belongs) * (1 - by_mistake))
            assert float(found[row, tag]) == pytest.approx(expected)


def test_the_surest_decisions_tell_how_many_tags_are_wrong_and_missing() -> None:
    random = np.random.default_rng(0)
    evidence = random.normal(-2, 4, (20_000, 2))
    right = random.random(evidence.shape) < 1 / (1 + np.exp(-evidence))
    share = right.mean() / (1 - right.mean())
    has = np.where(
        right, random.random(right.shape) >= 0.2, random.random(right.shape) < 0.05 * share
    )
    shares = torch.tensor(has.mean(axis=0))

    errors = fit_errors(torch.tensor(evidence), torch.tensor(has), shares)

    assert errors.missing == pytest.approx(0.2, abs=0.03)
    assert errors.wrong == pytest.approx(0.05 * (~right).mean() * share / has.mean(), rel=0.3)
    assert errors.slope_below == pytest.approx(1, abs=0.3)
    assert errors.slope_above == pytest.approx(1, abs=0.3)


def test_wrong_and_missing_tags_are_found(tagged: Tagged, rule: TagRule) -> None:
    p_wrong = torch.cat(
        [
            judged.suspicion.sigmoid()
            for _, judged in rule.judge(tagged.features, torch.arange(1000))
        ]
    )

    is_wrong = tagged.has != tagged.right
    for of in (tagged.has, ~tagged.has):
        assert roc_auc_score(is_wrong[of], p_wrong[of]) > 0.95
        expected, true = float(p_wrong[of].sum()), int(is_wrong[of].sum())
        assert expected == pytest.approx(true, rel=0.35)
    sure = p_wrong > 0.5
    assert float(is_wrong[sure].double().mean()) > 0.75


def test_few_tags_are_accused_where_none_is_wrong() -> None:
    tagged = draw(800, wrong=0.0, missing=0.0, seed=1)

    rule = fit_tags(tagged.source, tagged.given, 0, torch.float32)

    judged = [each for _, each in rule.judge(tagged.features, torch.arange(800))]
    assert sum(int((each.suspicion > 0).sum()) for each in judged) < 0.005 * tagged.has.numel()


def test_another_tag_of_a_sample_explains_its_features() -> None:
    random = np.random.default_rng(0)
    dog = random.random(500) < 0.3
    features = torch.tensor(random.standard_normal((500, 4)) + 3 * dog[:, None]).float()
    # A wolf looks like a dog, and no sample is both.
    wolf = dog & (random.random(500) < 0.1)
    has = torch.tensor(np.stack([dog & ~wolf, wolf], axis=1))
    source = TensorBatches(features, torch.arange(500))

    rule = fit_tags(source, given_of(has), 0, torch.float32)

    judged = torch.cat([each.suspicion for _, each in rule.judge(features, torch.arange(500))])
    assert float(judged[has[:, 1], 0].sigmoid().max()) < 0.5


def test_tags_of_a_single_sample_are_not_judged() -> None:
    tagged = draw(100, wrong=0.05, missing=0.1)
    has = torch.cat([tagged.has, torch.zeros(100, 2, dtype=torch.bool)], dim=1)
    has[0, TAGS] = True

    rule = fit_tags(tagged.source, given_of(has), 0, torch.float32)

    assert rule.fitted.tolist() == list(range(TAGS))


def test_samples_that_all_have_the_same_tags_are_refused() -> None:
    features = torch.randn(20, 4)

    with pytest.raises(StatisticsError, match="no tag is given to at least 2 of 20 samples"):
        fit_tags(
            TensorBatches(features, torch.arange(20)),
            given_of(torch.ones(20, 2, dtype=torch.bool)),
            0,
            torch.float32,
        )
