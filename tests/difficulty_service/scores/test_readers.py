"""What other programs read in a score file: types, nulls and rows by conditions."""

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.scores.file import read_scores, write_scores
from difficulty_service.scores.provenance import Provenance

NAN = float("nan")
ROWS = 6
CONDITIONS = {"rmd > 1": ["4", "5"], "rmd <= 1": ["0", "2"], "p_wrong >= 0": ["0", "2", "4", "5"]}
"""Ids that a condition finds; the samples 1 and 3 have no score."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of two row groups whose caller had NaN for what is missing."""
    table = pa.table(
        {
            "sample_id": [str(row) for row in range(ROWS)],
            "label": pa.array([0, 1] * 3, pa.int32()),
            "label_name": ["cat", "dog"] * 3,
            "rmd": [0.5, NAN, -1.0, None, 2.0, 3.0],
            "nearest_label": pa.array([1, None, 0, None, 1, 0], pa.int32()),
            "nearest_label_name": ["dog", None, "cat", None, "dog", "cat"],
            "p_wrong": pa.array([0.25, NAN, 0.5, None, 0.0, 1.0], pa.float32()),
        }
    )
    write_scores(tmp_path / "s.parquet", [table[:3], table[3:]], Provenance.of({"seed": 1}))
    return tmp_path / "s.parquet"


def test_no_number_is_nan_and_statistics_hold_for_every_row_group(path: Path) -> None:
    scores = read_scores(path).table
    metadata = pq.ParquetFile(path).metadata

    for name in ("rmd", "nearest_label", "p_wrong"):
        assert scores[name].null_count == 2
        assert not any(value != value for value in scores[name].to_pylist())  # noqa: PLR0124
        place = metadata.schema.names.index(name)
        for group in range(metadata.num_row_groups):
            column = metadata.row_group(group).column(place)
            assert column.compression == "ZSTD"
            assert column.statistics.has_min_max
            assert column.statistics.null_count == 1
            cells = [cell for cell in scores[name].to_pylist()[3 * group :][:3] if cell is not None]
            assert [column.statistics.min, column.statistics.max] == [min(cells), max(cells)]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_pandas_reads_types_nulls_and_conditions(path: Path, condition: str) -> None:
    frame = pd.read_parquet(path)

    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {
        "sample_id": "str",
        "label": "int32",
        "label_name": "category",
        "rmd": "float64",
        "nearest_label": "float64",
        "nearest_label_name": "category",
        "p_wrong": "float32",
    }
    assert frame["rmd"].isna().tolist() == [False, True, False, True, False, False]
    assert frame.query(condition)["sample_id"].tolist() == CONDITIONS[condition]
    name, sign, number = condition.split()
    filtered = pd.read_parquet(path, filters=[(name, sign, float(number))])
    assert filtered["sample_id"].tolist() == CONDITIONS[condition]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_polars_reads_types_nulls_and_conditions(path: Path, condition: str) -> None:
    pl = pytest.importorskip("polars")

    schema = pl.read_parquet(path).schema
    found = pl.scan_parquet(path).sql(f"select sample_id from self where {condition}").collect()  # noqa: S608

    assert [str(kind).partition("(")[0] for kind in schema.values()] == [
        *("String", "Int32", "Categorical", "Float64", "Int32", "Categorical", "Float32"),
    ]
    assert pl.read_parquet(path)["rmd"].null_count() == 2
    assert found["sample_id"].to_list() == CONDITIONS[condition]
    assert "difficulty" in pl.read_parquet_metadata(path)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_duckdb_reads_types_nulls_and_conditions(path: Path, condition: str) -> None:
    duckdb = pytest.importorskip("duckdb")

    def rows(query: str) -> list[Any]:
        return [each for (each,) in duckdb.sql(query).fetchall()]

    types = duckdb.read_parquet(str(path)).types

    assert [str(kind) for kind in types] == [
        *("VARCHAR", "INTEGER", "VARCHAR", "DOUBLE", "INTEGER", "VARCHAR", "FLOAT"),
    ]
    assert rows(f"select count(*) from '{path}' where rmd is null") == [2]  # noqa: S608
    assert rows(f"select count(*) from '{path}' where isnan(rmd)") == [0]  # noqa: S608
    found = rows(f"select sample_id from '{path}' where {condition} order by 1")  # noqa: S608
    assert found == CONDITIONS[condition]
    assert "difficulty" in rows(f"select decode(key) from parquet_kv_metadata('{path}')")  # noqa: S608
