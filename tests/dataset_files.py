"""Small real images, archives of them, and what a dataset gives of its samples."""

import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import ImageError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.images.preparation import read_image
from tests.factories import png_of

Images = NDArray[np.uint8]
Members = list[tuple[str, bytes]]
Pack = Callable[[Members], str]

IMAGES = [png_of((20 * number, 10, 200), (8, 6)) for number in range(12)]
"""Twelve different PNG files."""


def dataset_of(location: object, **options: Any) -> Dataset:  # noqa: ANN401
    """The dataset at a path or URI, opened with some of the options."""
    return open_dataset(str(location), DatasetOptions(**options))


def photos(prefix: str = "", images: Sequence[bytes] = IMAGES) -> Members:
    """Four images as members of an archive, in two class folders."""
    names = ["dog/b.png", "cat/2.png", "dog/a.JPG", "cat/old/1.png"]
    return [(prefix + name, image) for name, image in zip(names, images, strict=False)]


def write_tar(path: Path, members: Members) -> str:
    """Writes members into a tar, compressed if its name says so; returns its path."""
    with tarfile.open(path, "w:gz" if path.suffix in (".gz", ".tgz") else "w") as tar:
        for name, data in members:
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    return str(path)


def write_zip(path: Path, members: Members, method: int = zipfile.ZIP_DEFLATED) -> str:
    """Writes members into a zip; returns its path."""
    with zipfile.ZipFile(path, "w", method) as opened:
        for name, data in members:
            opened.writestr(zipfile.ZipInfo(name), data, method)
    return str(path)


def read_samples(dataset: Dataset) -> dict[str, bytes | str]:
    """The content of each sample, or the reason why it cannot be read."""
    contents: dict[str, bytes | str] = {}
    for shard in range(dataset.num_shards):
        for sample in dataset.read_shard(shard):
            try:
                with sample.open() as file:
                    contents[sample.sample_id] = file.read()
            except ImageError as error:
                contents[sample.sample_id] = str(error)
    return contents


def contents_of(dataset: Dataset) -> list[bytes | str]:
    """The same, in the order of the samples."""
    return list(read_samples(dataset).values())


def draw_images(*shape: int, seed: int = 0) -> Images:
    """Random images of any shape, the same for the same seed."""
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def read_pixels(dataset: Dataset) -> Images:
    """All images decoded as for scoring; shape (samples, rows, columns, 3)."""
    samples = [s for shard in range(dataset.num_shards) for s in dataset.read_shard(shard)]
    return np.stack([np.asarray(read_image(sample.open, mode="exact")) for sample in samples])


def pickle_as_python_2(data: Images, lists: dict[str, list[int] | list[str]]) -> bytes:
    """Pickles a dictionary with an array of images as NumPy for Python 2 does, in protocol 2."""
    rows, columns = data.shape
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01" + _integer(rows) + _integer(columns) + b"\x86"
        b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
        b"K\x00tb\x89T" + struct.pack("<i", data.size) + data.tobytes() + b"tb"
    )
    items = b"".join(
        _string(key) + b"](" + b"".join(map(_value, values)) + b"e" for key, values in lists.items()
    )
    return b"\x80\x02}q\x01(" + _string("data") + array + items + b"u."


def _value(value: int | str) -> bytes:
    return _integer(value) if isinstance(value, int) else _string(value)


def _integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def _string(text: str) -> bytes:
    return b"U" + bytes([len(text)]) + text.encode()
