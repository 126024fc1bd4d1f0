"""Agreement of annotators, against loops over pairs of labels."""

from itertools import combinations, permutations

import numpy as np
import pytest
import scipy.stats
import torch

from difficulty_service.analyses.annotators.given_labels import (
    GivenLabels,
    agreement_with_others,
    error_rates,
    krippendorff_alpha,
    majority,
    sample_agreement,
)

SAMPLES, ANNOTATORS, CLASSES = 40, 6, 4

Triple = tuple[int, int, int]


def some_triples(seed: int = 0) -> list[Triple]:
    """Sample, annotator and class of some labels in any order; some samples have none."""
    random = np.random.default_rng(seed)
    triples = [
        (sample, annotator, int((sample + (random.random() < 0.3)) % CLASSES))
        for sample in range(SAMPLES)
        for annotator in range(ANNOTATORS)
        if random.random() < 0.4
    ]
    return [triples[place] for place in random.permutation(len(triples))]


def labels_of(triples: list[Triple]) -> GivenLabels:
    return GivenLabels.of(
        torch.tensor(triples, dtype=torch.int64).view(-1, 3), SAMPLES, ANNOTATORS, CLASSES
    )


def by_sample(triples: list[Triple]) -> list[list[tuple[int, int]]]:
    return [
        [(annotator, label) for each, annotator, label in triples if each == sample]
        for sample in range(SAMPLES)
    ]


def test_the_agreement_of_a_sample_is_the_share_of_its_pairs_that_agree() -> None:
    triples = some_triples()

    found = sample_agreement(labels_of(triples))

    for agreement, given in zip(found.tolist(), by_sample(triples), strict=True):
        pairs = [first[1] == second[1] for first, second in combinations(given, 2)]
        assert agreement == pytest.approx(np.mean(pairs) if pairs else np.nan, nan_ok=True)


def test_the_agreement_with_others_is_the_share_of_their_labels_that_say_the_same() -> None:
    triples = some_triples()

    found = agreement_with_others(labels_of(triples))

    for annotator, agreement in enumerate(found.tolist()):
        same = [
            label == other
            for given in by_sample(triples)
            for (who, label), (_, other) in permutations(given, 2)
            if who == annotator
        ]
        assert agreement == pytest.approx(np.mean(same))


@pytest.mark.parametrize("seed", range(3))
def test_alpha_is_one_minus_observed_over_expected_disagreement(seed: int) -> None:
    triples = some_triples(seed)

    found = krippendorff_alpha(labels_of(triples))

    paired = [[label for _, label in given] for given in by_sample(triples) if len(given) > 1]
    values = [label for given in paired for label in given]
    observed = sum(
        sum(first != second for first, second in permutations(given, 2)) / (len(given) - 1)
        for given in paired
    ) / len(values)
    expected = np.mean([first != second for first, second in permutations(values, 2)])
    assert found == pytest.approx(1 - observed / expected)


def test_alpha_of_the_published_example_is_as_published() -> None:
    # Krippendorff (2011), "Computing Krippendorff's alpha-reliability", section C.
    rows = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")
    triples = [
        (unit, coder, int(value))
        for coder, row in enumerate(rows)
        for unit, value in enumerate(row)
        if value != "."
    ]

    found = krippendorff_alpha(GivenLabels.of(torch.tensor(triples), 12, 4, 6))

    assert found == pytest.approx(0.743, abs=5e-4)


@pytest.mark.parametrize(
    "triples",
    [
        pytest.param([(0, 0, 1), (1, 0, 2)], id="no sample has two labels"),
        pytest.param([(0, 0, 1), (0, 1, 1)], id="all labels name one class"),
        pytest.param([], id="no labels"),
    ],
)
def test_alpha_is_unknown_where_nothing_can_disagree(triples: list[Triple]) -> None:
    assert np.isnan(krippendorff_alpha(labels_of(triples)))


def test_the_majority_prefers_the_given_label_and_then_the_first_class_of_those_as_frequent() -> (
    None
):
    labels = labels_of(
        [(0, 0, 2), (0, 1, 2), (0, 2, 1), (1, 0, 3), (1, 1, 1), (2, 0, 3), (2, 1, 1)]
    )
    given = torch.full((SAMPLES,), 0)
    given[2] = 3

    found = majority(labels, given)

    assert found[:4].tolist() == [2, 1, 3, 0]


def test_error_rates_are_the_mean_and_quantiles_of_a_beta_distribution() -> None:
    triples = some_triples()
    labels = labels_of(triples)
    wrong = torch.rand(len(labels), generator=torch.Generator().manual_seed(1)).double() / 4
    spread = 0.8

    found = error_rates(labels, wrong, spread)

    mean = float(wrong.mean())
    before = 1 / (spread**2 * mean * (1 - mean)) - 1
    for annotator in range(ANNOTATORS):
        own = wrong[labels.annotators == annotator]
        beta = scipy.stats.beta(
            float(own.sum()) + before * mean,
            len(own) - float(own.sum()) + before * (1 - mean),
        )
        assert float(found.rate[annotator]) == pytest.approx(beta.mean())
        assert [float(found.low[annotator]), float(found.high[annotator])] == pytest.approx(
            beta.ppf([0.025, 0.975])
        )


def test_an_annotator_of_one_label_has_about_the_error_rate_of_all_and_a_wide_interval() -> None:
    triples = [(sample, 0, 0) for sample in range(SAMPLES)] + [(0, 1, 1)]
    labels = GivenLabels.of(torch.tensor(triples), SAMPLES, 2, CLASSES)
    wrong = torch.where(labels.annotators == 1, 1.0, 0.1).double()

    found = error_rates(labels, wrong, 0.3)

    assert float(found.rate[1]) == pytest.approx(float(wrong.mean()), abs=0.02)
    widths = found.high - found.low
    assert widths[1] > 1.2 * widths[0]
