"""Tables and page of a study of a few made-up cells."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.evidence.cells import STATISTIC
from benchmarks.evidence.counts import Found, row_of, write_counts
from benchmarks.evidence.families import FAMILIES
from benchmarks.evidence.label_sets import TEST_SET, TRAINING_SETS
from benchmarks.evidence.names import PEERS
from benchmarks.evidence.page import TABLES, write_page
from benchmarks.evidence.run import write_results
from benchmarks.evidence.tables import read_rows

WORST = TRAINING_SETS[1]
PEOPLE = {"spearman": 0.12345, "low": 0.1, "high": 0.14}


def put(folder: Path, name: str, values: dict[str, object], statistic: str = STATISTIC) -> None:
    """Writes the result of a cell."""
    file = folder / "cells" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    ran = {"cell_seconds": 1800, "machine": "a processor", "statistic": statistic}
    file.write_text(json.dumps(values | ran))


def put_scores(folder: Path, ours: float, theirs: float, statistic: str = STATISTIC) -> None:
    """Writes cells of `suspicion` and of every peer, under the labels with most errors."""
    by_method = {"suspicion": {"suspicion": ours}}
    for column, method in PEERS.items():
        by_method.setdefault(method, {})[column] = theirs
    for method, columns in by_method.items():
        found = {
            column: {
                "wrong": {"auroc": value, "auroc_error": 0.01, "average_precision": 0.5},
                "people": PEOPLE,
            }
            for column, value in columns.items()
        }
        values = {"columns": found, "seconds": 12.3, "megabytes": 1234.5}
        for labels in (WORST, TEST_SET):
            put(folder, f"scores/builtin/{labels.name}/{method}", values, statistic)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Folders of a study and of its page."""
    return tmp_path / "study", tmp_path / "docs"


def test_every_number_of_a_cell_is_in_the_tables(folders: tuple[Path, Path]) -> None:
    put_scores(folders[0], ours=0.93456, theirs=0.9)

    write_results(*folders)

    written = {file.stem: read_rows(file) for file in (folders[1] / TABLES).glob("*.csv")}
    assert written.keys() == FAMILIES.keys()
    assert written["wrong_labels"][0] == {
        "features": "builtin",
        "labels": "worst",
        "wrong_percent": "40",
        "score": "suspicion",
        "auroc": "0.9346",
        "auroc_95": "0.0100",
        "average_precision": "0.500",
        "precision": "",
        "recall": "",
        "suspicion_statistic": "present",
    }
    assert written["people"][0]["spearman"] == "0.123"
    assert (written["costs"][0]["seconds"], written["costs"][0]["megabytes"]) == ("12", "1234")
    assert written["best"][0]["sets"] == "2"
    assert written["study"][0]["cells"] == str(2 * len({"suspicion", *PEERS.values()}))


def test_the_page_is_made_of_the_tables_alone(folders: tuple[Path, Path]) -> None:
    study, docs = folders
    put_scores(study, ours=0.93456, theirs=0.9)
    write_results(study, docs)
    first = (docs / "evidence.md").read_text()
    table = docs / TABLES / "wrong_labels.csv"

    table.write_text(table.read_text().replace("0.9346", "0.9876"))
    write_page(docs)

    assert "| `suspicion` | **0.9346** |" in first
    assert (docs / "evidence.md").read_text() == first.replace("0.9346", "0.9876")


@pytest.mark.slow
def test_the_same_cells_give_the_same_bytes(folders: tuple[Path, Path], tmp_path: Path) -> None:
    put_scores(folders[0], ours=0.93, theirs=0.9)

    places = (folders[1], tmp_path / "again")
    for place in places:
        write_results(folders[0], place)

    first, second = (
        {file.name: file.read_bytes() for file in place.rglob("*.*")} for place in places
    )
    assert first == second


@pytest.mark.slow
def test_the_page_says_what_has_not_run(folders: tuple[Path, Path]) -> None:
    put_scores(folders[0], ours=0.93, theirs=0.9)

    write_results(*folders)

    page = (folders[1] / "evidence.md").read_text()
    assert "| `rmd` | not run | not run | not run |" in page
    assert "| soft targets | not run | not run |" in page


def test_numbers_of_a_former_statistic_are_marked_and_the_page_says_so(
    folders: tuple[Path, Path],
) -> None:
    put_scores(folders[0], ours=0.93, theirs=0.9, statistic="")

    write_results(*folders)

    rows = read_rows(folders[1] / TABLES / "wrong_labels.csv")
    marked = {row["score"] for row in rows if row["suspicion_statistic"] == "former"}
    assert marked == {"suspicion"}
    assert "**Former statistic**" in (folders[1] / "evidence.md").read_text()


def test_the_page_of_the_present_statistic_has_no_such_mark(folders: tuple[Path, Path]) -> None:
    put_scores(folders[0], ours=0.93, theirs=0.9)

    write_results(*folders)

    assert "**Former statistic**" not in (folders[1] / "evidence.md").read_text()


@pytest.mark.slow
def test_a_peer_that_is_ahead_is_named(folders: tuple[Path, Path]) -> None:
    put_scores(folders[0], ours=0.9, theirs=0.91)

    write_results(*folders)

    page = (folders[1] / "evidence.md").read_text()
    assert "the highest AUROC is ours in 0 of 2 (builtin) sets" in page
    assert "**A peer is ahead** on worst (builtin), verified errors (builtin)" in page


def test_counts_are_means_over_the_draws_and_shares_those_of_all(tmp_path: Path) -> None:
    p_wrong, wrong = np.array([0.05, 0.97, 0.93]), np.array([False, True, False])
    draws = [Found(1, 2.0, 1, suspicion, 0.8, p_wrong, wrong) for suspicion in (0.9, 0.92)]

    write_counts(tmp_path, [row_of(("CIFAR-10N", "worst", "builtin"), 10_000, draws)], draws)

    row = read_rows(tmp_path / TABLES / "counts.csv")[0]
    assert (row["dataset"], row["labels"], row["samples"]) == ("CIFAR-10N", "worst", "10000")
    assert (row["wrong"], row["expected"], row["above_half"]) == ("1", "2", "2")
    assert (row["above_half_wrong_share"], row["minus_label_margin"]) == ("0.50", "0.110")
    assert (row["above_95"], row["above_95_wrong_share"]) == ("1", "1.00")
    assert (row["fit_low"], row["fit_low_held"]) == ("1", "2")
    ranges = read_rows(tmp_path / TABLES / "p_wrong.csv")
    assert [(each["p_wrong_from"], each["labels"]) for each in ranges] == [
        ("0.0", "2"),
        ("0.9", "4"),
    ]
    assert ranges[1]["wrong_share"] == "0.500"
    page = (tmp_path / "evidence.md").read_text()
    assert "| CIFAR-10N, worst, 10,000 | builtin | 1 | 2 | 1 | 2 | 0.50 | 1 | 1.00 |" in page


def test_labels_of_which_none_is_wrong_have_no_auroc() -> None:
    draw = Found(0, 0.4, 0, np.nan, np.nan, np.array([0.2]), np.array([False]))

    row = row_of(("CIFAR-10N", "official", "builtin"), 500, [draw, draw])

    assert not row.keys() & {"suspicion_auroc", "above_half_wrong_share"}
