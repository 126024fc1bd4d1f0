"""Cells of CSV files that no spreadsheet runs, and that are read as they were."""

import io
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from difficulty_service.base.csv_cells import (
    guard_text,
    guarded,
    unguard_ids,
    unguard_text,
    unguarded,
    write_rows,
)
from difficulty_service.base.tables import csv_writer, read_csv
from tests.formulas import FORMULAS, cells_that_run

# Everything of up to four characters that a guard could take for something else.
TEXTS = ["".join(text) for length in range(5) for text in product("='\" \t-\uff20a", repeat=length)]


def test_text_that_a_spreadsheet_runs_begins_with_a_quote() -> None:
    assert [guarded(text) for text in FORMULAS] == [f"'{text}" for text in FORMULAS]


@pytest.mark.parametrize("text", ["", "cat", "a=b", "cat/-1.png", "'cat'", '"cat"', "1.5", " a"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert (guarded(text), unguarded(text)) == (text, text)


def test_every_text_is_read_as_it_was_written() -> None:
    assert [unguarded(guarded(text)) for text in TEXTS] == TEXTS
    assert len({guarded(text) for text in TEXTS}) == len(TEXTS)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_columns_are_guarded_as_single_texts_are(kind: pa.DataType) -> None:
    texts = [*TEXTS, *FORMULAS, None]
    table = pa.table({"=name": pa.array(texts, kind), "number": pa.array([-1.5] * len(texts))})

    cells = guard_text(table)

    assert cells["'=name"].to_pylist() == [
        None if text is None else guarded(text) for text in texts
    ]
    assert cells["number"].to_pylist() == [-1.5] * len(texts)
    assert unguard_text(cells).equals(table)


def test_a_table_is_written_without_formulas_and_read_as_it_was(tmp_path: Path) -> None:
    table = pa.table({
        "-id": pa.array([*FORMULAS, "'-known", None]),
        "class": pa.array([*FORMULAS, "cat", None]).dictionary_encode(),
        "score": pa.array([-1.5] * (len(FORMULAS) + 2)),
    })  # fmt: skip
    path = tmp_path / "table.csv"

    with csv_writer(path, table.schema) as write:
        write(table)

    assert cells_that_run(path.read_bytes().decode()) == []
    assert b",-1.5\n" in path.read_bytes(), "a number stays a number"
    again = read_csv(path, table.schema)
    assert again.to_pydict() == table.to_pydict()


def test_rows_are_written_without_formulas_and_numbers_as_they_are() -> None:
    file = io.StringIO(newline="")

    write_rows(file, ["=name", "score"], [[text, -1.5] for text in FORMULAS], newline="\n")

    assert cells_that_run(file.getvalue()) == []
    assert file.getvalue().startswith("'=name,score\n'=1+1,-1.5\n")


def test_ids_of_a_file_that_was_written_here_are_found_among_those_they_were_made_from() -> None:
    known = pa.array([*TEXTS, *(text for text in FORMULAS if text not in TEXTS)])
    cells = pa.array([*(guarded(text) for text in reversed(known.to_pylist())), None])

    ids = unguard_ids(cells, known)

    assert ids.to_pylist() == [*reversed(known.to_pylist()), None]


@pytest.mark.parametrize(
    "cells",
    [
        ["'=1", "a"],  # a file of another program, where the quote belongs to the id
        ["=1", "'=1"],
        ["=1", None],
        ["'b'", "'=2"],
        [],
    ],
)
def test_ids_that_are_known_as_they_stand_keep_their_quotes(cells: list[str | None]) -> None:
    known = pa.array(["'=1", "=1", "a", "'b'"])

    assert unguard_ids(pa.array(cells, pa.string()), known).to_pylist() == cells
