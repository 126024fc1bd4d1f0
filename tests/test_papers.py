"""The page of the papers: nothing of a paper is left out, and what a line says can be checked."""

import csv
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from benchmarks.papers_quick.rows import ROWS
from docs.papers import PAGE, PAPERS, Result, page, read_results
from tests.command_options import options_by_command
from trainer.losses.adafocal import AdaFocal
from trainer.losses.focal import focal
from trainer.recipes.file import read_recipe, shipped_recipes

CONTENTS = Path(__file__).parent / "data" / "papers_contents.csv"
RESULTS = read_results()
DOCS = PAGE.parent
CONSTANTS = {"0.032", "0.05", "0.1", "0.3", "0.32"}
"""Alphas and smoothing that the numbers of lines belong to."""

STUDIES = re.compile(r"\((?:small|few)|findings\.md#(?:which-part-counts|sentences|images-that-a)")
"""Mark of a line whose numbers are from a study of docs/findings.md that has its table as CSV."""
TEXTS = {
    "difficulty": "004_*.txt",
    "focal": "001_*.txt",
    "adafocal": "002_*.txt",
    "gradients": "000_*.txt",
    "uncertainty": "003_*.txt",
}
"""File of each paper among those of the folder of real data."""

NUMBER = r"(?:[A-Z]\.)?\d+"
LABELS = re.compile(
    rf"\b(Tables?|Figures?|Figs?\.?)\s*[\[|(]*\s*({NUMBER}(?:\([a-z]\))?"
    rf"(?:(?:,|,? and)\s+{NUMBER}(?:\([a-z]\))?)*)"
)
"""A word for tables or figures, with the numbers that follow it."""


@pytest.fixture(scope="module")
def texts(shared: Path) -> Mapping[str, str]:
    """The texts of the papers."""
    found = {paper: sorted(shared.glob(f"papers/{name}")) for paper, name in TEXTS.items()}
    if missing := [paper for paper, files in found.items() if len(files) != 1]:
        pytest.skip(f"{shared} has no texts of {', '.join(missing)}")
    return {paper: files[0].read_text() for paper, files in found.items()}


def contents() -> list[dict[str, str]]:
    with CONTENTS.open(newline="") as file:
        return list(csv.DictReader(file))


def labels_in(text: str) -> set[str]:
    """The tables and figures that a text names, such as "table F.1"."""
    return {
        f"{'table' if word.startswith('T') else 'figure'} {number}"
        for word, numbers in LABELS.findall(text)
        for number in re.findall(NUMBER, numbers)
    }


def test_the_tables_of_the_page_are_made_of_the_list() -> None:
    assert PAGE.read_text() == page(), "run: python docs/papers.py"


def test_every_table_and_figure_of_the_papers_is_in_the_list_and_nothing_else() -> None:
    expected = {(each["paper"], each["result"]) for each in contents()}

    assert {(each.paper, each.result) for each in RESULTS} == expected
    assert {each.paper for each in RESULTS} == set(PAPERS)
    lines = [(each.paper, each.result, each.part) for each in RESULTS]
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("paper", PAPERS)
def test_the_contents_of_a_paper_are_those_that_its_text_names(
    paper: str, texts: Mapping[str, str]
) -> None:
    listed = {each["result"]: each["mark"] for each in contents() if each["paper"] == paper}
    named = labels_in(texts[paper])

    assert named - listed.keys() == set()
    assert {
        result
        for result, mark in listed.items()
        if (mark not in texts[paper] if mark else result not in named)
    } == set()


def test_the_numbers_of_a_list_of_labels_are_all_found() -> None:
    text = "Tables F.1 and F.2, Figures 2(b), 2(c) and 2(d), Fig. [10]in, Figure A.1). Table 3"

    assert labels_in(text) == {
        *("table F.1", "table F.2", "figure 2", "figure 10", "figure A.1", "table 3")
    }


def name_of(result: Result) -> str:
    return f"{result.paper}, {result.result}, {result.part}"


def test_a_line_has_a_command_with_a_reduced_form_or_a_reason() -> None:
    assert [
        name_of(each)
        for each in RESULTS
        if bool(each.command) == bool(each.reason)
        or bool(each.command) != bool(each.row)
        or not (each.shows and each.published)
        or (each.command and not each.ours)
    ] == []


def test_the_list_and_the_reduced_forms_name_each_other() -> None:
    named = {row for each in RESULTS for row in each.rows}

    assert named == {row.name for row in ROWS}


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(
            each,
            id=name_of(each),
            marks=[pytest.mark.analysis("audit")] * ("`difficulty audit" in each.command),
        )
        for each in RESULTS
    ],
)
def test_the_commands_of_a_line_exist_with_their_options_and_recipes(result: Result) -> None:
    options = options_by_command()
    for command in re.findall(r"`difficulty ([^`]+)`", result.command):
        name, *words = command.split()
        assert {word for word in words if word.startswith("--")} <= options[name]
        if name in {"train", "sweep"}:
            changes = re.findall(r"--set (\S+=\S+)", command)
            # Data and the number of epochs, in capitals, are for the reader to fill in.
            known = [each for each in changes if not each.rpartition("=")[2].isupper()]
            assert read_recipe(words[0], known)
    others = re.findall(r"`(\w+_cifar100?)`", result.command)
    assert set(others) <= shipped_recipes().keys()


@pytest.mark.parametrize("paper", PAPERS)
def test_published_numbers_stand_in_the_text_of_their_paper(
    paper: str, texts: Mapping[str, str]
) -> None:
    # Texts that were read from pictures have lost some points, and spaces between numbers.
    numbers = {each.replace(".", "") for each in re.findall(r"[\d.]+", texts[paper])}

    missing = [
        f"{name_of(each)}: {number}"
        for each in RESULTS
        if each.paper == paper
        for number in re.findall(r"(?<![.\d])\d+\.\d+(?![.\d])", each.published)
        if not any(number.replace(".", "") in digits for digits in numbers)
    ]

    assert missing == []


def cells_of_ours() -> list[dict[str, str]]:
    """Every number of ours that a study has measured, and the cell that it is from."""
    with (DOCS / "papers" / "ours.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def recomputed(cell: Mapping[str, str]) -> float:
    """The number that a cell has, from the table of its study."""
    wanted = dict(each.split("=", 1) for each in cell["row"].split("|"))
    with (DOCS / cell["file"]).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if wanted.items() <= row.items()]
    column, (row,) = cell["column"], rows
    value = float(row[column])
    if cell["formula"] == "value - difference":
        return value - float(row.get(f"{column}: difference") or row["difference"])
    return {"value": value, "100 - value": 100 - value, "100 * value": 100 * value}[cell["formula"]]


@pytest.mark.parametrize(
    "cell", cells_of_ours(), ids=lambda cell: f"{cell['paper']}, {cell['result']}, {cell['number']}"
)
def test_our_number_is_that_of_its_study(cell: Mapping[str, str]) -> None:
    step = 10.0 ** -len(cell["number"].partition(".")[2])
    # A value and a difference are rounded each.
    rounding = 0.01 if "difference" in cell["formula"] else 0

    assert float(cell["number"]) == pytest.approx(recomputed(cell), abs=step / 2 + rounding + 1e-9)


def test_every_number_of_a_line_that_names_a_study_is_recomputed() -> None:
    cells: dict[tuple[str, str, str], list[str]] = {}
    for cell in cells_of_ours():
        cells.setdefault((cell["paper"], cell["result"], cell["part"]), []).append(cell["number"])
    shown = {
        (each.paper, each.result, each.part): [
            number
            for number in re.findall(r"(?<![.\d])\d+\.\d+(?![.\d])", each.ours)
            if number not in CONSTANTS
        ]
        for each in RESULTS
    }

    assert {line: shown[line] for line in cells} == cells
    named = {(each.paper, each.result, each.part) for each in RESULTS if STUDIES.search(each.ours)}
    assert {line for line in named if shown[line]} <= cells.keys()


@pytest.mark.parametrize("gamma", [0.0, 4.0])
def test_adafocal_without_updates_is_focal_loss_and_reports_the_gaps_of_its_bins(
    gamma: float,
) -> None:
    logits, targets = torch.randn(30, 3, dtype=torch.float64), torch.arange(30) % 3
    confidences, classes = logits.softmax(1).max(1)
    loss = AdaFocal(first_gamma=gamma, rate=0, switch=0)

    loss.after_epoch(confidences, classes == targets)

    torch.testing.assert_close(loss(logits, targets), focal(logits, targets, gamma=gamma))
    assert {row["gamma"] for row in loss.epoch_rows()} == {gamma}
    assert any(row["gap"] for row in loss.epoch_rows())
