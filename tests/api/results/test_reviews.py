"""What several reviewers decided is compared and merged as by counting sample by sample."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest
import torch

from api.jobs.reviewers import ReviewMarks
from api.results.overview import make_overview
from api.results.reviews import JobReview
from api.results.score_columns import ScoreColumns
from api.storage.tables import FINAL
from difficulty_service.analyses.annotators.given_labels import GivenLabels, krippendorff_alpha
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.samples import to_samples
from tests.factories import score_table

pytestmark = pytest.mark.analysis("annotators")

CLASSES = ("cat", "dog", "owl")
KEEP, DROP = (Mark.KEEP, None), (Mark.DROP, None)
Decision = tuple[Mark, str | None]
Given = Mapping[tuple[int, str], Decision]  # by row and owner


def to(label: str) -> Decision:
    return Mark.RELABEL, label


def scores_of(labels: list[int]) -> ScoreColumns:
    number = len(labels)
    table = score_table(
        labels,
        CLASSES,
        rmd=np.arange(number, dtype=float),
        nearest_label=[0] * number,
        label_margin=[0.0] * number,
        percentile=[0.0] * number,
    )
    provenance = Provenance.of({"class_names": list(CLASSES)})
    samples = to_samples(ScoreFile(table, provenance))
    return ScoreColumns(samples, provenance, make_overview(samples), {})


def review_of(
    labels: list[int], given: Given, orders: Mapping[int, str] | None = None
) -> JobReview:
    keys = sorted(given)
    owners = sorted({owner for _, owner in keys})
    decided = list(dict.fromkeys(given[key] for key in keys))
    names = ["", "random"]
    marks = ReviewMarks(
        rows=np.array([row for row, _ in keys], np.int64),
        owners=np.array([owners.index(owner) for _, owner in keys], np.int64),
        decisions=np.array([decided.index(given[key]) for key in keys], np.int64),
        orders=np.array(
            [names.index((orders or {}).get(place, "")) for place in range(len(keys))], np.int64
        ),
        at=np.arange(len(keys), dtype=float),
        owner_ids=owners,
        decided=decided,
        order_names=names,
    )
    return JobReview(scores_of(labels), marks)


def merged_of(review: JobReview) -> dict[str, tuple[object, ...]]:
    table = pa.concat_tables(review.merged_tables())
    return {
        row["sample_id"]: (row["mark"], row["label"], row["basis"], row["reviewers"])
        for row in table.to_pylist()
    }


def random_decisions(seed: int, samples: int = 40) -> tuple[list[int], dict[tuple[int, str], str]]:
    """Labels, and by row and reviewer the class that was decided, or nothing for dropping."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, samples).tolist()
    choices = [*CLASSES, ""]
    decided = {
        (row, owner): choices[generator.integers(0, 4)]
        for row in range(samples)
        for owner in "abcd"
        if generator.random() < 0.6
    }
    return labels, decided


def as_marks(labels: list[int], decided: Mapping[tuple[int, str], str]) -> Given:
    return {
        (row, owner): DROP if not name else KEEP if CLASSES[labels[row]] == name else to(name)
        for (row, owner), name in decided.items()
    }


def naive_alpha(decided: Mapping[tuple[int, str], str]) -> float:
    """From all pairs of decisions about the same sample, as Krippendorff (2011) defines it."""
    coincidences: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in {row for row, _ in decided}:
        values = [value for (each, _), value in decided.items() if each == row]
        for pair in permutations(values, 2):
            coincidences[pair] += 1 / (len(values) - 1)
    totals: defaultdict[str, float] = defaultdict(float)
    for (first, _), number in coincidences.items():
        totals[first] += number
    number = sum(totals.values())
    observed = sum(each for (one, other), each in coincidences.items() if one != other)
    expected = sum(totals[one] * totals[other] for one, other in permutations(totals, 2))
    return 1 - (number - 1) * observed / expected


@pytest.mark.parametrize("seed", range(5))
def test_alpha_is_that_of_all_pairs_of_decisions(seed: int) -> None:
    labels, decided = random_decisions(seed)

    alpha = review_of(labels, as_marks(labels, decided)).votes.alpha

    triples = [
        (row, "abcd".index(owner), [*CLASSES, ""].index(name))
        for (row, owner), name in decided.items()
    ]
    tensors = krippendorff_alpha(GivenLabels.of(torch.tensor(triples), 40, 4, 4))
    assert alpha == pytest.approx(naive_alpha(decided))
    assert alpha == pytest.approx(tensors)


@pytest.mark.parametrize(
    "given", [{}, {(0, "a"): KEEP, (1, "b"): DROP}, {(0, "a"): DROP, (0, "b"): DROP}]
)
def test_there_is_no_alpha_where_nothing_can_be_compared(given: Given) -> None:
    assert review_of([0, 1], given).votes.alpha is None


def test_keeping_a_label_and_relabelling_to_it_are_one_decision() -> None:
    review = review_of([0, 1], {(0, "a"): KEEP, (0, "b"): to("cat"), (1, "a"): KEEP})

    assert review.disagreed.tolist() == []
    assert merged_of(review) == {
        "s0": ("keep", None, "unanimous", 2),
        "s1": ("keep", None, "unanimous", 1),
    }


@pytest.mark.parametrize("seed", range(5))
def test_what_most_reviewers_decided_is_merged_and_ties_are_left_out(seed: int) -> None:
    labels, decided = random_decisions(seed)

    review = review_of(labels, as_marks(labels, decided))

    expected, tied, differing = {}, [], []
    for row in range(len(labels)):
        names = Counter(name for (each, _), name in decided.items() if each == row)
        ranked = names.most_common(2)
        differing += [row] if len(names) > 1 else []
        if len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
            tied.append(row)
        elif ranked:
            (mark, label) = as_marks(labels, {(row, ""): ranked[0][0]})[row, ""]
            basis = "unanimous" if len(names) == 1 else "majority"
            expected[f"s{row}"] = (mark.value, label, basis, names.total())
    assert tied
    assert merged_of(review) == expected
    assert review.merged.tied.tolist() == tied
    assert review.disagreed.tolist() == differing


def test_a_final_decision_counts_whatever_reviewers_decided_and_is_no_vote() -> None:
    given = {
        (0, "a"): KEEP,
        (0, "b"): DROP,
        (0, FINAL): to("owl"),
        (1, "a"): KEEP,
        (1, "b"): KEEP,
        (1, FINAL): DROP,
        (2, FINAL): KEEP,
    }

    review = review_of([0, 1, 2], given)

    assert merged_of(review) == {
        "s0": ("relabel", "owl", "adjudicated", 2),
        "s1": ("drop", None, "adjudicated", 2),
        "s2": ("keep", None, "adjudicated", 0),
    }
    assert review.merged.tied.tolist() == []
    assert review.disagreed.tolist() == [0]
    assert review.num_compared == 2


def test_an_order_is_kept_where_all_reviewers_met_the_sample_in_it() -> None:
    given = {(0, "a"): KEEP, (0, "b"): KEEP, (1, "a"): KEEP, (1, "b"): KEEP}

    review = review_of([0, 1], given, orders={0: "random", 1: "random", 2: "random"})

    table = pa.concat_tables(review.merged_tables())
    assert table["order"].to_pylist() == ["random", ""]
    assert table["marked_at"].cast(pa.int64()).to_pylist() == [1_000_000, 3_000_000]


def test_a_box_that_is_misplaced_is_another_decision_than_its_class_or_dropping_it() -> None:
    misplaced = (Mark.MISPLACED, None)
    review = review_of(
        [0, 1, 2],
        {
            (0, "a"): misplaced,
            (0, "b"): KEEP,
            (0, "c"): misplaced,
            (1, "a"): misplaced,
            (1, "b"): misplaced,
        }
        | {(2, "a"): misplaced, (2, "b"): DROP},
    )

    assert review.disagreed.tolist() == [0, 2]
    assert merged_of(review) == {
        "s0": ("misplaced", None, "majority", 3),
        "s1": ("misplaced", None, "unanimous", 2),
    }
    assert review.merged.tied.tolist() == [2]
