"""Pickles of CIFAR are read without running anything in them."""

import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.published.cifar import read_pickle
from tests.dataset_files import dataset_of


class _CreatesFile:
    """Its pickle creates a file where it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("file", ["test_batch", "batches.meta"])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_is_refused_by_name_and_runs_nothing(
    cifar_10: Path, tmp_path: Path, file: str, protocol: int
) -> None:
    created = tmp_path / "created"
    malicious = pickle.dumps({"labels": _CreatesFile(created)}, protocol)
    (cifar_10 / file).write_bytes(malicious)

    with pytest.raises(DatasetError, match=rf"'{file}' is a pickle that names .*; nothing was run"):
        dataset_of(cifar_10, split="test")

    assert not created.exists()
    pickle.loads(malicious)  # noqa: S301 - it does run what it contains
    assert created.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"cos\nsystem\n(S'exit 1'\ntR.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x06exit 1\x85R.",
        b"(S'exit 1'\nios\nsystem\n.",
        b"cnumpy\nload\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93.",
        b"cbuiltins\neval\n.",
    ],
)
def test_no_name_but_those_of_an_array_is_looked_up(program: bytes) -> None:
    with pytest.raises(DatasetError, match="which CIFAR does not need"):
        read_pickle(program, "train")


def test_only_dictionaries_are_content() -> None:
    with pytest.raises(DatasetError, match=r"'meta' .* holds a list and not a dictionary"):
        read_pickle(pickle.dumps([1]), "meta")
    with pytest.raises(DatasetError, match=r"names collections\.OrderedDict"):
        read_pickle(pickle.dumps(OrderedDict()), "meta")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (b"\x80\x02Nr\xff\xff\xff\xff.", "its memo has the index 4294967295"),
        (b"Np4294967295\n.", "its memo has the index 4294967295"),
        (b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns.", "more than 64 tuples"),
    ],
    ids=["memory", "memory-as-text", "stack"],
)
def test_a_pickle_cannot_fill_the_memory_or_the_stack(program: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        read_pickle(program, "train")


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 3072), np.float32),
        np.zeros((2, 3072), object),
        np.zeros((2, 3, 1024), np.uint8),
        np.asfortranarray(np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)),
        np.zeros((0, 3072), np.uint8),
        "pixels",
    ],
)
def test_pixels_of_another_type_or_shape_are_an_error(
    cifar_10: Path, array: NDArray[np.generic] | str
) -> None:
    content = {"data": array, "labels": [0, 1]}
    (cifar_10 / "test_batch").write_bytes(pickle.dumps(content, 4))

    with pytest.raises(DatasetError, match=r"'test_batch' is damaged.* 'data'"):
        dataset_of(cifar_10, split="test")
