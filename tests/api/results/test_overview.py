"""The overview is the same when it is computed and when it is read."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from api.results.overview import from_json, make_overview, to_json, typical_rows
from difficulty_service.reports.sections import rank_classes
from difficulty_service.scores.samples import ScoredSamples

MakeSamples = Callable[..., ScoredSamples]


@pytest.fixture
def make_samples() -> MakeSamples:
    """Makes random scores of a number of classes, of which some samples are copies."""

    def make(num_samples: int = 300, num_classes: int = 4) -> ScoredSamples:
        generator = np.random.default_rng(0)
        labels = generator.integers(0, num_classes, num_samples)
        margins = generator.normal(-1, 1, num_samples)
        rmd = generator.normal(0, 4, num_samples)
        rmd[5] = margins[5] = np.nan
        ids = [f"{row}.png" for row in range(num_samples)]
        return ScoredSamples(
            ids=pa.array(ids),
            labels=labels,
            nearest=np.where(margins > 0, (labels + 1) % num_classes, labels),
            margins=margins,
            rmd=rmd,
            agnostic=generator.gamma(50, 2, num_samples),
            percentiles=generator.random(num_samples),
            copy_of=pa.array([ids[0] if row in (1, 2) else None for row in range(num_samples)]),
            names={label: f"class {label}" for label in range(num_classes)},
        )

    return make


@pytest.mark.parametrize("num_classes", [2, 4, 60])
def test_what_is_read_is_what_was_written(make_samples: MakeSamples, num_classes: int) -> None:
    overview = make_overview(make_samples(num_classes=num_classes))

    again = from_json(to_json(overview))

    assert again == overview
    assert again.num_classes == num_classes
    assert (again.matrix is None) == (num_classes == 60)


def test_an_overview_without_a_second_class_has_no_hardest_one(make_samples: MakeSamples) -> None:
    again = from_json(to_json(make_overview(make_samples(num_classes=1))))

    assert again.summary.hardest is None
    assert again.pictured_classes[0].num_samples == 299


def test_an_overview_does_not_grow_with_the_samples(make_samples: MakeSamples) -> None:
    small, large = (to_json(make_overview(make_samples(number))) for number in (1000, 30_000))

    assert len(large) < 1.2 * len(small)


def test_classes_are_in_the_order_of_their_difficulty(make_samples: MakeSamples) -> None:
    samples = make_samples(num_classes=60)

    overview = make_overview(samples)

    ranked = [facts.label for facts in rank_classes(samples)]
    assert [facts.label for facts in overview.pictured_classes] == ranked[:25]
    assert [row.facts.label for row in overview.class_rows] == ranked[:50]


def test_typical_samples_are_the_easiest_of_a_class_without_copies(
    make_samples: MakeSamples,
) -> None:
    samples = make_samples()
    rmd = samples.rmd.tolist()
    of_class = [row for row in range(300) if samples.labels[row] == 2 and row not in (1, 2, 5)]
    easiest = sorted(of_class, key=lambda row: rmd[row])

    assert typical_rows(samples, 2, 6, without=easiest[1]) == [easiest[0], *easiest[2:7]]
    assert typical_rows(samples, 99, 6, without=-1) == []
