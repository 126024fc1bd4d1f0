"""Single samples as the body of a request."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

Labels: TypeAlias = Sequence[str | None] | None
"""Name or index of the class of each sample, None where it is unknown."""


def image_files(images: Sequence[str | Path | bytes]) -> list[tuple[str, tuple[str, bytes]]]:
    """Images as files of a form."""
    files = [
        (f"image {number}", image)
        if isinstance(image, bytes)
        else (Path(image).name, Path(image).read_bytes())
        for number, image in enumerate(images)
    ]
    return [("images", file) for file in files]


def arrow_stream(features: ArrayLike, labels: Labels) -> bytes:
    """Feature vectors with their labels as an Arrow stream."""
    vectors = np.asarray(features, np.float32)  # (samples, dim)
    values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[-1])
    columns = {"features": values}
    if labels is not None:
        columns["label"] = pa.array(labels, pa.string())
    table = pa.table(columns)
    target = io.BytesIO()
    with pa.ipc.new_stream(target, table.schema) as stream:
        stream.write_table(table)
    return target.getvalue()
