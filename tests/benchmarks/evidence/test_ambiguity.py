"""The tables of how much better `ambiguity` agrees with people, from made-up cells."""

import json
from pathlib import Path

import pytest

from benchmarks.evidence.ambiguity import people_name, write_tables, wrong_name
from benchmarks.evidence.label_sets import TEST_SET
from benchmarks.evidence.names import WITH_SUSPICION
from benchmarks.evidence.page_of_labels import people
from benchmarks.evidence.page_text import Tables
from benchmarks.evidence.results import Results
from benchmarks.evidence.scored import cell_name
from benchmarks.evidence.tables import read_rows

PEOPLE = "features,score,spearman,spearman_low,spearman_high,suspicion_statistic\n"


def put(folder: Path, name: str, values: dict[str, object]) -> None:
    """Writes the result of a cell."""
    file = folder / "cells" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(values))


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Tables after cells of one encoder have run."""
    study, folder = tmp_path / "study", tmp_path / "docs"
    folder.mkdir()
    old = "builtin,agree,0.100,0.090,0.110,\nbuiltin,rmd,0.262,0.243,0.280,\n"
    (folder / "people.csv").write_text(PEOPLE + old)
    spearman = {"people": {"spearman": 0.3, "low": 0.28, "high": 0.32}}
    put(study, cell_name("builtin", TEST_SET, "agree"), {"columns": {"agree": spearman}})
    more = {"agree": (0.01, 0.004), "EL2N": (0.02, 0.003), "AUM": (0.006, 0.005)}
    put(study, people_name("builtin"), {"difference": more})
    wrong = {"ambiguity": (-0.01, 0.002), WITH_SUSPICION: (0.01, 0.02)}
    put(study, wrong_name("builtin", TEST_SET), {"difference": wrong})
    write_tables(Results(study), folder)
    return Tables(folder)


def test_rows_of_cells_that_have_run_take_the_place_of_former_ones(tables: Tables) -> None:
    rows = {row["score"]: row["spearman"] for row in read_rows(tables.folder / "people.csv")}

    assert rows == {"rmd": "0.262", "agree": "0.300"}


def test_every_difference_has_a_row(tables: Tables) -> None:
    rows = [tuple(row.values()) for row in tables.rows("ambiguity")]

    assert len(rows) == 5
    assert ("builtin", "votes", "ambiguity", "AUM", "spearman", "0.0060", "0.0050") in rows
    wrong = ("builtin", "verified errors", WITH_SUSPICION, "suspicion", "auroc", "0.0100", "0.0200")
    assert wrong in rows


def test_the_page_names_the_peer_with_the_least_difference(tables: Tables) -> None:
    text = people(tables)

    assert "paired: +0.006 ± 0.005 (builtin, AUM)." in text
    assert "better in 0 of 1 sets" in text
