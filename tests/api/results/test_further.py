"""What is offered once a list of doubtful labels is through."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from api.results.conditions import ImageQuery, matching_rows
from api.results.further import AT_A_TIME, find_further
from api.results.image_pages import find_images
from difficulty_service.scores.samples import ScoredSamples

SAMPLES = 200
PROBABLE = ImageQuery(margin="0")


@pytest.fixture(scope="module")
def samples() -> ScoredSamples:
    generator = np.random.default_rng(0)
    suspicion = generator.normal(-2, 2, SAMPLES)
    suspicion[:3] = np.nan
    return ScoredSamples(
        ids=pa.array([str(row) for row in range(SAMPLES)]),
        labels=np.zeros(SAMPLES, np.int64),
        nearest=np.ones(SAMPLES, np.int64),
        margins=generator.normal(size=SAMPLES),
        rmd=generator.normal(size=SAMPLES),
        percentiles=generator.random(SAMPLES),
        copy_of=pa.nulls(SAMPLES, pa.string()),
        names={0: "cat", 1: "dog"},
        suspicion=suspicion,
        suggested=np.ones(SAMPLES, np.int64),
    )


def test_the_likeliest_of_the_other_labels_come_next_with_the_number_expected_to_be_wrong(
    samples: ScoredSamples,
) -> None:
    offered = find_further(samples, PROBABLE, marked=[])

    assert offered is not None
    order = np.argsort(-np.nan_to_num(samples.suspicion, nan=-np.inf))
    others = order[samples.suspicion[order] <= 0][:AT_A_TIME]
    assert offered.first == others[0]
    assert offered.number == AT_A_TIME
    assert offered.expected == pytest.approx(samples.p_wrong[others].sum())
    assert offered.offer.startswith(f"Check 20 more: about {round(offered.expected)} are expected")


def test_the_list_of_them_ends_with_the_last_one(samples: ScoredSamples) -> None:
    marked = np.flatnonzero(samples.suspicion > 0)
    offered = find_further(samples, PROBABLE, marked)
    assert offered is not None

    query = ImageQuery(**offered.conditions)
    rows = [row for row in find_images(samples, query, SAMPLES).rows if row not in marked]

    assert rows[0] == offered.first
    assert len(rows) == AT_A_TIME
    assert query.order == "suspicion"


def test_list_after_list_leads_through_all_labels_once(samples: ScoredSamples) -> None:
    query, seen = PROBABLE, [*np.flatnonzero(samples.suspicion > 0).tolist()]
    shares = []
    while (offered := find_further(samples, query, marked=seen)) is not None:
        query = ImageQuery(**offered.conditions)
        rows = matching_rows(samples, replace(query, mark=""))
        assert rows is not None
        seen += [row for row in rows.tolist() if row not in seen]
        shares.append(offered.share)

    assert sorted(seen) == np.flatnonzero(~np.isnan(samples.suspicion)).tolist()
    assert shares == sorted(shares, reverse=True)
    assert offered is None


def test_labels_that_were_marked_or_verified_are_not_offered(samples: ScoredSamples) -> None:
    first = find_further(samples, PROBABLE, marked=[])
    assert first is not None
    verified = np.zeros(SAMPLES, bool)
    verified[first.first] = True

    after = find_further(replace(samples, verified=verified), PROBABLE, marked=[])
    marked = find_further(samples, PROBABLE, marked=[first.first])

    assert after is not None
    assert marked is not None
    assert after.first == marked.first != first.first


@pytest.mark.parametrize(
    "query",
    [
        ImageQuery(margin="0", label="cat"),
        ImageQuery(sort="hardest"),
        ImageQuery(sort="random", mark="none"),
        ImageQuery(sort="suspicion"),
    ],
)
def test_nothing_is_offered_after_another_list(samples: ScoredSamples, query: ImageQuery) -> None:
    assert find_further(samples, query, marked=[]) is None


def test_nothing_is_offered_without_suspicion(samples: ScoredSamples) -> None:
    assert find_further(replace(samples, suspicion=None), PROBABLE, marked=[]) is None


def test_few_expected_errors_are_said_so(samples: ScoredSamples) -> None:
    sure = replace(samples, suspicion=np.linspace(-9, -8, SAMPLES))

    offered = find_further(sure, ImageQuery(sort="suspicion", p_wrong="0.5"), marked=[])

    assert offered is not None
    assert offered.in_words == "fewer than one is expected to be wrong"
    assert not offered.is_worth_it
