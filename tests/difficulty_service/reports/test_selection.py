"""Which samples the sections show, against plain loops over the rows."""

from collections import Counter

import numpy as np
import pytest

from difficulty_service.reports.confusions import count_confusions, rank_pairs
from difficulty_service.reports.copies import MOST_DECIDED, CopyGroup, copies_data, to_group
from difficulty_service.reports.sections import (
    SHOWN_CLASSES,
    ReportLimits,
    rank_classes,
    select,
)
from difficulty_service.scores.samples import to_samples
from tests.score_files import random_scores


def test_doubtful_samples_are_those_with_a_margin_above_0_the_largest_first() -> None:
    scores = random_scores(600)
    samples = to_samples(scores)

    selection = select(samples, rank_classes(samples), ReportLimits(doubtful=40))

    rows = [(row["label_margin"], i) for i, row in enumerate(scores.table.to_pylist())]
    expected = sorted(((margin, i) for margin, i in rows if margin > 0), reverse=True)
    assert selection.num_doubtful == len(expected) == 102
    assert list(selection.doubtful) == [i for _, i in expected[:40]]


def test_doubtful_samples_are_the_suspicious_ones_where_suspicion_is_known() -> None:
    suspicion = np.random.default_rng(1).normal(-1, size=600)
    suggested = (np.arange(600) + 2) % 3
    scores = random_scores(600, suspicion=suspicion, suggested_label=suggested)
    samples = to_samples(scores)

    selection = select(samples, rank_classes(samples), ReportLimits(doubtful=40))

    expected = sorted(np.flatnonzero(suspicion > 0).tolist(), key=lambda row: -suspicion[row])
    assert selection.num_doubtful == len(expected) > 40
    assert list(selection.doubtful) == expected[:40]
    by_margin = np.array(scores.table["nearest_label"])
    assert (samples.nearest == np.where(suspicion > 0, suggested, by_margin)).all()


def test_unusual_samples_are_far_from_all_but_fit_their_class() -> None:
    samples = to_samples(random_scores(1000))

    selection = select(samples, rank_classes(samples), ReportLimits())

    cut = np.quantile(samples.agnostic, 0.99)
    expected = {i for i in range(1000) if samples.agnostic[i] >= cut and samples.margins[i] <= 0}
    assert set(selection.unusual) == expected
    assert len(expected) > 2
    distances = samples.agnostic[list(selection.unusual)]
    assert (np.diff(distances) <= 0).all()


def test_classes_are_ranked_by_their_mean_and_show_both_ends() -> None:
    scores = random_scores(600, 4)
    samples = to_samples(scores)

    ranked = rank_classes(samples)
    selection = select(samples, ranked, ReportLimits(per_class=5))

    rows = scores.table.to_pylist()
    cut = np.quantile([row["rmd"] for row in rows], 0.95)
    for facts in ranked:
        own = sorted((row["rmd"], i) for i, row in enumerate(rows) if row["label"] == facts.label)
        values = [value for value, _ in own]
        assert (facts.num_samples, facts.mean) == (150, np.mean(values))
        assert facts.median == np.median(values)
        assert facts.hardest_share == np.mean(np.array(values) > cut)
        margins = [rows[i]["label_margin"] for _, i in own]
        assert facts.doubtful_share == np.mean(np.array(margins) > 0)
        assert list(selection.easiest[facts.label]) == [i for _, i in own[:5]]
        assert list(selection.hardest[facts.label]) == [i for _, i in own[::-1][:5]]
    means = [facts.mean for facts in ranked]
    assert means == sorted(means, reverse=True)


def test_pairs_count_both_directions() -> None:
    samples = to_samples(random_scores(900, 5))
    doubtful = np.flatnonzero(samples.margins > 0)

    pairs = rank_pairs(samples, doubtful, limit=3)

    naive = Counter(
        zip(samples.labels[doubtful].tolist(), samples.nearest[doubtful].tolist(), strict=True)
    )
    assert count_confusions(samples) == naive
    for pair in pairs:
        assert pair.first < pair.second
        assert pair.first_as_second == naive[pair.first, pair.second]
        assert pair.second_as_first == naive[pair.second, pair.first]
        assert len(pair.rows) == pair.num_samples
    sizes = [pair.num_samples for pair in pairs]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == max(naive[i, j] + naive[j, i] for i in range(5) for j in range(5))


def test_copies_come_in_groups_those_whose_labels_differ_first() -> None:
    copies: list[str | None] = [None] * 36
    copies[6], copies[11] = "0000003.png", "gone.png"
    # A copy of a copy belongs to its group, whose last one alone has another label.
    for row in range(15, 36, 3):
        copies[row] = f"{row - 3:07d}.png"
    copies[35] = "0000033.png"
    samples = to_samples(random_scores(36, 3, near_duplicate_of=copies))

    selection = select(samples, rank_classes(samples), ReportLimits())

    assert selection.copies == [
        CopyGroup(rows=[12, 35, 15, 18, 21, 24], labels=[(0, 8), (2, 1)]),
        CopyGroup(rows=[3, 6], labels=[(0, 2)]),
    ]
    assert (samples.num_conflicting, selection.copies[0].num_samples) == (1, 9)
    typical = {row for rows in selection.typical.values() for row in rows}
    assert typical.isdisjoint({6, 11, 15, 35})


def test_a_group_of_too_many_copies_has_no_data_and_no_decision() -> None:
    copies: list[str | None] = [None, *["0000000.png"] * MOST_DECIDED, None]
    copies[-1] = "0000200.png"
    large = to_samples(random_scores(MOST_DECIDED + 2, 3, near_duplicate_of=copies))
    small = to_samples(random_scores(MOST_DECIDED, 3, near_duplicate_of=copies[:MOST_DECIDED]))

    groups = [to_group(samples, samples.copies[0]) for samples in (large, small)]
    (none,), (data,) = copies_data(large, groups[:1]), copies_data(small, groups[1:])

    assert [group.is_decidable for group in groups] == [False, True]
    assert none is None
    assert data is not None
    names = [data["labels"][place] for place in data["given"]]
    assert names == [small.name_of(label) for label in small.labels.tolist()]
    assert [data["ids"][place] for place in data["pictured"]] == [
        f"{row:07d}.png" for row in groups[1].rows
    ]


@pytest.mark.slow
def test_no_section_grows_with_the_number_of_classes() -> None:
    samples = to_samples(random_scores(30_000, 10_000))

    selection = select(samples, rank_classes(samples), ReportLimits())

    assert len(selection.hardest) == len(selection.easiest) == SHOWN_CLASSES
    assert len(selection.pairs) == 30
    assert sum(1 for _ in selection.rows()) < 5000


def test_samples_without_scores_are_in_no_class() -> None:
    rmd = [None if row % 3 == 0 else float(row) for row in range(30)]
    samples = to_samples(random_scores(30, 3, rmd=rmd))

    ranked = rank_classes(samples)

    assert [facts.label for facts in ranked] == [2, 1]
