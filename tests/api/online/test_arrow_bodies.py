"""Arrow streams that are far larger than they look, or hold what nobody expects."""

import datetime
import resource
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from api.http.problems import Problem
from api.online.feature_bodies import (
    MAX_DICTIONARIES,
    MAX_LABEL_LENGTH,
    read_labels,
    read_stream,
)

DIM = 64
ROWS = 100_000
ROOM = 64 << 20  # bytes that reading may add


def stream(table: pa.Table, **options: Any) -> bytes:  # noqa: ANN401
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def zeros(rows: int) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows * DIM, np.float32)), DIM)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_stream_is_refused_before_it_is_unpacked(codec: str) -> None:
    body = stream(pa.table({"features": zeros(ROWS)}), compression=codec)
    assert len(body) < ROWS * DIM * 4 / 100
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    allocated = pa.total_allocated_bytes()

    with pytest.raises(Problem, match="compressed") as caught:
        read_stream(body, 10 * ROWS)

    assert caught.value.status == 422
    assert "compression=None" in caught.value.remedy
    assert pa.total_allocated_bytes() <= allocated + len(body)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < ROOM


def test_a_compressed_dictionary_is_refused() -> None:
    labels = pa.array(["x" * 10_000]).dictionary_encode()
    body = stream(pa.table({"features": zeros(1), "label": labels}), compression="zstd")

    with pytest.raises(Problem, match="compressed"):
        read_stream(body, 10)


def test_rows_are_counted_over_all_batches() -> None:
    whole = pa.table({"features": zeros(10)})
    table = pa.concat_tables([whole] * 3)

    assert len(read_stream(stream(table), 30)) == 30
    with pytest.raises(Problem, match="30 vectors"):
        read_stream(stream(table), 29)


def test_a_batch_that_claims_millions_of_rows_is_refused_by_its_header() -> None:
    body = stream(pa.table({"features": zeros(777), "label": pa.nulls(777)}))
    lying = np.frombuffer(body, np.int64).copy()
    lying[lying == 777] = 1 << 40

    assert len(read_stream(body, 777)) == 777
    with pytest.raises(Problem, match="vectors, the maximum"):
        read_stream(lying.tobytes(), 777)


def test_a_long_label_that_all_rows_repeat_is_refused_at_the_first_row() -> None:
    longest = "y" * MAX_LABEL_LENGTH
    indices = pa.array(np.zeros(5000, np.int32))
    repeated = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * 1_000_000]))

    assert read_labels(pa.chunked_array([[longest]])) == [longest]
    with pytest.raises(Problem, match=r"label\.0: 1,000,000 characters"):
        read_labels(pa.chunked_array([repeated]))


@pytest.mark.parametrize(
    "labels",
    [
        pa.array([datetime.date(2020, 1, 1)]),
        pa.array([1 << 60], pa.timestamp("s")),
        pa.array([1.5]),
        pa.array([True]),
        pa.array([["cat"]]),
        pa.array([b"cat"]),
    ],
)
def test_labels_of_another_type_are_refused_by_name(labels: pa.Array) -> None:
    with pytest.raises(Problem, match="expected text or integers") as caught:
        read_labels(pa.chunked_array([labels]))

    assert caught.value.field == "label"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_of_every_kind_is_a_label(kind: pa.DataType) -> None:
    assert read_labels(pa.chunked_array([pa.array(["cat", None], kind)])) == ["cat", None]


def test_columns_are_unique_and_known() -> None:
    twice = pa.table([zeros(1), zeros(1)], names=["features", "features"])
    strange = pa.table({"features": zeros(1), "when": [datetime.date(2020, 1, 1)]})

    with pytest.raises(Problem, match="two columns") as caught:
        read_stream(stream(twice), 10)
    assert (caught.value.status, caught.value.field) == (422, "features")
    with pytest.raises(Problem, match="no such column") as caught:
        read_stream(stream(strange), 10)
    assert (caught.value.status, caught.value.field) == (422, "when")


def test_dictionaries_that_grow_batch_by_batch_are_bounded() -> None:
    schema = pa.schema({"features": zeros(1).type, "label": pa.dictionary(pa.int32(), pa.string())})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    names: list[str] = []
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for number in range(MAX_DICTIONARIES + 1):
            names.append(str(number))
            labels = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array(names))
            writer.write_batch(pa.record_batch([zeros(1), labels], schema=schema))

    with pytest.raises(Problem, match="dictionaries"):
        read_stream(bytes(sink.getvalue()), 1000)
