"""Files of NumPy that are damaged, or made to do harm."""

import io
import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest

from difficulty_service.base import numpy_files
from difficulty_service.base.checksums import DamagedFile
from difficulty_service.base.numpy_files import read_array, read_arrays


def npy_of(description: str, data: bytes = b"") -> bytes:
    """An `.npy` file with a header as it is given."""
    header = f"{description}\n".encode().rjust(118)
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


HOSTILE = {
    "more rows than there are": npy_of(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 8)}"
    ),
    "fewer rows than none": npy_of("{'descr': '<f8', 'fortran_order': False, 'shape': (-5, 8)}"),
    "a shape that is no number": npy_of(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (nan,)}"
    ),
    "objects": npy_of("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"cos\nsystem\n."),
    "a pickle": b"\x80\x04cos\nsystem\n.",
    "a header that never ends": npy_of("{'descr': ("),
    "a type that is none": npy_of("{'descr': {'a': 1}, 'fortran_order': False, 'shape': (1,)}"),
    "a text that is none": npy_of(
        "{'descr': '<U1', 'fortran_order': False, 'shape': (1,)}", b"\xff\xff\xff\x7f"
    ),
    "nothing": b"",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("mapped", [False, True])
def test_a_hostile_array_is_damage_and_takes_no_memory(
    content: bytes, tmp_path: Path, *, mapped: bool
) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(DamagedFile):
        read_array(path, mapped=mapped)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_array_in_an_archive_is_damage(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("features.npy", content)

    with pytest.raises(DamagedFile):
        read_arrays(path, lambda names: names)


def test_an_archive_may_not_unpack_to_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numpy_files, "LARGE_ARRAY", 1 << 20)
    np.savez_compressed(tmp_path / "bomb.npz", features=np.zeros(1 << 18))
    np.savez(tmp_path / "zeros.npz", features=np.zeros(1 << 18))

    with pytest.raises(DamagedFile, match=r"unpack to 2,097,280; save it without compression"):
        read_arrays(tmp_path / "bomb.npz", lambda names: names)

    assert read_arrays(tmp_path / "zeros.npz", lambda names: names)["features"].size == 1 << 18


def test_one_array_is_no_archive_and_an_archive_not_one_array(tmp_path: Path) -> None:
    one, several = io.BytesIO(), io.BytesIO()
    np.save(one, np.ones(2))
    np.savez(several, np.ones(2))
    (tmp_path / "a.npz").write_bytes(one.getvalue())
    (tmp_path / "a.npy").write_bytes(several.getvalue())

    with pytest.raises(DamagedFile, match="one array, expected an archive"):
        read_arrays(tmp_path / "a.npz", lambda names: names)
    with pytest.raises(DamagedFile, match="an archive of arrays, expected one"):
        read_array(tmp_path / "a.npy")


def test_a_missing_file_is_not_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_array(tmp_path / "a.npy")
