"""Feature vectors in the body of a request: JSON, or an Arrow stream."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from api.http.problems import Problem

ARROW_STREAM = "application/vnd.apache.arrow.stream"

Label = str | int


class FeatureBody(BaseModel):
    """Feature vectors to score, with labels where they are known."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"features": [[0.1, 0.2]], "labels": ["cat"]}]},
    )

    features: list[list[float]] = Field(min_length=1)
    labels: list[Label | None] | None = None


@dataclass(frozen=True)
class Vectors:
    """Feature vectors of a request.

    Attributes:
        features: Shape (samples, dim), float32.
        labels: Names or indices of classes; None where unknown.
    """

    features: Tensor
    labels: Sequence[Label | None]


def read_json(body: bytes, dim: int) -> Vectors:
    """Vectors of a JSON body.

    Args:
        body: Body of the request.
        dim: Length that every vector must have.

    Raises:
        Problem: The body is not a valid `FeatureBody`, or a vector has another length.
    """
    try:
        read = FeatureBody.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _invalid(".".join(map(str, first["loc"])) or "body", first["msg"]) from None
    for row, vector in enumerate(read.features):
        if len(vector) != dim:
            raise _invalid(f"features.{row}", f"{len(vector)} numbers, expected {dim}")
    labels = read.labels if read.labels is not None else [None] * len(read.features)
    return _checked(torch.tensor(read.features, dtype=torch.float32), labels)


def read_arrow(body: bytes, dim: int) -> Vectors:
    """Vectors of an Arrow stream: a column `features` of lists, and one `label` if known.

    Args:
        body: Body of the request.
        dim: Length that every vector must have.

    Raises:
        Problem: The body is not such a stream, or a vector has another length.
    """
    try:
        with pa.ipc.open_stream(body) as stream:
            table = stream.read_all()
        table.validate(full=True)
        names = table.column_names
    except (pa.ArrowException, MemoryError, OSError, ValueError) as error:
        raise Problem(
            422,
            "unreadable",
            f"the body is not an Arrow stream: {error}",
            "send an Arrow IPC stream",
        ) from None
    if "features" not in names:
        raise _invalid("features", f"there is no such column among {names}")
    column = table["features"].combine_chunks()
    kind = column.type
    if not (pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind)) or not (
        pa.types.is_floating(kind.value_type)
    ):
        raise _invalid("features", f"of type {kind}, expected lists of floating-point numbers")
    lengths = column.value_lengths()
    if column.null_count or lengths.null_count or any(each != dim for each in lengths.to_pylist()):
        raise _invalid("features", f"every vector must have {dim} numbers")
    values = column.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    labels = table["label"].to_pylist() if "label" in names else [None] * len(table)
    return _checked(torch.from_numpy(values.reshape(-1, dim).copy()), labels)


def label_indices(labels: Sequence[Label | None], class_names: Sequence[str]) -> Tensor:
    """Class indices of names or indices, -1 where unknown. Shape (samples,).

    Raises:
        Problem: One of them is not a class.
    """
    index = {name: position for position, name in enumerate(class_names)}
    indices = []
    for row, label in enumerate(labels):
        if label is None or label == "":
            indices.append(-1)
        elif isinstance(label, str) and label in index:
            indices.append(index[label])
        elif str(label).isdecimal() and int(label) < len(class_names):
            indices.append(int(label))
        else:
            raise _invalid(
                f"labels.{row}",
                f"{label!r} is none of the {len(class_names)} classes, such as {class_names[0]!r}",
            )
    return torch.tensor(indices, dtype=torch.int64)


def _checked(features: Tensor, labels: Sequence[Label | None]) -> Vectors:
    if len(labels) != len(features):
        raise _invalid("labels", f"{len(labels)} labels for {len(features)} vectors")
    if not len(features):
        raise _invalid("features", "there are no vectors")
    invalid = (~features.isfinite().all(dim=1)).nonzero()
    if len(invalid):
        raise _invalid(f"features.{int(invalid[0])}", "float32 cannot represent every number")
    return Vectors(features, labels)


def _invalid(field: str, detail: str) -> Problem:
    remedy = "see /docs for the schema of the body"
    return Problem(422, "invalid-request", f"{field}: {detail}", remedy, field=field)
