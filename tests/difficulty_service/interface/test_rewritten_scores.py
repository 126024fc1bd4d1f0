"""Score files that other programs wrote again, in everything that reads score files."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import difficulty_service as ds
import trainer
from difficulty_service.base.checksums import ChangedFile
from difficulty_service.cli import run_command
from difficulty_service.scores.file import SCHEMA, read_score_schema, read_scores
from tests.small_network import SMALL

CLASSES = ("cat", "dog", "rat")


def with_pandas(path: Path, out: Path) -> None:
    pd.read_parquet(path).query("percentile >= 0").sample(frac=1, random_state=0).to_parquet(out)


def with_an_index(path: Path, out: Path) -> None:
    pd.read_parquet(path).set_index("sample_id").to_parquet(out)


def with_fastparquet(path: Path, out: Path) -> None:
    """Which writes NaN for nulls, and nothing but text for categories."""
    pytest.importorskip("fastparquet").write(str(out), pd.read_parquet(path))


def with_polars(path: Path, out: Path) -> None:
    pl = pytest.importorskip("polars")
    pl.read_parquet(path).with_columns(pl.col("label").cast(pl.Int64)).write_parquet(out)


def with_duckdb(path: Path, out: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    duckdb.sql(f"copy (select * from '{path}' order by rmd) to '{out}'")  # noqa: S608


def as_numbers_of_64_bits(path: Path, out: Path) -> None:
    """Nulls as NaN, also of class indices, and text in dictionaries or views."""
    columns = {}
    for name, column in zip(SCHEMA.names, SCHEMA, strict=True):
        if name not in pq.read_schema(path).names:
            continue
        cells = pq.read_table(path, columns=[name])[name]
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            columns[name] = cells.cast(pa.float64()).fill_null(float("nan"))
        else:
            columns[name] = cells.cast(pa.string()).dictionary_encode()
    pq.write_table(pa.table(columns), out)


PROGRAMS = {
    "pandas": with_pandas,
    "pandas with an index": with_an_index,
    "fastparquet": with_fastparquet,
    "polars": with_polars,
    "DuckDB": with_duckdb,
    "64 bits": as_numbers_of_64_bits,
}


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A score file of images, its features beside it, and the images in a folder."""
    folder = tmp_path_factory.mktemp("scored")
    for row in range(60):
        low, name = row % 3, CLASSES[row % 3]
        pixels = np.random.default_rng(row).integers(
            40 * low, 80 * (1 + low), (64, 64, 3), np.uint8
        )
        image = Image.fromarray(pixels)
        if row == 7:
            image = Image.new("RGB", (64, 64), "grey")
        place = folder / "images" / name / f"{row:02}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        image.save(place)
    with pytest.warns(UserWarning, match="prefer the column"):
        ds.score_dataset(
            folder / "images",
            backbone=SMALL,
            shrinkage="oas",
            scorers=["rmd", "suspicion", "knn"],
            out=folder / "scores.parquet",
            progress=False,
        )
    return folder / "scores.parquet"


@pytest.fixture(params=PROGRAMS)
def rewritten(request: pytest.FixtureRequest, scored: Path, tmp_path: Path) -> Path:
    """The same scores, written again, with the features beside them."""
    out = tmp_path / "again.parquet"
    PROGRAMS[request.param](scored, out)
    out.with_suffix(".features").symlink_to(scored.with_suffix(".features"))
    return out


def lost() -> Any:  # noqa: ANN401
    return pytest.warns(ChangedFile, match="has lost the key 'difficulty' of its metadata")


def by_id(table: pa.Table) -> Mapping[str, Mapping[str, Any]]:
    return {row["sample_id"]: row for row in table.to_pylist()}


def test_columns_have_the_values_and_types_of_the_file_that_was_written(
    scored: Path, rewritten: Path
) -> None:
    original = read_scores(scored).table
    with lost():
        again = read_scores(rewritten).table
    with lost():
        schema = read_score_schema(rewritten)

    assert again.schema == original.schema
    assert by_id(again) == by_id(original)
    assert all(schema.field(field.name).type == field.type for field in original.schema)


def test_what_is_lost_is_said_to_whoever_reads_the_scores(rewritten: Path) -> None:
    with lost():
        scores = ds.open_scores(rewritten)

    (sentence,) = scores.warnings
    for word in ("dataset, backbone, options", "reliability", "boxes or tags", "classes"):
        assert word in sentence


def test_weights_and_difficulty_of_training_are_the_same(scored: Path, rewritten: Path) -> None:
    ids = read_scores(scored).table["sample_id"].to_pylist()
    with lost():
        weights = trainer.read_weights(rewritten, ids)
    with lost():
        difficulty = trainer.read_difficulty(rewritten, ids, column="suspicion")

    assert weights.tolist() == trainer.read_weights(scored, ids).tolist()
    assert difficulty.tolist() == trainer.read_difficulty(scored, ids, column="suspicion").tolist()


def commands(path: Path, scored: Path, out: Path) -> Iterator[list[str]]:
    """Every command that reads a score file, with what it has to be told."""
    images = ["--images", f"{scored.parent}/images"]
    faulty = "image_fault == 'one colour'"
    yield ["report", f"{path}", *images, "--out", f"{out}/report.html"]
    yield ["clean", f"{path}", *images, "--drop", faulty, "--out", f"{out}/c"]
    yield ["export", f"{path}", "--to", "huggingface", *images, "--out", f"{out}/hf"]
    yield ["export", f"{path}", "--to", "csv", "--out", f"{out}/scores.csv"]
    yield ["select", f"{path}", "--count", "5", "--strategy", "hard", "--out", f"{out}/s.csv"]
    yield ["diff", f"{scored}", f"{path}", "--permutations", "0", "--out", f"{out}/diff.csv"]
    yield ["leaks", f"{scored}", f"{path}", "--near-duplicates", "none", "--out", f"{out}/l.csv"]
    yield ["compare-scores", f"{scored}", f"{path}"]
    yield ["consensus", f"{scored}", f"{path}", "--out", f"{out}/consensus.parquet"]
    yield ["audit", f"{path}", "--against", f"{scored}", "--column", "knn", "--join", "sample_id"]


@pytest.mark.analysis("audit", "consensus", "leaks", "selection", "versions")
def test_every_command_reads_it_and_says_what_is_lost(
    scored: Path,
    rewritten: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in commands(rewritten, scored, tmp_path):
        monkeypatch.setattr("sys.argv", ["difficulty", *words])
        with lost():
            code = run_command()

        assert (code, words) == (0, words), capsys.readouterr().err
    page = (tmp_path / "report.html").read_text()
    assert ">one colour<" in page
    assert "has lost the key" in page
    assert len([*(tmp_path / "c").rglob("*.png")]) == 59


def test_a_command_without_the_dataset_says_what_names_it(
    rewritten: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["clean", f"{rewritten}", "--drop", "rmd > 0", "--out", f"{tmp_path}/c"]
    monkeypatch.setattr("sys.argv", ["difficulty", *words])

    with lost():
        code = run_command()

    assert code == 1
    assert "which dataset it was made from; name the dataset as --images" in capsys.readouterr().err


def test_a_selection_of_columns_is_enough_for_weights(scored: Path, tmp_path: Path) -> None:
    pq.write_table(
        pq.read_table(scored, columns=["sample_id", "rmd"]).replace_schema_metadata(None),
        tmp_path / "two.parquet",
    )
    ids = read_scores(scored).table["sample_id"].to_pylist()

    with lost():
        weights = trainer.read_weights(tmp_path / "two.parquet", ids)

    assert weights.tolist() == trainer.read_weights(scored, ids).tolist()
    with lost(), pytest.raises(ds.errors.ScoreFileError, match="no column 'label'; every score"):
        ds.open_scores(tmp_path / "two.parquet")


@pytest.mark.parametrize(
    ("name", "cells", "problem"),
    [
        ("label", [1.5, 0.0], "column 'label' of .* is of type double and cannot be int32"),
        ("label", [1.0, float("nan")], "column 'label' of .* has 1 nulls, expected none; leave"),
        ("rmd", ["hard", "2"], "column 'rmd' of .* is of type string and cannot be double"),
    ],
)
def test_cells_that_no_score_file_has_are_refused_by_their_column(
    tmp_path: Path, name: str, cells: list[object], problem: str
) -> None:
    columns = {"sample_id": ["a", "b"], "label": [0, 1], "label_name": ["x", "y"], "rmd": [1.0, 2]}
    pq.write_table(pa.table(columns | {name: cells}), tmp_path / "s.parquet")

    with lost(), pytest.raises(ds.errors.ScoreFileError, match=problem):
        read_scores(tmp_path / "s.parquet")


def test_the_dimension_that_weights_divide_by_is_asked_for(scored: Path, tmp_path: Path) -> None:
    with_pandas(scored, tmp_path / "s.parquet")
    ids = read_scores(scored).table["sample_id"].to_pylist()

    with lost(), pytest.raises(ds.errors.ConfigError, match="does not say how many numbers"):
        trainer.read_weights(tmp_path / "s.parquet", ids, normalise="per_dimension")


def keep_with_arrow(path: Path, out: Path) -> None:
    table = pa.Table.from_pandas(pd.read_parquet(path), preserve_index=False)
    pq.write_table(table.replace_schema_metadata(pq.read_schema(path).metadata), out)


def keep_with_polars(path: Path, out: Path) -> None:
    pl = pytest.importorskip("polars")
    known = pl.read_parquet_metadata(path)["difficulty"]
    pl.read_parquet(path).write_parquet(out, metadata={"difficulty": known})


def keep_with_duckdb(path: Path, out: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    duckdb.sql(f"""
        set variable known = (
            select decode(value) from parquet_kv_metadata('{path}') where decode(key) = 'difficulty'
        );
        copy (from '{path}') to '{out}' (kv_metadata {{difficulty: getvariable('known')}})
    """)  # noqa: S608


def keep_with_fastparquet(path: Path, out: Path) -> None:
    known = pq.read_schema(path).metadata[b"difficulty"].decode()
    pytest.importorskip("fastparquet").write(
        str(out), pd.read_parquet(path), custom_metadata={"difficulty": known}
    )


KEEPING: list[Callable[[Path, Path], None]] = [
    keep_with_arrow,
    keep_with_polars,
    keep_with_duckdb,
    keep_with_fastparquet,
]


@pytest.mark.parametrize("write", KEEPING)
def test_a_program_that_writes_the_key_again_keeps_everything(
    scored: Path, tmp_path: Path, write: Callable[[Path, Path], None]
) -> None:
    write(scored, tmp_path / "again.parquet")

    again, original = read_scores(tmp_path / "again.parquet"), read_scores(scored)

    assert again.provenance == original.provenance
    assert again.table.schema == original.table.schema
    assert again.table.to_pylist() == original.table.to_pylist()
