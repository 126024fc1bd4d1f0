"""Texts are looked for in one pass, few at a time, and a search ends where it is told to."""

import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from api.results import column_conditions as searched
from api.results.column_conditions import (
    LONGEST_SOUGHT,
    MOST_TEXTS,
    column_conditions,
    column_masks,
    nothing,
)
from api.results.score_pages import BadQuery
from difficulty_service.reports.sample_columns import (
    SampleColumn,
    SampleColumns,
    to_sample_column,
)

LETTERS = "abAB.*+?()[]{}|^$\\-#&~ \t\n\x00é"
ROWS = 300
DAY = 86_400


def column(name: str, values: list[object]) -> SampleColumn:
    """A column of a table."""
    made = to_sample_column(name, pa.chunked_array([values]))
    assert isinstance(made, SampleColumn)
    return made


@pytest.fixture(scope="module")
def columns() -> SampleColumns:
    """Texts with signs that mean something in a pattern, categories, numbers and days."""
    generator = random.Random(0)  # noqa: S311 - no secret

    def text() -> str | None:
        letters = generator.choices(LETTERS, k=generator.randrange(12))
        return None if generator.random() < 0.1 else "".join(letters)

    notes = [text() for _ in range(ROWS)]
    notes[0] = "x" * 300  # no category
    cameras = [generator.choice(["A", "B", "C", None]) for _ in range(ROWS)]
    weights = [None if row % 7 == 0 else row / 4 for row in range(ROWS)]
    days = pa.array([DAY * (row % 40) for row in range(ROWS)], pa.timestamp("s")).to_pylist()
    made = [("note", notes), ("camera", cameras), ("weight", weights), ("taken", days)]
    return {name: column(name, list(values)) for name, values in made}


def rows_of(
    columns: SampleColumns, *parameters: tuple[str, str], go_on: Callable[[], None] = nothing
) -> list[int]:
    """Rows that fulfil the conditions on one parameter."""
    (mask,) = column_masks(columns, column_conditions(parameters), go_on)
    return np.flatnonzero(mask).tolist()


def texts_of(columns: SampleColumns) -> list[str | None]:
    texts = columns["note"].texts
    assert texts is not None
    return list(texts.to_pylist())


def test_one_of_several_texts_inside_is_enough_whatever_their_signs_and_cases(
    columns: SampleColumns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searched, "SLICE_BYTES", 64)
    generator = random.Random(1)  # noqa: S311 - no secret
    texts = texts_of(columns)

    for _ in range(200):
        number = generator.randint(1, MOST_TEXTS)
        sought = [
            "".join(generator.choices(LETTERS, k=generator.randint(1, 3))) for _ in range(number)
        ]
        sought = [each for each in sought if each.strip()] or ["a"]
        expected = [
            row
            for row, text in enumerate(texts)
            if text is not None and any(each.lower() in text.lower() for each in sought)
        ]
        assert rows_of(columns, *(("has.note", each) for each in sought)) == expected


def test_one_of_several_whole_texts_is_enough(columns: SampleColumns) -> None:
    texts = texts_of(columns)
    sought = [text for text in texts[:20] if text is not None and text.strip()][:8]
    conditions = [("is.note", each) for each in sought]
    expected = [row for row, text in enumerate(texts) if text in sought]
    missing = [row for row, text in enumerate(texts) if text is None]

    assert rows_of(columns, *conditions) == expected
    assert rows_of(columns, *conditions, ("is.note", "(none)")) == sorted(expected + missing)
    assert rows_of(columns, ("is.note", "(some)")) == sorted({*range(ROWS)} - {*missing})


def test_one_of_several_ends_of_a_range_is_enough(columns: SampleColumns) -> None:
    weights, days = columns["weight"].numbers, columns["taken"].numbers / DAY

    assert (
        rows_of(columns, ("min.weight", "50"), ("min.weight", "20"))
        == np.flatnonzero(weights >= 20).tolist()
    )
    assert (
        rows_of(columns, ("max.weight", "50"), ("max.weight", "20"))
        == np.flatnonzero(weights <= 50).tolist()
    )
    moments = [("max.taken", "1970-01-05"), ("max.taken", "1970-01-06T00:00")]
    assert rows_of(columns, *moments) == np.flatnonzero(days <= 5).tolist()


def test_a_column_of_texts_is_passed_once_however_many_are_looked_for(
    columns: SampleColumns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searched, "SLICE_BYTES", 256)

    def steps(*sought: str) -> int:
        number = 0

        def count() -> None:
            nonlocal number
            number += 1

        rows_of(columns, *(("has.note", each) for each in sought), go_on=count)
        return number

    assert steps("a") > 10
    assert steps(*"abcdefghij") == steps("a")


def test_a_search_ends_at_the_slice_in_which_it_is_told_to(
    columns: SampleColumns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searched, "SLICE_BYTES", 256)
    left = 3

    def end() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        rows_of(columns, ("has.note", "a"), go_on=end)
    assert left == 0


def test_more_texts_than_allowed_are_refused_before_any_is_looked_for(
    columns: SampleColumns,
) -> None:
    inside = [("has.note", f"text {number}") for number in range(MOST_TEXTS - 1)]
    whole = [("is.note", "a"), ("is.note", "(none)")]

    def never() -> None:
        pytest.fail("a search began")

    allowed = column_masks(columns, column_conditions([*inside, *whole]))
    assert len(list(allowed)) == 2
    with pytest.raises(BadQuery, match=r"^11 texts are more than the 10 that"):
        list(column_masks(columns, column_conditions([*inside, *whole, ("is.note", "b")]), never))


def test_values_of_categories_are_no_texts_that_are_looked_for(columns: SampleColumns) -> None:
    many = {f"kind {number}": f"kind {number}" for number in range(50)}
    kinds = column("kind", [*many])

    found = rows_of({**columns, "kind": kinds}, *(("is.kind", each) for each in many))

    assert found == list(range(50))


def test_a_long_text_is_refused_which_would_be_found_too_slowly(columns: SampleColumns) -> None:
    assert rows_of(columns, ("has.note", "x" * LONGEST_SOUGHT)) == [0]
    with pytest.raises(BadQuery, match="more than 200 characters") as caught:
        rows_of(columns, ("has.note", "x" * (LONGEST_SOUGHT + 1)))
    assert (caught.value.field, caught.value.remedy) == ("has.note", "look for a part of it")
