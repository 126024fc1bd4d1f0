"""Feature vectors in the body of a request."""

import contextlib
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from api.http.problems import Problem
from api.online.feature_bodies import (
    Vectors,
    label_indices,
    parse_json,
    read_arrow,
)
from api.online.feature_bodies import read_json as read_parsed


def read_json(body: bytes, dim: int, max_rows: int) -> Vectors:
    return read_parsed(parse_json(body), dim, max_rows)


def arrow(columns: dict[str, Any]) -> bytes:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def fixed_lists(rows: list[list[float]]) -> pa.Array:
    flat = pa.array(np.array(rows, np.float32).ravel())
    return pa.FixedSizeListArray.from_arrays(flat, len(rows[0]))


def test_json_and_arrow_give_the_same_vectors() -> None:
    rows = [[1.0, 2.0], [3.0, 4.0]]

    from_json = read_json(json.dumps({"features": rows, "labels": ["cat", None]}).encode(), 2, 100)
    from_arrow = read_arrow(arrow({"features": fixed_lists(rows), "label": ["cat", None]}), 2, 100)

    np.testing.assert_array_equal(from_json.features, rows)
    np.testing.assert_array_equal(from_arrow.features, rows)
    assert list(from_json.labels) == list(from_arrow.labels) == ["cat", None]


def test_lists_of_any_length_and_half_precision_are_read_from_arrow() -> None:
    column = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64()))

    vectors = read_arrow(arrow({"features": column.slice(1)}), 2, 100)

    np.testing.assert_array_equal(vectors.features, [[3.0, 4.0]])
    assert list(vectors.labels) == [None]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", "body"),
        (b"[]", "body"),
        (b'{"features": []}', "features"),
        (b'{"texts": []}', "texts"),
        (b'{"labels": ["cat"]}', "body"),
        (b'{"features": [[1, 2]], "texts": ["a"]}', "body"),
        (b'{"texts": ["\\ud800"]}', "body"),
        (b'{"features": [[1, 2]], "extra": 1}', "extra"),
        (b'{"features": [[1, 2, 3]]}', "features.0"),
        (b'{"features": [[1, 2], [1]]}', "features.1"),
        (b'{"features": [[1, "a"]]}', "features.0.1"),
        (b'{"features": [[1, 1e300]]}', "features.0"),
        (b'{"features": [[1, NaN]]}', "features.0"),
        (b'{"features": [[1, 2]], "labels": ["a", "b"]}', "labels"),
        (b"\xff\xfe", "body"),
    ],
)
def test_a_wrong_json_body_names_its_field(body: bytes, field: str) -> None:
    with pytest.raises(Problem) as caught:
        read_json(body, 2, 100)

    assert (caught.value.status, caught.value.field) == (422, field)


@pytest.mark.parametrize(
    "columns",
    [
        {"other": [1]},
        {"features": ["text"]},
        {"features": pa.array([[1, 2]], pa.list_(pa.int64()))},
        {"features": pa.array([[1.0, 2.0], None], pa.list_(pa.float32()))},
        {"features": pa.array([[1.0]], pa.list_(pa.float32()))},
        {"features": pa.array([[1.0, None]], pa.list_(pa.float32()))},
        {"features": pa.array([], pa.list_(pa.float32()))},
    ],
)
def test_a_wrong_arrow_stream_is_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(Problem) as caught:
        read_arrow(arrow(columns), 2, 100)

    assert caught.value.status == 422
    assert str(caught.value.field).startswith("features")


@pytest.mark.parametrize("body", [b"", b"junk", b"\x00" * 64, b"ARROW1\x00\x00"])
def test_bytes_that_are_no_arrow_stream_are_unreadable(body: bytes) -> None:
    with pytest.raises(Problem) as caught:
        read_arrow(body, 2, 100)

    assert caught.value.status == 422


def test_a_damaged_arrow_stream_never_gives_anything_but_a_problem() -> None:
    whole = arrow({"features": fixed_lists([[1.0, 2.0], [3.0, 4.0]])})
    generator = np.random.default_rng(0)

    for _ in range(500):
        damaged = bytearray(whole)
        for place in generator.integers(0, len(whole), 3):
            damaged[place] = generator.integers(0, 256)
        with contextlib.suppress(Problem):
            read_arrow(bytes(damaged), 2, 100)


def test_labels_are_names_or_indices() -> None:
    found = label_indices(["dog", 0, "1", None, ""], ["cat", "dog"])

    assert found.tolist() == [1, 0, 1, -1, -1]


@pytest.mark.parametrize("label", ["bird", 2, "2", -1, "-1", "1.0", "²", "0000000000999"])
def test_a_label_that_is_no_class_is_named(label: str | int) -> None:
    with pytest.raises(Problem) as caught:
        label_indices([label], ["cat", "dog"])

    assert caught.value.field == "labels.0"
    assert repr(label) in caught.value.detail


@pytest.mark.parametrize(
    "label",
    [10**5000, -(10**5000), "9" * 5000, "x" * 5000],
    ids=["integer", "negative", "digits", "text"],
)
def test_a_label_of_thousands_of_digits_is_refused_in_short(label: str | int) -> None:
    with pytest.raises(Problem) as caught:
        label_indices([label], ["cat", "dog"])

    assert caught.value.field == "labels.0"
    assert len(caught.value.detail) < 300


def test_a_number_is_the_class_of_that_name_where_all_have_numbers() -> None:
    assert label_indices([2, "3", 5000], ["2", "3", "5000"]).tolist() == [0, 1, 2]
    with pytest.raises(Problem):
        label_indices([1], ["2", "3", "5000"])


def test_leading_zeros_do_not_change_an_index() -> None:
    assert label_indices(["0" * 5000 + "1"], ["cat", "dog"]).tolist() == [1]


@pytest.mark.parametrize("rows", [3, 4])
def test_a_body_with_too_many_vectors_is_too_large(rows: int) -> None:
    vectors = [[1.0, 2.0]] * rows

    for read, body in (
        (read_json, json.dumps({"features": vectors}).encode()),
        (read_arrow, arrow({"features": fixed_lists(vectors)})),
    ):
        if rows == 3:
            assert len(read(body, 2, 3).features) == 3
        else:
            with pytest.raises(Problem, match="4 vectors") as caught:
                read(body, 2, 3)
            assert (caught.value.status, caught.value.field) == (413, "features")
