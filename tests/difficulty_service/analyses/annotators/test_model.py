"""The model of annotators, against loops over samples, classes, difficulties and labels."""

import math
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.analyses.annotators.given_labels import GivenLabels
from difficulty_service.analyses.annotators.model import (
    NODES,
    SPREAD_BEFORE,
    USUAL_SPREAD,
    USUAL_WRONG,
    WRONG_BEFORE,
    AnnotatorModel,
    fit_annotators,
    judge_samples,
)
from difficulty_service.gaussians.label_noise import log_class_prior

SAMPLES, ANNOTATORS, CLASSES = 150, 4, 3
NODE, WEIGHT = np.polynomial.hermite_e.hermegauss(NODES)
WEIGHT = WEIGHT / WEIGHT.sum()


@dataclass(frozen=True)
class Case:
    """Log-densities of samples, (samples, classes), their classes, and labels."""

    log_densities: Tensor
    right: Tensor
    labels: GivenLabels

    @cached_property
    def log_prior(self) -> Tensor:
        return log_class_prior(self.right.bincount(minlength=CLASSES))

    def evidence(self, rows: slice) -> Tensor:
        return self.log_densities[rows]

    def fitted(self, verified: Tensor | None = None) -> AnnotatorModel:
        return fit_annotators(self.evidence, self.log_prior, self.labels, 1.0, verified)

    def posterior(self, model: AnnotatorModel) -> Tensor:
        judged = judge_samples(self.evidence, self.labels, model)
        return torch.cat([rows.posterior for rows in judged])


@cache
def case(
    seed: int = 0, error: tuple[float, ...] = (0.1, 0.15, 0.3, 0.2), hard: float = 2.5
) -> Case:
    """Annotators with an error rate each, which is not the same at all samples.

    They label two of three samples; `hard` is the standard deviation of the logit of their errors.
    """
    random = np.random.default_rng(seed)
    right = random.integers(0, CLASSES, SAMPLES)
    log_densities = random.standard_normal((SAMPLES, CLASSES)) * 1.5
    log_densities[np.arange(SAMPLES), right] += 2
    triples = []
    for sample in range(SAMPLES):
        odds = math.exp(hard * random.standard_normal())
        for annotator, rate in enumerate(error):
            if random.random() < 2 / 3:
                wrong = odds * rate / (odds * rate + 1 - rate)
                flip = int(random.random() < wrong) * random.integers(1, CLASSES)
                triples.append((sample, annotator, int(right[sample] + flip) % CLASSES))
    labels = GivenLabels.of(torch.tensor(triples), SAMPLES, len(error), CLASSES)
    return Case(torch.from_numpy(log_densities), torch.from_numpy(right), labels)


@cache
def fitted() -> AnnotatorModel:
    """The model of the usual case, for tests that look at it."""
    return case().fitted()


def given_to(labels: GivenLabels, sample: int) -> list[tuple[int, int]]:
    own = labels.samples == sample
    return list(zip(labels.annotators[own].tolist(), labels.classes[own].tolist(), strict=True))


def naive_features(each: Case, model: AnnotatorModel, sample: int) -> np.ndarray:
    joint = model.scale * each.log_densities[sample].numpy() + each.log_prior.numpy()
    weights = np.exp(joint - joint.max())
    return weights / weights.sum()


def naive_wrong(model: AnnotatorModel, entropy: float, annotator: int | None, node: float) -> float:
    own = 0.0 if annotator is None else float(model.deviations[annotator])
    logit = model.usual + own + model.ambiguity * entropy + model.difficulty * node
    return 1 / (1 + math.exp(-logit))


def naive_joint(each: Case, model: AnnotatorModel, sample: int) -> np.ndarray:
    """Probability of each class and difficulty together with the labels. (classes, nodes)."""
    features = naive_features(each, model, sample)
    entropy = -(features * np.log(features)).sum()
    given = given_to(each.labels, sample)
    joint = np.empty((CLASSES, NODES))
    for right in range(CLASSES):
        for place, node in enumerate(NODE):
            joint[right, place] = features[right] * WEIGHT[place]
            for annotator, label in given:
                wrong = naive_wrong(model, entropy, annotator, node)
                named = float(model.named[right, label])
                joint[right, place] *= 1 - wrong if label == right else wrong * named
    return joint


def naive_objective(each: Case, model: AnnotatorModel, verified: Tensor | None = None) -> float:
    """Log-probability of the labels and of the parameters, up to a constant."""
    labels = 0.0
    for sample in range(SAMPLES):
        joint = naive_joint(each, model, sample)
        known = -1 if verified is None else int(verified[sample])
        labels += math.log((joint if known < 0 else joint[known]).sum())
    before = ((model.usual - USUAL_WRONG) / USUAL_SPREAD) ** 2 + model.ambiguity**2
    before += model.difficulty**2 + float((model.deviations / model.spread).square().sum())
    return labels - before / 2


@cache
def usual_objective() -> float:
    """The objective of the model of the usual case."""
    return naive_objective(case(), fitted())


def test_the_posterior_is_that_of_bayes_rule_over_classes_and_difficulties() -> None:
    each = case()
    model = fitted()

    found = each.posterior(model)

    for sample in range(0, SAMPLES, 7):
        joint = naive_joint(each, model, sample).sum(axis=1)
        np.testing.assert_allclose(found[sample].numpy(), joint / joint.sum(), rtol=1e-9)


def test_the_likelihood_is_that_of_all_labels_and_the_parameters() -> None:
    each = case()
    model = fitted()

    total = usual_objective() / len(each.labels)

    # What wrong labels name and the scale move a last time after it is computed.
    assert model.likelihood == pytest.approx(total, abs=1e-3)


@pytest.mark.parametrize("step", [-0.1, 0.1])
@pytest.mark.parametrize("name", ["usual", "ambiguity", "difficulty", "scale"])
def test_no_other_parameter_explains_the_labels_better(name: str, step: float) -> None:
    each = case()
    model = fitted()
    other = replace(model, **{name: getattr(model, name) + step})

    assert naive_objective(each, other) < usual_objective()


@pytest.mark.slow
def test_no_other_deviation_of_an_annotator_explains_the_labels_better() -> None:
    each = case()
    model = fitted()
    best = usual_objective()

    for annotator in range(ANNOTATORS):
        for step in (-0.1, 0.1):
            changed = model.deviations.clone()
            changed[annotator] += step
            assert naive_objective(each, replace(model, deviations=changed)) < best


def test_the_spread_of_annotators_is_what_they_deviate_by_and_what_is_unknown_of_that() -> None:
    each = case()
    model = fitted()

    unknown = []
    for annotator, deviation in enumerate(model.deviations.tolist()):
        number = int((each.labels.annotators == annotator).sum())
        rate = 1 / (1 + math.exp(-model.usual - deviation))
        unknown.append(1 / (number * rate * (1 - rate) + model.spread**-2))
    total = float(model.deviations.square().sum()) + sum(unknown) + SPREAD_BEFORE**2

    assert model.spread**2 == pytest.approx(total / (ANNOTATORS + 1), rel=1e-2)


def test_errors_on_the_same_samples_are_explained_by_their_difficulty() -> None:
    assert fitted().difficulty > 0.5
    assert case(hard=0).fitted().difficulty < 0.5


def test_what_wrong_labels_name_follows_the_probable_classes_of_all_labels() -> None:
    each = case()
    model = fitted()
    posterior = each.posterior(model)

    prior = each.log_prior.exp().numpy()
    for right in range(CLASSES):
        sums = np.array(
            [
                0
                if named == right
                else WRONG_BEFORE * prior[named] / (1 - prior[right])
                + sum(
                    float(posterior[sample, right])
                    for sample, label in zip(
                        each.labels.samples.tolist(), each.labels.classes.tolist(), strict=True
                    )
                    if label == named
                )
                for named in range(CLASSES)
            ]
        )
        np.testing.assert_allclose(model.named[right].numpy(), sums / sums.sum(), atol=2e-3)


def test_the_gain_is_what_one_more_label_adds_to_the_likeliest_class_on_average() -> None:
    each = case()
    model = fitted()

    gains = torch.cat([rows.gain for rows in judge_samples(each.evidence, each.labels, model)])

    for sample in range(0, SAMPLES, 7):
        features = naive_features(each, model, sample)
        entropy = -(features * np.log(features)).sum()
        joint = naive_joint(each, model, sample)
        joint = joint / joint.sum()
        after = 0.0
        for label in range(CLASSES):
            with_label = np.zeros(CLASSES)
            for right in range(CLASSES):
                for place, node in enumerate(NODE):
                    wrong = naive_wrong(model, entropy, None, node)
                    named = float(model.named[right, label])
                    chance = 1 - wrong if label == right else wrong * named
                    with_label[right] += joint[right, place] * chance
            after += with_label.max()
        expected = after - joint.sum(axis=1).max()
        assert float(gains[sample]) == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_blocks_give_the_same_as_all_samples_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    each = case()
    whole = each.posterior(fitted())

    monkeypatch.setattr(
        "difficulty_service.analyses.annotators.given_labels.NUMBERS_PER_BLOCK", 100
    )

    torch.testing.assert_close(each.posterior(each.fitted()), whole, rtol=0, atol=1e-6)


def test_error_rates_are_found_where_annotators_err_by_chance() -> None:
    rates = (0.05, 0.1, 0.3, 0.6)
    each = case(3, rates, hard=0)

    model = each.fitted()

    posterior = each.posterior(model)
    wrong = 1 - posterior[each.labels.samples, each.labels.classes]
    for annotator, rate in enumerate(rates):
        found = float(wrong[each.labels.annotators == annotator].mean())
        assert found == pytest.approx(rate, abs=0.1)
    assert model.deviations.argsort().tolist() == [0, 1, 2, 3]


def test_the_labels_of_an_annotator_who_always_says_the_same_count_for_little() -> None:
    each = case(hard=0)
    constant = [(sample, ANNOTATORS, 0) for sample in range(SAMPLES)]
    triples = torch.stack([each.labels.samples, each.labels.annotators, each.labels.classes], dim=1)
    labels = GivenLabels.of(
        torch.cat([triples, torch.tensor(constant)]), SAMPLES, ANNOTATORS + 1, CLASSES
    )

    with_constant = replace(each, labels=labels)

    model = with_constant.fitted()

    before, after = each.posterior(each.fitted()), with_constant.posterior(model)
    assert model.deviations.argmax() == ANNOTATORS
    right = [int((found.argmax(dim=1) == each.right).sum()) for found in (before, after)]
    assert right[1] >= right[0] - 0.03 * SAMPLES


@pytest.mark.parametrize(
    "triples",
    [
        pytest.param([(3, 0, 1)], id="a single label"),
        pytest.param([(sample, sample, 0) for sample in range(50)], id="one label each"),
        pytest.param([(sample, 0, 2) for sample in range(SAMPLES)], id="always the same class"),
        pytest.param([(7, annotator, annotator % 3) for annotator in range(99)], id="one sample"),
    ],
)
def test_few_or_strange_labels_give_probabilities(triples: list[tuple[int, int, int]]) -> None:
    annotators = 1 + max(annotator for _, annotator, _ in triples)
    labels = GivenLabels.of(torch.tensor(triples), SAMPLES, annotators, CLASSES)
    each = replace(case(), labels=labels)

    posterior = each.posterior(each.fitted())

    torch.testing.assert_close(posterior.sum(dim=1), torch.ones(SAMPLES, dtype=torch.float64))


def test_a_sample_of_which_the_features_tell_nothing_has_the_prior_and_its_labels() -> None:
    each = case()
    unknown = replace(each, log_densities=each.log_densities.clone())
    unknown.log_densities[each.labels.samples[0], 1] = torch.nan
    model = unknown.fitted()

    (rows,) = judge_samples(unknown.evidence, unknown.labels, model)

    assert rows.posterior.isfinite().all()
    torch.testing.assert_close(rows.features[each.labels.samples[0]], each.log_prior)


def test_a_class_that_nothing_can_be_said_to_look_like_is_no_consensus() -> None:
    each = case()
    log_prior = torch.tensor([math.log(0.5), math.log(0.5), -math.inf], dtype=torch.float64)

    model = fit_annotators(each.evidence, log_prior, each.labels, 1.0)

    posterior = each.posterior(model)
    assert posterior.isfinite().all()
    assert (posterior[:, 2] == 0).all()


def test_verified_classes_tell_how_far_to_trust_the_probabilities() -> None:
    each = case()
    wrongly_sure = replace(each, log_densities=each.log_densities * 6)
    verified = torch.where(torch.arange(SAMPLES) % 3 == 0, each.right, -1)
    # A third of the verified classes is another one than all witnesses say.
    verified[::9] = (verified[::9] + 1) % CLASSES

    doubted, agreed = wrongly_sure.fitted(verified), fitted()

    assert doubted.sharpness < 0.7
    assert agreed.sharpness == 1


def test_the_sharpness_is_the_likeliest_power_of_the_probabilities() -> None:
    each = case()
    verified = torch.where(torch.arange(SAMPLES) % 2 == 0, (each.right + (each.right == 1)) % 3, -1)
    model = each.fitted(verified)
    plain = each.posterior(replace(model, sharpness=1.0)).log()

    def objective(power: float) -> float:
        rows = verified >= 0
        powered = (power * plain[rows]).log_softmax(dim=1)
        right = powered.gather(1, verified[rows][:, None])
        return float(right.sum()) - (math.log(power) / 0.5) ** 2 / 2

    best = objective(model.sharpness)
    assert all(objective(model.sharpness * factor) < best for factor in (0.95, 1.05))


@cache
def fitted_to_some_verified() -> tuple[Tensor, AnnotatorModel, float]:
    """Verified classes of a third of the samples, the model of them and its objective."""
    each = case()
    # Some verified classes are named by no label of their sample.
    verified = torch.where(torch.arange(SAMPLES) % 3 == 0, each.right, -1)
    verified[::15] = (each.right[::15] + 1) % CLASSES
    model = each.fitted(verified)
    return verified, model, naive_objective(each, model, verified)


@pytest.mark.parametrize("step", [-0.1, 0.1])
@pytest.mark.parametrize("name", ["usual", "ambiguity", "difficulty", "scale"])
def test_no_other_parameter_explains_labels_and_verified_classes_better(
    name: str, step: float
) -> None:
    verified, model, objective = fitted_to_some_verified()
    other = replace(model, **{name: getattr(model, name) + step})

    assert naive_objective(case(), other, verified) < objective
    assert math.isfinite(model.likelihood)


def test_verified_classes_tell_who_errs() -> None:
    each = case(0, (0.2, 0.2))
    labels = each.labels
    # Where both agree on a class, a person says that it is another one.
    verified = torch.full((SAMPLES,), -1)
    for sample in range(SAMPLES):
        given = dict(given_to(labels, sample))
        if given.get(0) is not None and sample % 2:
            verified[sample] = (given[0] + 1) % CLASSES

    before, after = each.fitted(), each.fitted(verified)

    assert after.deviations[0] - after.deviations[1] > before.deviations[0] - before.deviations[1]
