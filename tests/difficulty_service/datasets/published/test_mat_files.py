"""MATLAB files, beside scipy's reader of the same files, and damaged ones."""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.published.mat_files import list_variables, read_variable
from difficulty_service.datasets.published.members import Member
from difficulty_service.datasets.storage import resolve

FIELDS = [("number", "O"), ("name", "O"), ("list", "O")]
CONTENT = {
    "images": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "row": np.array([[1.5, -2.0]]),
    "small": np.array([[7]], np.int16),
    "classes": np.array([(1, "tench, fish", [1, 2]), (2, "é", [])], FIELDS).reshape(-1, 1),
    "text": "a text of some length",
}


def _member(path: Path) -> Member:
    return Member(path.name, resolve(str(path)), 0, path.stat().st_size)


def _read_all(file: Member) -> dict[str, Any]:
    variables = list_variables(file)
    return {name: read_variable(file, variable, 1 << 20) for name, variable in variables.items()}


@pytest.mark.parametrize("is_compressed", [False, True])
def test_numbers_texts_and_structures_are_read_as_by_scipy(
    tmp_path: Path, *, is_compressed: bool
) -> None:
    path = tmp_path / "a.mat"
    savemat(path, CONTENT, do_compression=is_compressed)
    expected = loadmat(path, chars_as_strings=True)

    values = _read_all(_member(path))

    for name in ("images", "row", "small"):
        np.testing.assert_array_equal(values[name], expected[name])
    assert values["text"] == expected["text"].item()
    for structure, row in zip(values["classes"], expected["classes"].reshape(-1), strict=True):
        assert structure["number"].item() == row["number"].item()
        assert structure["name"] == row["name"].item()
        np.testing.assert_array_equal(structure["list"], row["list"])


@pytest.mark.parametrize("is_compressed", [False, True])
def test_random_damage_is_an_error_that_names_the_file_or_other_values(
    tmp_path: Path, *, is_compressed: bool
) -> None:
    buffer, generator = io.BytesIO(), np.random.default_rng(0)
    savemat(buffer, CONTENT, do_compression=is_compressed)
    path, num_errors = tmp_path / "a.mat", 0

    for _ in range(300):
        data = np.frombuffer(buffer.getvalue(), np.uint8).copy()
        data[generator.integers(128, len(data), 2)] = generator.integers(0, 256, 2)
        path.write_bytes(data.tobytes()[: generator.integers(len(data) // 2, 2 * len(data))])
        try:
            _read_all(_member(path))
        except DatasetError as error:
            assert "'a.mat' is damaged" in str(error)  # noqa: PT017 - other files are not damaged
            num_errors += 1

    assert num_errors > 100


def test_a_variable_that_unpacks_to_more_than_its_limit_is_an_error(tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {"x": np.zeros((1000, 100))}, do_compression=True)
    file = _member(tmp_path / "a.mat")
    variable = list_variables(file)["x"]

    assert read_variable(file, variable, 1_000_000).shape == (1000, 100)
    with pytest.raises(DatasetError, match="a variable has 100,000 bytes or more"):
        read_variable(file, variable, 100_000)


def test_structures_that_cannot_fit_into_the_file_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    savemat(path, {"classes": CONTENT["classes"]})
    data, shape = path.read_bytes(), struct.pack("<ii", 2, 1)
    path.write_bytes(data.replace(shape, struct.pack("<ii", 1 << 30, 1), 1))

    with pytest.raises(DatasetError, match="1,073,741,824 structures do not fit"):
        _read_all(_member(path))


def test_another_version_of_the_format_is_an_error(tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {"x": np.zeros(3)}, format="4")

    with pytest.raises(DatasetError, match="not a little-endian MATLAB file of version 5"):
        list_variables(_member(tmp_path / "a.mat"))
