"""Small datasets in the files of their authors, and the pixels that are read from them."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from difficulty_service.datasets.sample import Dataset
from difficulty_service.images.preparation import read_image

Images = NDArray[np.uint8]

CIFAR_10_BATCHES = [f"data_batch_{number}" for number in range(1, 6)]


@pytest.fixture(scope="session")
def draw_images() -> Callable[..., Images]:
    """Random images of any shape, the same for the same seed."""
    return lambda *shape, seed=0: np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


@pytest.fixture(scope="session")
def read_pixels() -> Callable[[Dataset], Images]:
    """Decodes all images as for scoring; shape (samples, rows, columns, 3)."""

    def read(dataset: Dataset) -> Images:
        samples = [s for shard in range(dataset.num_shards) for s in dataset.read_shard(shard)]
        return np.stack([np.asarray(read_image(sample.open, mode="exact")) for sample in samples])

    return read


@pytest.fixture(scope="session")
def python_2_pickle() -> Callable[..., bytes]:
    """Pickles a dictionary with an array of images as NumPy for Python 2 does, in protocol 2."""
    return pickle_as_python_2


def pickle_as_python_2(data: Images, lists: dict[str, list[int] | list[str]]) -> bytes:
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


@pytest.fixture
def cifar_10(tmp_path: Path, draw_images: Callable[..., Images]) -> Path:
    """CIFAR-10 for Python with three images in each file."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for number, name in enumerate([*CIFAR_10_BATCHES, "test_batch"]):
        data = draw_images(3, 3072, seed=number)
        labels = [number, 9, 0]
        (folder / name).write_bytes(pickle_as_python_2(data, {"labels": labels}))
    names = [f"class {number}" for number in range(10)]
    (folder / "batches.meta").write_bytes(
        pickle_as_python_2(draw_images(1, 4), {"label_names": names})
    )
    return folder
