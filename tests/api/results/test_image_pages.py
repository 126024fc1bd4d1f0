"""The pages show the images that fulfil all conditions, in order, each exactly once."""

import hashlib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from api.results import first_places
from api.results.conditions import ALIKE, NOTHING_BESIDE, Beside, ImageQuery
from api.results.image_pages import SORTS, find_images, neighbours, orders_of
from api.results.score_pages import BadQuery
from difficulty_service.reports.sample_columns import SampleColumn, to_sample_column
from difficulty_service.scores.samples import ScoredSamples

SAMPLES = 400
NAMES = {0: "bird", 1: "cat", 3: "dog"}


@pytest.fixture(scope="module")
def samples() -> ScoredSamples:
    """Samples with many equal and some missing values."""
    generator = np.random.default_rng(0)

    def numbers() -> np.ndarray:
        values = generator.integers(-9, 9, SAMPLES).astype(np.float64)
        values[generator.random(SAMPLES) < 0.05] = np.nan
        return values

    return ScoredSamples(
        ids=pa.array([f"{row:03}.png" for row in range(SAMPLES)]),
        labels=generator.choice([0, 1, 3], SAMPLES),
        nearest=generator.choice([-1, 0, 1, 3], SAMPLES),
        margins=numbers(),
        rmd=numbers(),
        agnostic=numbers(),
        percentiles=generator.random(SAMPLES),
        copy_of=pa.nulls(SAMPLES, pa.string()),
        names=NAMES,
    )


def walk(
    samples: ScoredSamples, query: ImageQuery, limit: int = 7, beside: Beside = NOTHING_BESIDE
) -> list[int]:
    """Rows of all pages of a query."""
    rows: list[int] = []
    while True:
        page = find_images(samples, query, limit, beside)
        assert len(page.rows) <= limit
        rows += page.rows
        if not page.next:
            assert len(rows) == page.num_matching
            return rows
        query = replace(query, after=page.next)


def ordered(values: np.ndarray) -> list[int]:
    """Rows by value, those without one last, equal ones as in the file: by Python's own sort."""
    return sorted(range(SAMPLES), key=lambda row: (np.isnan(values[row]), values[row], row))


@pytest.mark.parametrize("sort", [sort for sort in SORTS if sort != "suspicion"])
def test_the_pages_together_are_the_whole_order(samples: ScoredSamples, sort: str) -> None:
    expected = {
        "doubtful": ordered(-samples.margins),
        "hardest": ordered(-samples.rmd),
        "easiest": ordered(samples.rmd),
        "unusual": ordered(-samples.agnostic),
        "file": list(range(SAMPLES)),
        "random": ordered(np.random.default_rng(SAMPLES).random(SAMPLES)),
    }

    assert walk(samples, ImageQuery(sort=sort)) == expected[sort]


def test_the_likeliest_to_be_wrong_come_first_where_the_labels_are_judged(
    samples: ScoredSamples,
) -> None:
    judged = replace(samples, suspicion=np.roll(samples.margins, 5))

    rows = walk(judged, ImageQuery(sort="suspicion"))
    likely = walk(judged, ImageQuery(sort="suspicion", p_wrong="0.9"))

    assert rows == ordered(-judged.suspicion)
    assert likely == [row for row in rows if judged.suspicion[row] > np.log(9)]
    with pytest.raises(BadQuery, match="no suspicion"):
        walk(samples, ImageQuery(sort="suspicion"))


@pytest.mark.parametrize("sort", [sort for sort in SORTS if sort != "suspicion"])
@pytest.mark.parametrize("limit", [1, 7, 40])
def test_the_first_of_many_images_are_those_of_the_whole_order(
    samples: ScoredSamples, sort: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = walk(samples, ImageQuery(sort=sort))
    monkeypatch.setattr(first_places, "BLOCK", 3)

    page = find_images(samples, ImageQuery(sort=sort), limit)

    assert page.rows == whole[:limit]


@pytest.mark.parametrize(
    ("query", "order"),
    [
        (ImageQuery(sort="random"), "random"),
        (ImageQuery(sort="random", mark="none"), "random"),
        (ImageQuery(sort="random", label="cat"), ""),
        (ImageQuery(sort="random", mark="keep"), ""),
        (ImageQuery(sort="random", verified="all"), ""),
        (ImageQuery(sort="random", margin="0"), ""),
        (ImageQuery(sort="random", like="3"), ""),
        (ImageQuery(sort="random", text="snow"), ""),
        (ImageQuery(sort="random", columns=(("is.camera", "A"),)), ""),
        (ImageQuery(sort="random", share="2of3"), "random"),
        (ImageQuery(sort="asc.camera"), ""),
        (ImageQuery(sort="doubtful", margin="0"), "doubtful"),
        (ImageQuery(sort="suspicion", p_wrong="0.3", mark="none"), "suspicion"),
        (ImageQuery(sort="random", p_wrong="0.3"), ""),
        (ImageQuery(sort="no order"), ""),
    ],
)
def test_a_list_that_leaves_some_out_is_in_no_order_of_all(query: ImageQuery, order: str) -> None:
    assert query.order == order


def test_images_without_features_are_not_among_those_closest_to_words(
    samples: ScoredSamples,
) -> None:
    closeness = np.linspace(-1, 1, len(samples), dtype=np.float32)
    closeness[::2] = np.nan
    query = ImageQuery(text="snow", pmax="50", sort=ALIKE)

    page = find_images(samples, query, len(samples), Beside(closeness=closeness))
    around = neighbours(samples, query, page.rows[2], 3, Beside(closeness=closeness))

    known = np.flatnonzero((samples.percentiles <= 0.5) & ~np.isnan(closeness))
    assert page.rows == known[::-1].tolist()
    assert (around.place, around.previous, around.following) == (2, *page.rows[1:2], page.rows[3:6])


def test_suspicion_orders_and_filters_the_images_where_the_scores_have_it(
    samples: ScoredSamples,
) -> None:
    judged = replace(samples, suspicion=-np.roll(samples.margins, 5))

    rows = walk(judged, ImageQuery(sort="doubtful", margin="2"))

    assert rows == [row for row in ordered(-judged.suspicion) if judged.suspicion[row] > 2]
    assert rows != walk(samples, ImageQuery(sort="doubtful", margin="2"))


def test_conditions_hold_together(samples: ScoredSamples) -> None:
    query = ImageQuery("cat", "dog", pmin="20", pmax="90", margin="-3", q="1", sort="hardest")

    rows = walk(samples, query)

    assert rows == [
        row
        for row in ordered(-samples.rmd)
        if samples.labels[row] == 1
        and samples.nearest[row] == 3
        and 0.2 <= samples.percentiles[row] <= 0.9
        and samples.margins[row] > -3
        and "1" in f"{row:03}.png"
    ]
    assert rows


def test_marks_are_a_condition(samples: ScoredSamples) -> None:
    marked = {3: "keep", 5: "drop", 9: "drop"}

    def rows(mark: str) -> list[int]:
        with_it = [row for row, each in marked.items() if mark in {each, "any", "none"}]
        query = ImageQuery(mark=mark, sort="file")
        return find_images(samples, query, SAMPLES, Beside(with_it)).rows

    assert rows("any") == [3, 5, 9]
    assert rows("drop") == [5, 9]
    assert rows("relabel") == []
    assert rows("none") == [row for row in range(SAMPLES) if row not in marked]


def camera_and_weight() -> dict[str, SampleColumn]:
    """Two columns with many equal and some missing values."""
    generator = np.random.default_rng(7)
    cameras = [None if each == 3 else "ABC"[each] for each in generator.integers(0, 4, SAMPLES)]
    weights = [None if each == 9 else each / 2 for each in generator.integers(0, 10, SAMPLES)]
    columns = {}
    for name, values in (("camera", cameras), ("weight", weights)):
        column = to_sample_column(name, pa.chunked_array([pa.array(values)]))
        assert isinstance(column, SampleColumn)
        columns[name] = column
    return columns


@pytest.mark.parametrize("direction", ["asc", "desc"])
@pytest.mark.parametrize("name", ["camera", "weight"])
def test_the_pages_of_an_order_by_column_are_the_whole_order(
    samples: ScoredSamples, direction: str, name: str
) -> None:
    columns = camera_and_weight()
    sign = 1 if direction == "asc" else -1
    query = ImageQuery(sort=f"{direction}.{name}", q="1", columns=(("min.weight", "1"),))

    rows = walk(samples, query, beside=Beside(columns=columns))

    fulfil = [row for row in range(SAMPLES) if "1" in f"{row:03}"]
    weights = columns["weight"].numbers
    expected = ordered(sign * columns[name].numbers)
    assert rows == [row for row in expected if row in fulfil and weights[row] >= 1]
    found = [neighbours(samples, query, row, 2, Beside(columns=columns)) for row in rows]
    assert [each.previous for each in found] == [None, *rows[:-1]]


def test_a_cursor_of_another_value_of_a_column_is_refused(samples: ScoredSamples) -> None:
    beside = Beside(columns=camera_and_weight())
    of_a, of_b = (ImageQuery(columns=(("is.camera", each),)) for each in "AB")
    cursor = find_images(samples, of_a, 10, beside).next

    with pytest.raises(BadQuery, match="other conditions"):
        find_images(samples, replace(of_b, after=cursor), 10, beside)


def test_neighbours_follow_the_order_of_the_list(samples: ScoredSamples) -> None:
    query = ImageQuery(label="dog")
    rows = walk(samples, query)

    found = [neighbours(samples, query, row, 3) for row in rows]

    assert [each.previous for each in found] == [None, *rows[:-1]]
    assert [each.following for each in found] == [
        rows[place : place + 3] for place in range(1, len(rows) + 1)
    ]
    assert [each.place for each in found] == [*range(len(rows))]


def test_text_in_the_names_of_several_classes_is_all_of_them_unless_one_has_it_as_its_name(
    samples: ScoredSamples,
) -> None:
    both = replace(samples, names={0: "bird", 1: "Thunderbird", 3: "dog"})

    assert {*both.labels[walk(both, ImageQuery(label="BIRD"))].tolist()} == {0, 1}
    assert {*both.labels[walk(both, ImageQuery(label="bird"))].tolist()} == {0}
    assert {*both.nearest[walk(both, ImageQuery(near="d"))].tolist()} == {0, 1, 3}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (ImageQuery(label="horse"), "label"),
        (ImageQuery(near="horse"), "near"),
        (ImageQuery(pmin="low"), "pmin"),
        (ImageQuery(margin="nan"), "margin"),
        (ImageQuery(mark="maybe"), "mark"),
        (ImageQuery(sort="name"), "sort"),
        (ImageQuery(after="no cursor"), "after"),
    ],
)
def test_a_condition_that_cannot_be_read_is_named(
    samples: ScoredSamples, query: ImageQuery, field: str
) -> None:
    with pytest.raises(BadQuery) as caught:
        find_images(samples, query, 10)

    assert caught.value.field == field


def test_neighbours_in_an_order_that_does_not_exist_name_it(samples: ScoredSamples) -> None:
    with pytest.raises(BadQuery, match="no order 'name'"):
        neighbours(samples, ImageQuery(sort="name"), 0, 1)


def test_a_cursor_of_other_conditions_is_refused(samples: ScoredSamples) -> None:
    cursor = find_images(samples, ImageQuery(), 10).next

    with pytest.raises(BadQuery, match="other conditions"):
        find_images(samples, ImageQuery(label="cat", after=cursor), 10)


def test_without_distances_to_all_samples_there_is_no_order_by_them(samples: ScoredSamples) -> None:
    plain = replace(samples, agnostic=None)

    with pytest.raises(BadQuery, match="has no md_agnostic") as caught:
        find_images(plain, ImageQuery(sort="unusual"), 7)

    assert caught.value.remedy == 'score with "scorers": ["rmd"]'
    assert "unusual" in orders_of(samples)
    assert "unusual" not in orders_of(plain)


def test_what_was_decided_in_an_earlier_round_is_hidden_until_it_is_asked_for(
    samples: ScoredSamples,
) -> None:
    verified = np.arange(SAMPLES) % 3 == 0
    decided = replace(samples, verified=verified)

    hidden, only, every = (
        walk(decided, ImageQuery(sort="file", verified=which)) for which in ("", "only", "all")
    )

    assert hidden == np.flatnonzero(~verified).tolist()
    assert only == np.flatnonzero(verified).tolist()
    assert every == list(range(SAMPLES))
    assert walk(samples, ImageQuery(sort="file", verified="only")) == []
    with pytest.raises(BadQuery, match="'some' is unknown; use only, all, or nothing"):
        walk(decided, ImageQuery(verified="some"))


@pytest.mark.parametrize("shares", [1, 3, 99])
def test_shares_are_disjoint_and_complete_and_follow_from_the_ids(
    samples: ScoredSamples, shares: int
) -> None:
    found = [
        walk(samples, ImageQuery(share=f"{number}of{shares}", sort="file"))
        for number in range(1, shares + 1)
    ]

    assert sorted(row for rows in found for row in rows) == list(range(SAMPLES))
    places = {row: share for share, rows in enumerate(found) for row in rows}
    for row, sample_id in enumerate(samples.ids.to_pylist()):
        digest = hashlib.blake2b(sample_id.encode(), digest_size=8).digest()
        assert places[row] == int.from_bytes(digest, "little") % shares


@pytest.mark.parametrize("share", ["0of3", "4of3", "1of0", "1of100", "of", "1", "1of3 "])
def test_a_share_that_cannot_be_read_is_refused_with_examples(
    samples: ScoredSamples, share: str
) -> None:
    with pytest.raises(BadQuery, match=r"there is no share .* use 1of3, 2of3 or 3of3"):
        walk(samples, ImageQuery(share=share))
