"""Columns beside the scores are mapped as they were written, and a damaged file is none."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from api.results.joined_columns import map_joined, write_joined
from difficulty_service.base.checksums import DamagedFile
from difficulty_service.base.tables import write_arrow
from difficulty_service.reports.sample_columns import SampleColumn, to_sample_column

IDS = pa.array(["x", "y", "z"])
VALUES = {
    "": ["a", None, "b"],
    "0": [0.5, np.nan, np.inf],
    "<b>\n": pa.array([0, None, -1], pa.timestamp("s", "UTC")),
    "é" * 300: ["x" * 300, None, ""],
}


def columns() -> dict[str, SampleColumn]:
    made = {
        name: to_sample_column(name, pa.chunked_array([pa.array(values)]))
        for name, values in VALUES.items()
    }
    return {name: each for name, each in made.items() if isinstance(each, SampleColumn)}


def test_columns_of_any_name_and_kind_are_mapped_as_they_were_written(tmp_path: Path) -> None:
    written = columns()

    ids, mapped = map_joined(write_joined(tmp_path / "joined.arrow", IDS, written))

    assert ids.equals(IDS)
    assert list(mapped) == list(VALUES)
    for name, column in written.items():
        assert mapped[name].at(range(3)) == column.at(range(3))
        assert (mapped[name].kind, mapped[name].is_utc) == (column.kind, column.is_utc)
        np.testing.assert_array_equal(mapped[name].numbers, column.numbers)


def test_no_columns_are_a_file_too(tmp_path: Path) -> None:
    assert map_joined(write_joined(tmp_path / "joined.arrow", IDS, {}))[1] == {}


def test_a_damaged_or_another_file_is_refused(tmp_path: Path) -> None:
    path = write_joined(tmp_path / "joined.arrow", IDS, columns())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    write_arrow(tmp_path / "other.arrow", pa.record_batch({"x": [1]}))

    for each in (path, tmp_path / "other.arrow"):
        with pytest.raises(DamagedFile):
            map_joined(each)
