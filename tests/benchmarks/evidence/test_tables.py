"""Tables keep what was written, and show the best numbers bold as a reader sees them."""

from pathlib import Path

from benchmarks.evidence.page_text import Column, of_scores
from benchmarks.evidence.tables import read_rows, write_rows

OTHERS = [{"score": name, "auroc": text} for name, text in (("AUM", "0.988"), ("EL2N", "0.5"))]


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows = [{"score": "rmd, own", "auroc": "0.9"}, {"score": "AUM"}]

    write_rows(tmp_path / "a.csv", ("score", "auroc"), rows)

    assert read_rows(tmp_path / "a.csv") == [rows[0], {"score": "AUM", "auroc": ""}]


def test_a_table_without_rows_has_its_header(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.csv", ("score", "auroc"), [])

    assert (tmp_path / "a.csv").read_text() == "score,auroc\n"


def test_a_score_that_is_the_best_is_shown_though_nobody_asked_for_it() -> None:
    rows = [{"score": "rmd", "auroc": "0.9"}, *OTHERS]

    shown = of_scores(["rmd"], [Column("worst", rows, "auroc")])

    assert shown.splitlines()[2:] == ["| `rmd` | 0.9 |", "| AUM | **0.988** |"]


def test_numbers_that_read_the_same_are_equally_good() -> None:
    rows = [{"score": "rmd", "auroc": "0.988"}, *OTHERS]

    shown = of_scores(["rmd"], [Column("worst", rows, "auroc")])

    assert shown.splitlines()[2:] == ["| `rmd` | **0.988** |", "| AUM | **0.988** |"]


def test_what_has_not_run_is_never_the_best() -> None:
    columns = [Column("worst", OTHERS, "auroc"), Column("aggre", [], "auroc")]

    shown = of_scores(["rmd"], columns)

    assert shown.splitlines()[2:] == [
        "| `rmd` | not run | not run |",
        "| AUM | **0.988** | not run |",
    ]


def test_the_widest_interval_of_the_scores_that_are_shown_is_said() -> None:
    rows = [
        {"score": "rmd", "auroc": "0.9", "auroc_95": "0.01"},
        {"score": "md", "auroc": "0.5", "auroc_95": "0.2"},
    ]

    shown = of_scores(["rmd"], [Column("worst", rows, "auroc")], "auroc_95")

    assert shown.splitlines()[-1] == "| 95 % interval: ± at most | 0.01 |"
