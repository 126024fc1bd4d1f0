"""Samples in the body of a request: JSON with texts or feature vectors, or an Arrow stream."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.http.decimals import parse_decimal
from api.online.arrow_bodies import invalid, read_labels, read_stream, read_values, too_many

ARROW_STREAM = "application/vnd.apache.arrow.stream"

LONGEST_INTEGER = 1000  # bits of an integer that messages quote

Label = str | int


class JsonBody(BaseModel):
    """Feature vectors, or texts for a job of texts, with labels where they are known."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "oneOf": [{"required": ["features"]}, {"required": ["texts"]}],
            "examples": [{"features": [[0.1, 0.2]], "labels": ["cat"]}],
        },
    )

    features: list[list[float]] | None = Field(None, min_length=1)
    texts: list[str] | None = Field(None, min_length=1)
    labels: list[Label | None] | None = None


@dataclass(frozen=True)
class Vectors:
    """Feature vectors of a request.

    Attributes:
        features: Shape (samples, dim), float32.
        labels: Names or indices of classes; None where unknown.
    """

    features: NDArray[np.float32]
    labels: Sequence[Label | None]


def parse_json(body: bytes) -> JsonBody:
    """The samples of a JSON body.

    Raises:
        Problem: The body is not a valid `JsonBody`, or has both vectors and texts, or neither.
    """
    try:
        read = JsonBody.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise invalid(".".join(map(str, first["loc"])) or "body", first["msg"]) from None
    if (read.features is None) == (read.texts is None):
        raise invalid("body", "expected either `features` or `texts`")
    return read


def read_json(body: JsonBody, dim: int, max_rows: int) -> Vectors:
    """Vectors of a JSON body that has some.

    Args:
        body: The parsed body.
        dim: Length that every vector must have.
        max_rows: Maximum number of vectors.

    Raises:
        Problem: There are too many vectors, or one of another length.
    """
    rows = body.features or []
    if len(rows) > max_rows:
        raise too_many(len(rows), max_rows)
    for row, vector in enumerate(rows):
        if len(vector) != dim:
            raise invalid(f"features.{row}", f"{len(vector)} numbers, expected {dim}")
    labels = body.labels if body.labels is not None else [None] * len(rows)
    with np.errstate(over="ignore"):  # which `_checked` finds
        features = np.array(rows, np.float32)
    return _checked(features, labels)


def read_arrow(body: bytes, dim: int, max_rows: int) -> Vectors:
    """Vectors of an Arrow stream: a column `features` of lists, and one `label` if known.

    Args:
        body: Body of the request.
        dim: Length that every vector must have.
        max_rows: Maximum number of vectors.

    Raises:
        Problem: The body is not such a stream, has too many vectors, or one of another length.
    """
    table = read_stream(body, max_rows)
    values = read_values(table["features"], dim)
    known = "label" in table.column_names
    labels = read_labels(table["label"]) if known else [None] * len(table)
    return _checked(values, labels)


def label_indices(labels: Sequence[Label | None], class_names: Sequence[str]) -> NDArray[np.int64]:
    """Class indices of names or indices, -1 where unknown. Shape (samples,).

    Raises:
        Problem: One of them is not a class.
    """
    index = {name: position for position, name in enumerate(class_names)}
    indices = []
    for row, label in enumerate(labels):
        found = -1 if label is None or label == "" else _class_index(label, index)
        if found is None:
            raise invalid(
                f"labels.{row}",
                f"{_quoted(label)} is none of the {len(class_names)} classes, such as "
                f"{class_names[0][:100]!r}",
            )
        indices.append(found)
    return np.array(indices, np.int64)


def _class_index(label: Label, index: Mapping[str, int]) -> int | None:
    """The index of a class by its name or index; None if there is no such class."""
    if isinstance(label, int):
        return label if 0 <= label < len(index) else None
    return index.get(label, parse_decimal(label, len(index) - 1))


def _quoted(label: Label | None) -> str:
    """A label for a message; Python refuses to write out integers of thousands of digits."""
    if isinstance(label, int) and label.bit_length() > LONGEST_INTEGER:
        return f"a number of {label.bit_length():,} bits"
    return repr(label if not isinstance(label, str) else label[:100])


def _checked(features: NDArray[np.float32], labels: Sequence[Label | None]) -> Vectors:
    if len(labels) != len(features):
        raise invalid("labels", f"{len(labels)} labels for {len(features)} vectors")
    if not len(features):
        raise invalid("features", "there are no vectors")
    infinite = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(infinite):
        raise invalid(f"features.{int(infinite[0])}", "float32 cannot represent every number")
    return Vectors(features, labels)
