"""Samples in the body of a request: JSON with texts or feature vectors, or an Arrow stream.

A stream of a few kilobytes could unpack to gigabytes: by compression, by a batch that claims to
have millions of rows, or by a dictionary whose long text many rows repeat. So compression is
refused, rows are counted in the headers of the batches, and labels are read one by one.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import ValidationError

from api.http.parameters import parse_decimal
from api.http.problems import Problem, invalid, too_large, unreadable
from difficulty_service.bodies.samples import JsonBody, Label
from difficulty_service.datasets.labels import numbers_of_classes

COLUMNS = ("features", "label")
MAX_LABEL_LENGTH = 1000
MAX_DICTIONARIES = 100  # each replaces or extends the one before, which costs a copy

_RECORD_BATCH, _DICTIONARY = "record batch", "dictionary"
_FORMER_COMPRESSION = b"ARROW:experimental_compression"
_HEADER, _LENGTH, _COMPRESSION, _DATA = 2, 0, 3, 1  # numbers of fields in Arrow's Message.fbs


def read_stream(body: bytes, max_rows: int) -> pa.Table:
    """The table of an Arrow stream with the columns `features` and, if known, `label`."""
    try:
        _check_messages(body, max_rows)
        with pa.ipc.open_stream(body) as stream:
            _check_columns(stream.schema)
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, MemoryError, OSError, ValueError, struct.error) as error:
        raise unreadable(
            f"the body is not an Arrow stream: {error}", "send an Arrow IPC stream"
        ) from None
    return table


def read_values(column: pa.ChunkedArray, dim: int) -> NDArray[np.float32]:
    """The vectors of a column of lists. Shape (samples, dim)."""
    kind = column.type
    if not (pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind)) or not (
        pa.types.is_floating(kind.value_type)
    ):
        raise wrong("features", f"of type {kind}, expected lists of floating-point numbers")
    lists = column.combine_chunks()
    lengths = lists.value_lengths()
    if lists.null_count or lengths.null_count or any(each != dim for each in lengths.to_pylist()):
        raise wrong("features", f"every vector must have {dim} numbers")
    values = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    return values.reshape(-1, dim).copy()


def read_labels(column: pa.ChunkedArray) -> list[str | int | None]:
    """The labels of a column of text or integers; None where unknown."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    kinds = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_integer,
        pa.types.is_null,
    )
    if not any(is_kind(kind) for is_kind in kinds):
        raise wrong("label", f"of type {str(column.type)[:200]}, expected text or integers")
    labels = []
    # One by one, because all rows may repeat one long text of a dictionary.
    for row, cell in enumerate(column):
        label = cell.as_py()
        if isinstance(label, str) and len(label) > MAX_LABEL_LENGTH:
            raise wrong(
                f"label.{row}", f"{len(label):,} characters, the maximum is {MAX_LABEL_LENGTH:,}"
            )
        labels.append(label)
    return labels


def too_many_vectors(rows: int, max_rows: int) -> Problem:
    """For a body with more vectors than one request may have."""
    return too_large(
        f"{rows:,} vectors, the maximum of a request is {max_rows:,}",
        "send them in several requests; whole datasets go to POST /v1/jobs",
        field="features",
    )


def wrong(field: str, detail: str) -> Problem:
    """For a field that is wrong."""
    return invalid(f"{field}: {detail}", "see /docs for the schema of the body", field)


def _check_columns(schema: pa.Schema) -> None:
    if "features" not in schema.names:
        raise wrong("features", f"there is no such column among {schema.names[:20]}")
    for number, name in enumerate(schema.names):
        if name not in COLUMNS:
            raise wrong(name[:100], f"no such column is used; the columns are {', '.join(COLUMNS)}")
        if name in schema.names[:number]:
            raise wrong(name, "two columns have this name")


def _check_messages(body: bytes, max_rows: int) -> None:
    """Reads the headers of all messages, without decoding any."""
    rows = dictionaries = 0
    for message in pa.ipc.MessageReader.open_stream(body):
        if message.type not in (_RECORD_BATCH, _DICTIONARY):
            continue
        metadata = message.metadata.to_pybytes()
        batch = _table_at(metadata, struct.unpack_from("<I", metadata)[0], _HEADER)
        if message.type == _DICTIONARY:
            dictionaries += 1
            batch = _table_at(metadata, batch, _DATA)
        if _field(metadata, batch, _COMPRESSION) or _FORMER_COMPRESSION in metadata:
            raise unreadable(
                "the Arrow stream is compressed",
                "send it without compression: in pyarrow, IpcWriteOptions(compression=None)",
            )
        length = _field(metadata, batch, _LENGTH)
        rows += struct.unpack_from("<q", metadata, length)[0] if length else 0
        if rows > max_rows:
            raise too_many_vectors(rows, max_rows)
        if dictionaries > MAX_DICTIONARIES:
            raise wrong("label", f"more than {MAX_DICTIONARIES} dictionaries; send one")


def _field(metadata: bytes, table: int, number: int) -> int:
    """Position of a field of a FlatBuffers table; 0 where the table does not have it."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", metadata, vtable)[0]:
        return 0
    offset = struct.unpack_from("<H", metadata, vtable + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _table_at(metadata: bytes, table: int, number: int) -> int:
    """Position of the table that a field of a table refers to."""
    position = _field(metadata, table, number)
    if not position:
        raise ValueError("a message without its header")
    return position + int(struct.unpack_from("<I", metadata, position)[0])


LONGEST_INTEGER = 1000  # bits of an integer that messages quote


@dataclass(frozen=True)
class Vectors:
    """Feature vectors of a request."""

    features: NDArray[np.float32]  # shape (samples, dim)
    labels: Sequence[Label | None]  # names or indices of classes; None where unknown


def parse_json(body: bytes) -> JsonBody:
    """The samples of a JSON body."""
    try:
        read = JsonBody.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise wrong(".".join(map(str, first["loc"])) or "body", first["msg"]) from None
    if (read.features is None) == (read.texts is None):
        raise wrong("body", "expected either `features` or `texts`")
    return read


def read_json(body: JsonBody, dim: int, max_rows: int) -> Vectors:
    """Vectors of a JSON body that has some."""
    rows = body.features or []
    if len(rows) > max_rows:
        raise too_many_vectors(len(rows), max_rows)
    for row, vector in enumerate(rows):
        if len(vector) != dim:
            raise wrong(f"features.{row}", f"{len(vector)} numbers, expected {dim}")
    labels = body.labels if body.labels is not None else [None] * len(rows)
    with np.errstate(over="ignore"):  # which `_checked` finds
        features = np.array(rows, np.float32)
    return _checked(features, labels)


def read_arrow(body: bytes, dim: int, max_rows: int) -> Vectors:
    """Vectors of an Arrow stream: a column `features` of lists, and one `label` if known."""
    table = read_stream(body, max_rows)
    values = read_values(table["features"], dim)
    known = "label" in table.column_names
    labels = read_labels(table["label"]) if known else [None] * len(table)
    return _checked(values, labels)


def label_indices(labels: Sequence[Label | None], class_names: Sequence[str]) -> NDArray[np.int64]:
    """Class indices of names or numbers, -1 where unknown. Shape (samples,).

    The number of a class is its name where all are integers, or else its index.
    """
    index = {name: position for position, name in enumerate(class_names)}
    numbers = {number: place for place, number in enumerate(numbers_of_classes(class_names))}
    indices = []
    for row, label in enumerate(labels):
        found = -1 if label is None or label == "" else _class_index(label, index, numbers)
        if found is None:
            raise wrong(
                f"labels.{row}",
                f"{_quoted(label)} is none of the {len(class_names)} classes, such as "
                f"{class_names[0][:100]!r}",
            )
        indices.append(found)
    return np.array(indices, np.int64)


def _class_index(label: Label, index: Mapping[str, int], numbers: Mapping[int, int]) -> int | None:
    """The index of a class by its name or number; None if there is no such class."""
    if isinstance(label, int):
        return numbers.get(label)
    if label in index:
        return index[label]
    number = parse_decimal(label, max(numbers))
    return None if number is None else numbers.get(number)


def _quoted(label: Label | None) -> str:
    """A label for a message; Python refuses to write out integers of thousands of digits."""
    if isinstance(label, int) and label.bit_length() > LONGEST_INTEGER:
        return f"a number of {label.bit_length():,} bits"
    return repr(label if not isinstance(label, str) else label[:100])


def _checked(features: NDArray[np.float32], labels: Sequence[Label | None]) -> Vectors:
    if len(labels) != len(features):
        raise wrong("labels", f"{len(labels)} labels for {len(features)} vectors")
    if not len(features):
        raise wrong("features", "there are no vectors")
    infinite = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(infinite):
        raise wrong(f"features.{int(infinite[0])}", "float32 cannot represent every number")
    return Vectors(features, labels)
