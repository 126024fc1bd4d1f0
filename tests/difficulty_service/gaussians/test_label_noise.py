"""Label noise and what follows from it, against loops over samples and classes."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

from difficulty_service.gaussians.label_noise import (
    LOG_SCALES,
    SHARPNESS_OF_SUMS,
    LabelNoise,
    add_label_sums,
    any_class,
    fit_noise,
    judge_labels,
    likeliest_classes,
    log_class_prior,
    relative_rates,
)
from difficulty_service.gaussians.label_shares import BY_CHANCE_BEFORE, RIGHT_BEFORE, SEEN_BEFORE
from difficulty_service.gaussians.products import Workspace
from tests.naive_noise import naive_rates

SAMPLES, CLASSES = 120, 4
SCALE = 0.5
SUMS_SCALE = SHARPNESS_OF_SUMS * SCALE
HALF_LOSS = 1.9207294
"""Half of the quantile of the chi-squared distribution with one degree of freedom at 95 %."""


@dataclass(frozen=True)
class Labelled:
    """Log-densities of classes, (samples, classes), labels, and how often each one is counted."""

    log_densities: Tensor
    labels: Tensor
    counted: Tensor

    @property
    def log_prior(self) -> Tensor:
        return log_class_prior(self.labels.bincount(minlength=CLASSES))

    @property
    def sums(self) -> Tensor:
        """Over the samples that count."""
        seen = self.counted > 0
        joint = SUMS_SCALE * self.log_densities[seen] + self.log_prior
        total = torch.zeros(CLASSES, CLASSES, dtype=torch.float64)
        add_label_sums(joint, self.labels[seen], total)
        return total * float(self.counted.max())

    def fitted(self) -> LabelNoise:
        noise = fit_noise(
            self.log_densities, self.log_prior, self.labels, self.sums, self.counted, SCALE
        )
        assert noise is not None
        return noise


def labelled(*, each: float = 1.0, seen: int = SAMPLES, flatness: float = 1.0) -> Labelled:
    """Classes of unequal size and clearness, of which one is often labelled as the next."""
    generator = torch.Generator().manual_seed(3)
    right = torch.tensor([0, 0, 1, 1, 1, 2, 3]).repeat(SAMPLES // 7 + 1)[:SAMPLES]
    log_densities = 3 * torch.randn(SAMPLES, CLASSES, generator=generator, dtype=torch.float64)
    log_densities[torch.arange(SAMPLES), right] += 10
    draws = torch.rand(SAMPLES, generator=generator)
    labels = torch.where((draws < 0.4) & (right == 0), 1, right)
    labels = torch.where(draws > 0.9, (right + 2) % CLASSES, labels)
    counted = torch.where(torch.arange(SAMPLES) < seen, each, 0.0)
    return Labelled(log_densities / flatness, labels, counted)


ALL, SOME = labelled(), labelled(each=2.5, seen=70)
# The likeliest scale of the last is between the last two that are tried.
CASES = ALL, SOME, labelled(flatness=20)


def probabilities(log_densities: list[float], prior: list[float], scale: float) -> list[float]:
    values = [
        share * math.exp(scale * value) for value, share in zip(log_densities, prior, strict=True)
    ]
    return [value / sum(values) for value in values]


def chance(prior: list[float], given: int, right: int) -> float:
    """Probability that a label which is wrong by chance is the given one."""
    return 0.0 if given == right else prior[given] / (1 - prior[right])


def rates(case: Labelled) -> list[float]:
    """How much more often samples of each class have another label than all have."""
    prior = case.log_prior.exp().tolist()
    classes = [probabilities(row, prior, SUMS_SCALE) for row in case.log_densities.tolist()]
    return naive_rates(classes, case.labels.tolist(), case.counted.tolist())


def followed(case: Labelled, left_out: int | None) -> Callable[[int, int], float]:
    """Probability of a label in a class where it follows the others, without one of the samples."""
    prior = case.log_prior.exp().tolist()
    weights = [
        [chance(prior, given, right) for right in range(CLASSES)] for given in range(CLASSES)
    ]
    rows = zip(
        case.log_densities.tolist(), case.labels.tolist(), case.counted.tolist(), strict=True
    )
    for sample, (row, label, counted) in enumerate(rows):
        if sample == left_out:
            continue
        for right, share in enumerate(probabilities(row, prior, SUMS_SCALE)):
            if right != label:
                weights[label][right] += counted * share
    times = rates(case)

    def probability(given: int, right: int) -> float:
        if given == right:
            return 1 - times[right]
        return times[right] * weights[given][right] / sum(row[right] for row in weights)

    return probability


@cache
def shares_left_out(which: int) -> list[list[float]]:
    """Probability of the label of each sample in each class, by what the others were seen as."""
    case = CASES[which]
    rows = []
    for sample, label in enumerate(case.labels.tolist()):
        share = followed(case, sample)
        rows.append([share(label, right) for right in range(CLASSES)])
    return rows


def naive_explanations(which: int, scale: float) -> list[tuple[float, float, float]]:
    """Probability of each label if it is right, wrong by chance, and wrong as others were."""
    case = CASES[which]
    prior = case.log_prior.exp().tolist()
    rows = []
    for sample, label in enumerate(case.labels.tolist()):
        classes = probabilities(case.log_densities[sample].tolist(), prior, scale)
        share = shares_left_out(which)[sample]
        others = [right for right in range(CLASSES) if right != label]
        by_chance = sum(classes[right] * chance(prior, label, right) for right in others)
        seen = sum(classes[right] * share[right] for right in range(CLASSES))
        rows.append((classes[label], by_chance, seen))
    return rows


def log_likelihood(rows: list[tuple[float, float, float]], wrong: float, seen: float) -> float:
    total = sum(
        math.log((1 - wrong) * right + wrong * ((1 - seen) * by_chance + seen * as_others))
        for right, by_chance, as_others in rows
    )
    total += RIGHT_BEFORE * math.log(1 - wrong)
    return total + BY_CHANCE_BEFORE * math.log(1 - seen) + SEEN_BEFORE * math.log(seen)


def transition(noise: LabelNoise, case: Labelled, left_out: int | None) -> list[list[float]]:
    """Probability of a given label, the first index, where a class, the second, is right."""
    prior = case.log_prior.exp().tolist()
    share = followed(case, left_out)
    return [
        [
            (1 - noise.wrong) * (given == right)
            + noise.wrong
            * ((1 - noise.seen) * chance(prior, given, right) + noise.seen * share(given, right))
            for right in range(CLASSES)
        ]
        for given in range(CLASSES)
    ]


@pytest.mark.parametrize(
    "which", [0, 1, 2], ids=["all are counted", "some are counted", "the largest scale"]
)
def test_the_fit_is_the_maximum_that_a_search_from_elsewhere_finds(which: int) -> None:
    noise = CASES[which].fitted()

    def loss(values: list[float]) -> float:
        wrong, seen = (1 / (1 + math.exp(-value)) for value in values[1:])
        return -log_likelihood(naive_explanations(which, math.exp(values[0])), wrong, seen)

    # A coarse grid first, so that the search starts near no particular answer.
    starts = [
        (scale, wrong, seen) for scale in (-1.0, 0.5) for wrong in (-1.0, 0.0) for seen in (-1, 1.0)
    ]
    best = scipy.optimize.minimize(
        loss,
        min(starts, key=loss),
        method="Nelder-Mead",
        options={"xatol": 1e-5, "fatol": 1e-9, "maxfev": 250},
    )
    scale, wrong, seen = math.exp(best.x[0]), *(1 / (1 + np.exp(-best.x[1:])))
    assert noise.scale == pytest.approx(scale, rel=1e-3)
    assert noise.wrong == pytest.approx(wrong, rel=1e-3)
    assert noise.seen == pytest.approx(seen, rel=1e-3)
    found = log_likelihood(naive_explanations(which, noise.scale), noise.wrong, noise.seen)
    assert found >= -best.fun - 1e-6


def test_no_other_share_or_scale_on_a_grid_makes_the_labels_more_probable() -> None:
    noise = ALL.fitted()
    found = log_likelihood(naive_explanations(0, noise.scale), noise.wrong, noise.seen)

    for scale in np.geomspace(noise.scale / 5, noise.scale * 5, 9):
        rows = naive_explanations(0, float(scale))
        for wrong in np.linspace(0.002, 0.98 / max(rates(ALL)), 25):
            for seen in np.linspace(0.02, 0.98, 13):
                assert log_likelihood(rows, float(wrong), float(seen)) <= found + 1e-9


def test_where_densities_do_not_tell_the_labels_the_least_scale_is_taken() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (SAMPLES,), generator=generator)

    noise = Labelled(ALL.log_densities, labels, ALL.counted).fitted()

    assert noise.scale == pytest.approx(SCALE * math.exp(LOG_SCALES[0]), rel=1e-12)


def test_where_densities_hardly_differ_the_largest_scale_is_taken() -> None:
    noise = labelled(flatness=1000).fitted()

    assert noise.scale == pytest.approx(SCALE * math.exp(LOG_SCALES[-1]), rel=1e-12)


def test_the_interval_holds_the_shares_that_lose_less_than_chance_allows() -> None:
    noise = ALL.fitted()
    wrong, seen = np.linspace(1e-4, 0.5, 250)[:, None], np.linspace(0.02, 0.98, 49)
    before = RIGHT_BEFORE * np.log(1 - wrong)
    before = before + BY_CHANCE_BEFORE * np.log(1 - seen) + SEEN_BEFORE * np.log(seen)
    profile = []
    for scale in (noise.scale, *(SCALE * math.exp(step) for step in LOG_SCALES)):
        values = before.copy()
        for right, by_chance, as_others in naive_explanations(0, scale):
            values += np.log(
                (1 - wrong) * right + wrong * ((1 - seen) * by_chance + seen * as_others)
            )
        profile.append(values.max(axis=1))
    likely = np.max(profile, axis=0)

    kept = wrong[likely >= likely.max() - HALF_LOSS, 0]

    assert noise.wrong_low == pytest.approx(kept[0], abs=2e-3)
    assert noise.wrong_high == pytest.approx(kept[-1], abs=2e-3)
    assert 0 < noise.wrong_low < noise.wrong < noise.wrong_high < 0.5


def test_suspicion_weighs_classes_by_transitions_that_have_not_seen_the_sample() -> None:
    noise = ALL.fitted()
    assert noise.own
    prior = ALL.log_prior.exp().tolist()
    transitions = noise.transitions_of(ALL.log_densities, ALL.labels, Workspace())

    joint = noise.scale * ALL.log_densities + ALL.log_prior
    verdict = judge_labels(joint, ALL.labels, transitions)

    for sample, label in enumerate(ALL.labels.tolist()):
        given = transition(noise, ALL, sample)[label]
        assert transitions[sample].exp().tolist() == pytest.approx(given, rel=1e-9)
        classes = probabilities(ALL.log_densities[sample].tolist(), prior, noise.scale)
        weights = [share * factor for share, factor in zip(classes, given, strict=True)]
        own = weights[label]
        weights[label] = 0.0
        assert float(verdict.suspicion[sample].exp()) == pytest.approx(sum(weights) / own)
        assert int(verdict.suggested[sample]) == weights.index(max(weights))


def test_samples_that_were_not_summed_one_by_one_take_the_plain_transitions() -> None:
    noise = SOME.fitted()
    assert not noise.own

    found = noise.transitions_of(SOME.log_densities, SOME.labels, Workspace()).exp()

    expected = torch.tensor(transition(noise, SOME, None), dtype=torch.float64)
    torch.testing.assert_close(found, expected[SOME.labels])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_plain_transitions_are_rounded_once_to_the_dtype_of_the_densities(
    dtype: torch.dtype,
) -> None:
    noise = SOME.fitted()

    found = noise.transitions_of(SOME.log_densities.to(dtype), SOME.labels, Workspace())

    assert torch.equal(found, noise.log_transitions[SOME.labels].to(dtype))


def test_some_classes_have_more_wrong_labels_than_others() -> None:
    found = relative_rates(ALL.sums)

    assert found.tolist() == pytest.approx(rates(ALL))
    assert int(found.argmax()) == 0  # two in five of its samples are labelled as the next one
    assert float(found @ ALL.sums.sum(dim=0)) == pytest.approx(SAMPLES)


def test_the_rates_of_few_samples_are_drawn_to_those_of_all() -> None:
    sums = torch.tensor([[90.0, 0.0, 0.0], [10.0, 2.0, 0.0], [0.0, 2.0, 1000.0]])

    found = relative_rates(sums)

    mean = 12 / 1104
    expected = torch.tensor([10 + 50 * mean, 2 + 50 * mean, 50 * mean]).double()
    expected /= torch.tensor([150, 54, 1050])
    torch.testing.assert_close(found.double() / found[0], expected / expected[0])


def test_where_all_labels_agree_no_class_has_more_wrong_ones() -> None:
    assert relative_rates(torch.diag(torch.tensor([5.0, 3.0, 0.0]))).tolist() == [1, 1, 1]


def test_a_class_whose_labels_are_often_wrong_makes_its_own_suspicious() -> None:
    """With the same densities, a label is doubted more in a class that loses more of its own."""
    generator = torch.Generator().manual_seed(0)
    right = torch.arange(4000) % CLASSES
    log_densities = torch.randn(4000, CLASSES, generator=generator, dtype=torch.float64)
    log_densities[torch.arange(4000), right] += 5
    wrong = (torch.rand(4000, generator=generator) < 0.4) & (right == 0)
    labels = torch.where(wrong, torch.arange(4000) // CLASSES % 3 + 1, right)
    noise = Labelled(log_densities, labels, torch.ones(4000)).fitted()

    found = noise.log_transitions.exp().diagonal()

    assert noise.rates[0] > 2 * noise.rates[1:].max()
    assert found[0] < found[1:].min()
    assert noise.wrong_low < float(wrong.double().mean()) < noise.wrong_high


def test_the_labels_of_each_class_add_up_to_one() -> None:
    for noise in (ALL.fitted(), SOME.fitted()):
        ones = torch.ones(CLASSES, dtype=torch.float64)
        torch.testing.assert_close(noise.log_transitions.exp().sum(dim=0), ones)
        torch.testing.assert_close(any_class(noise.log_prior).sum(dim=0), ones)


def test_sums_of_parts_add_up_to_those_of_the_whole() -> None:
    joint = ALL.log_densities + ALL.log_prior
    whole, parts = (torch.zeros(CLASSES, CLASSES, dtype=torch.float64) for _ in range(2))

    add_label_sums(joint, ALL.labels, whole)
    for rows in torch.arange(SAMPLES).chunk(4):
        add_label_sums(joint[rows], ALL.labels[rows], parts)

    torch.testing.assert_close(parts, whole)
    assert float(whole.sum()) == pytest.approx(SAMPLES)


def test_wrong_labels_that_always_name_the_same_class_follow_what_was_seen() -> None:
    generator = torch.Generator().manual_seed(0)
    right = torch.arange(2000) % CLASSES
    log_densities = torch.randn(2000, CLASSES, generator=generator, dtype=torch.float64)
    log_densities[torch.arange(2000), right] += 12
    wrong = torch.rand(2000, generator=generator) < 0.1
    steps = torch.randint(1, CLASSES, (2000,), generator=generator)
    seen = []
    for moved in (1, steps):
        labels = torch.where(wrong, (right + moved) % CLASSES, right)
        noise = Labelled(log_densities, labels, torch.ones(2000)).fitted()
        assert noise.wrong_low < float(wrong.double().mean()) < noise.wrong_high
        seen.append(noise.seen)

    assert seen[0] > 0.8
    assert seen[1] < 0.5


@pytest.mark.parametrize(("classes", "share"), [(10, 10 / 30), (40, 10 / 110)])
def test_where_no_label_is_wrong_the_share_that_was_seen_is_that_of_the_labels_before(
    classes: int, share: float
) -> None:
    labels = torch.arange(800) % classes
    log_densities = 60 * torch.nn.functional.one_hot(labels, classes).double()
    log_prior = log_class_prior(labels.bincount())
    sums = torch.zeros(classes, classes, dtype=torch.float64)
    add_label_sums(log_densities + log_prior, labels, sums)

    noise = fit_noise(log_densities, log_prior, labels, sums, torch.ones(800), SCALE)

    assert noise is not None
    assert noise.seen == pytest.approx(share, rel=0.01)


def test_the_likeliest_classes_are_those_of_the_largest_shares() -> None:
    joint = ALL.log_densities[:, :2] + ALL.log_prior[:2]
    joint[0] = torch.nan
    before = joint.clone()

    places, probabilities = likeliest_classes(joint)

    torch.testing.assert_close(joint, before, rtol=0, atol=0, equal_nan=True)
    shares, order = joint[1:].softmax(dim=1).sort(dim=1, descending=True)
    assert places[1:, :2].tolist() == order.tolist()
    torch.testing.assert_close(probabilities[1:, :2], shares)
    assert probabilities[0].isnan().all()
    assert probabilities[:, 2].isnan().all()  # there is no third class


def test_without_noise_a_label_is_as_wrong_as_it_is_improbable() -> None:
    probability = ALL.log_densities.softmax(dim=1).gather(1, ALL.labels[:, None])[:, 0]

    found = judge_labels(ALL.log_densities.clone(), ALL.labels).suspicion.sigmoid()

    torch.testing.assert_close(found, 1 - probability)


def test_a_sample_without_a_density_of_its_class_is_not_judged_and_changes_nothing() -> None:
    log_densities = ALL.log_densities.clone()
    log_densities[0, ALL.labels[0]] = torch.nan
    rest = torch.zeros(CLASSES, CLASSES, dtype=torch.float64)
    add_label_sums(SUMS_SCALE * log_densities[1:] + ALL.log_prior, ALL.labels[1:], rest)
    whole = torch.zeros_like(rest)
    add_label_sums(SUMS_SCALE * log_densities + ALL.log_prior, ALL.labels, whole)

    noise, without = (
        fit_noise(
            log_densities[first:],
            ALL.log_prior,
            ALL.labels[first:],
            rest,
            ALL.counted[first:],
            SCALE,
        )
        for first in (0, 1)
    )

    assert torch.equal(whole, rest)
    assert noise is not None
    assert without is not None
    assert noise.describe() == without.describe()
    transitions = noise.transitions_of(log_densities, ALL.labels, Workspace())
    verdict = judge_labels(log_densities, ALL.labels, transitions)
    assert verdict.suspicion.isnan().nonzero().flatten().tolist() == [0]


def test_with_a_single_class_there_is_no_noise_and_there_are_no_odds() -> None:
    densities, labels = torch.zeros(5, 1, dtype=torch.float64), torch.zeros(5, dtype=torch.int64)
    sums = torch.full((1, 1), 5.0, dtype=torch.float64)

    assert fit_noise(densities, torch.zeros(1), labels, sums, torch.ones(5), 1.0) is None
    assert judge_labels(densities, labels).suspicion.isnan().all()


def test_a_class_of_one_sample_is_never_suggested_nor_counted_as_the_right_one() -> None:
    labels = torch.cat([torch.tensor([3]), torch.arange(SAMPLES - 1) % 3])
    log_densities = ALL.log_densities.clone()
    log_densities[1:, 3] += 50  # the nearest of all for everybody else
    log_densities[0, 3] = torch.nan
    case = Labelled(log_densities, labels, torch.ones(SAMPLES))
    noise = case.fitted()

    transitions = noise.transitions_of(log_densities, labels, Workspace())
    verdict = judge_labels(noise.scale * log_densities + case.log_prior, labels, transitions)

    assert verdict.suspicion.isnan().nonzero().flatten().tolist() == [0]
    assert int(verdict.suggested[1:].max()) < 3
    plain = Labelled(log_densities[1:, :3], labels[1:], torch.ones(SAMPLES - 1))
    prior = log_class_prior(plain.labels.bincount())
    sums = torch.zeros(3, 3, dtype=torch.float64)
    add_label_sums(SUMS_SCALE * plain.log_densities + prior, plain.labels, sums)
    fitted = fit_noise(plain.log_densities, prior, plain.labels, sums, plain.counted, SCALE)
    assert fitted is not None
    assert noise.describe() == pytest.approx(fitted.describe(), rel=1e-5)


def fitted_with(verified: Tensor, sums: Tensor = ALL.sums) -> LabelNoise:
    noise = fit_noise(
        *(ALL.log_densities, ALL.log_prior, ALL.labels, sums, ALL.counted, SCALE),
        verified=verified,
    )
    assert noise is not None
    return noise


def test_where_nobody_has_looked_nothing_changes() -> None:
    assert fitted_with(torch.full((SAMPLES,), -1)).describe() == ALL.fitted().describe()


@pytest.mark.parametrize("place", range(CLASSES))
def test_fewer_labels_are_wrong_where_those_of_any_one_class_were_found_right(place: int) -> None:
    noise = fitted_with(torch.where(ALL.labels == place, place, -1))

    assert noise.wrong < ALL.fitted().wrong


def test_where_every_class_is_verified_the_share_of_wrong_labels_is_counted() -> None:
    right = ALL.labels.clone()
    right[:30] = (right[:30] + 1) % CLASSES

    # In sums of labels that agree no class has more wrong labels than another one.
    noise = fitted_with(right, ALL.labels.bincount().diag().double())

    assert noise.wrong == pytest.approx(30 / (SAMPLES + RIGHT_BEFORE), rel=1e-5)
    assert noise.wrong_low < noise.wrong < noise.wrong_high
