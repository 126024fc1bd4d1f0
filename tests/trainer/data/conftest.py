"""Small datasets of images with known pixels, and the texts of a split."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from trainer.samples import InputSpec, Samples

Pixels = NDArray[np.uint8]

CLASS_NAMES = ("bird", "cat", "dog")

WriteTable = Callable[..., str]


def _png(pixels: Pixels) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def to_png() -> Callable[[Pixels], bytes]:
    """Encodes pixels of shape (3, height, width)."""
    return _png


@pytest.fixture
def pixels() -> Pixels:
    """Thirty images of random pixels, shape (30, 3, 8, 8)."""
    return np.random.default_rng(0).integers(0, 256, (30, 3, 8, 8), dtype=np.uint8)


@pytest.fixture
def write_table(tmp_path: Path, pixels: Pixels) -> WriteTable:
    """Writes a Parquet table of images, by default ten of each class; gives its path."""

    def write(
        name: str = "train",
        images: Sequence[bytes] | None = None,
        labels: Sequence[int] | None = None,
        **columns: Sequence[object],
    ) -> str:
        images = images or [_png(image) for image in pixels]
        labels = labels or [position % 3 for position in range(len(images))]
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"image": images, "label": labels, **columns}), path)
        return str(path)

    return write


@pytest.fixture
def write_folder(tmp_path: Path, pixels: Pixels) -> Callable[[str], str]:
    """Writes the images as a folder of class folders; gives its path."""

    def write(name: str = "photos") -> str:
        for position, image in enumerate(pixels):
            path = tmp_path / name / CLASS_NAMES[position % 3] / f"{position:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_png(image))
        return str(tmp_path / name)

    return write


@pytest.fixture(scope="session")
def decode_texts() -> Callable[[Samples, InputSpec], list[str]]:
    """Decodes the texts of a split from its tokens."""

    def decode(samples: Samples, spec: InputSpec) -> list[str]:
        (batch,) = samples.inputs.batches([torch.arange(len(samples))], None)
        return [
            " ".join(spec.vocabulary[token] for token in row if token) for row in batch.tolist()
        ]

    return decode
