"""Columns of any type become categories, ranges or texts, or say why they are not shown."""

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest

from difficulty_service.reports.sample_columns import (
    MOST_VALUES,
    MOST_WHOLE_VALUES,
    SampleColumn,
    fault_columns,
    to_sample_column,
    with_values,
)


def shown(values: object, kind: pa.DataType | None = None) -> SampleColumn:
    column = to_sample_column("x", pa.chunked_array([pa.array(values, kind)]))
    assert isinstance(column, SampleColumn)
    return column


def test_a_text_of_few_values_is_a_category_in_alphabetical_order() -> None:
    column = shown(["night", "day", None, "night"])

    assert (column.kind, column.categories) == ("category", ("day", "night"))
    assert column.counts == [1, 2, 1]
    assert column.at([0, 1, 2]) == ["night", "day", None]
    np.testing.assert_array_equal(column.numbers, [1, 0, np.nan, 1])


def test_a_dictionary_a_boolean_and_few_whole_numbers_are_categories() -> None:
    encoded = shown(pa.array(["b", "a", None]).dictionary_encode())

    assert (encoded.kind, encoded.categories) == ("category", ("a", "b"))
    assert shown([True, None, False]).at(range(3)) == ["true", None, "false"]
    assert shown([10, 9, None]).categories == ("9", "10")


@pytest.mark.parametrize("number", [MOST_VALUES, MOST_VALUES + 1])
def test_a_text_of_many_values_is_searched(number: int) -> None:
    column = shown([f"camera {each}" for each in range(number)])

    assert column.kind == ("category" if number == MOST_VALUES else "text")
    assert column.can_sort == (number == MOST_VALUES)
    assert column.at([7]) == ["camera 7"]


def test_blank_texts_are_no_value_which_no_address_could_ask_for() -> None:
    column = shown(["night", "", " \t", None])

    assert (column.categories, column.counts) == (("night",), [1, 3])
    assert column.at(range(4)) == ["night", None, None, None]
    assert to_sample_column("x", pa.chunked_array([["", " "]])) == "it has no value"


def test_long_texts_are_shortened_where_they_are_shown() -> None:
    column = shown(["x" * 10_000, None])

    assert column.kind == "text"
    assert [len(text or "") for text in column.at([0, 1])] == [200, 0]
    assert column.is_missing.tolist() == [False, True]


def test_many_whole_numbers_and_all_fractions_have_a_range() -> None:
    whole, fraction = shown([*range(MOST_WHOLE_VALUES + 1)]), shown([0.25, None, np.nan, np.inf])

    assert (whole.kind, whole.bounds) == ("number", ("0", str(MOST_WHOLE_VALUES)))
    assert (fraction.kind, fraction.bounds) == ("number", ("0.25", "0.25"))
    assert fraction.at(range(4)) == ["0.25", None, None, "inf"]


def test_whole_numbers_that_float64_cannot_hold_are_names() -> None:
    numbers = [2**60 + each for each in range(2 * MOST_WHOLE_VALUES)]

    column = shown(numbers)

    assert column.at(range(len(numbers))) == [str(number) for number in numbers]


def test_dates_without_times_are_days() -> None:
    column = shown([date(1999, 12, 31), None, date(2024, 2, 29)])

    assert (column.kind, column.is_whole) == ("date", True)
    assert column.at(range(3)) == ["1999-12-31", None, "2024-02-29"]
    assert column.bounds == ("1999-12-31", "2024-02-29")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["2024-02-29", None, "1999-12-31"], ["2024-02-29", None, "1999-12-31"]),
        (
            ["2024-02-29T12:30", "2024-02-29 12:30:01.5"],
            ["2024-02-29 12:30:00", "2024-02-29 12:30:01"],
        ),
        (
            ["2024-02-29T00:30:00+01:00", "2024-02-29T12:30Z"],
            ["2024-02-28 23:30:00 UTC", "2024-02-29 12:30:00 UTC"],
        ),
    ],
)
def test_texts_that_are_dates_are_dates(texts: list[str], expected: list[str]) -> None:
    column = shown(texts)

    assert (column.kind, column.at(range(len(texts)))) == ("date", expected)


@pytest.mark.parametrize("other", ["2024-02-30", "2024-02-29T25:00", "2024-02-29T12:00Z", "soon"])
def test_texts_of_which_one_is_no_date_are_texts(other: str) -> None:
    assert shown(["2024-02-29", other]).kind == "category"


def test_moments_with_a_zone_are_shown_in_utc() -> None:
    zone = timezone(timedelta(hours=2))
    moments = [datetime(2024, 5, 1, 1, 30, tzinfo=zone), datetime(1960, 1, 1, tzinfo=UTC)]

    column = shown(moments, pa.timestamp("ns", "+02:00"))

    assert column.at([0, 1]) == ["2024-04-30 23:30:00 UTC", "1960-01-01 00:00:00 UTC"]


@pytest.mark.parametrize(
    ("values", "kind", "reason"),
    [
        ([[1], [2]], pa.list_(pa.int64()), "list<"),
        ([{"a": 1}], pa.struct([("a", pa.int64())]), "struct<"),
        ([b"x"], pa.binary(), "binary"),
        ([None], pa.null(), "null"),
        ([None, None], pa.string(), "no value"),
        ([np.nan], pa.float64(), "no value"),
    ],
)
def test_what_cannot_be_shown_has_a_reason(values: object, kind: pa.DataType, reason: str) -> None:
    column = to_sample_column("x", pa.chunked_array([pa.array(values, kind)]))

    assert isinstance(column, str)
    assert reason in column


def test_some_samples_keep_their_values() -> None:
    assert shown(["a", None, "b"]).take([2, 1, -1]).at(range(3)) == ["b", None, None]
    assert shown([0.5, 1.5]).take([1, -1]).at(range(2)) == ["1.5", None]
    assert shown(["a" * 300, None, "b"]).take([2, 1, -1]).at(range(3)) == ["b", None, None]


def test_faults_are_a_column_where_scores_tell_how_images_look() -> None:
    none = pa.table({"image_fault": pa.array([None, None], pa.string()).dictionary_encode()})
    some = pa.table({"image_fault": pa.array([None, "dark"]).dictionary_encode()})

    assert fault_columns(pa.table({"rmd": [1.0]})) == {}
    assert fault_columns(none)["image_fault"].at([0, 1]) == [None, None]
    assert with_values(fault_columns(none)) == {}
    assert [*with_values(fault_columns(some))] == ["image_fault"]
    assert fault_columns(some)["image_fault"].at([0, 1]) == [None, "dark"]
