"""The quick form of the study: a few hundred real images, from their extraction to the page."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.evidence.cells import Cell, fill, read_result
from benchmarks.evidence.data import Study, extract
from benchmarks.evidence.label_sets import TEST_SET, TRAINING_SETS, LabelSet
from benchmarks.evidence.noise import NOISE
from benchmarks.evidence.page import write_page
from benchmarks.evidence.paper import paper_cells
from benchmarks.evidence.run import score_all
from benchmarks.evidence.scored import cell_name, score_samples
from benchmarks.evidence.uncertainty import head_cell, uncertainty_cells
from benchmarks.evidence.views import View, look_at, view_name

AGGREGATED = TRAINING_SETS[0]
PLANTED = [LabelSet("cifar100-test", kind, 0.1) for kind in NOISE]


@pytest.fixture(scope="module")
def page(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    """The page of the quick form, the folder that it lies in, and that of the study."""
    folder, docs = (tmp_path_factory.mktemp(name) for name in ("study", "docs"))
    study = Study(folder, shared, limit=300)
    assert score_all(study, "builtin", [TEST_SET, AGGREGATED], jobs=0) == []
    extract(study, "cifar100-test", "builtin")
    cells = [
        Cell(
            cell_name("builtin", labels, "suspicion"),
            partial(score_samples, study, "builtin", labels, "suspicion"),
        )
        for labels in PLANTED
    ]
    cells += [cell for cell in paper_cells(study) if cell.name == "paper/errors/builtin"]
    cells += [head_cell(study, "builtin", [TEST_SET, AGGREGATED])]
    assert fill(folder, cells, jobs=0) == []
    heads = uncertainty_cells(study, "builtin", [TEST_SET, AGGREGATED])
    assert fill(folder, heads, jobs=0) == []
    write_page(folder, docs)
    return (docs / "evidence.md").read_text(), docs, folder


def rows_of(text: str, section: str) -> dict[str, list[str]]:
    """Cells of the first table of a section, by the name of their row."""
    lines = text.partition(f"{section}\n")[2].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| ---"))
    rows = {}
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            break
        name, *cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        rows[name] = cells
    return rows


@pytest.mark.slow
def test_every_score_and_every_peer_is_compared_with_people(page: tuple[str, Path, Path]) -> None:
    rows = rows_of(page[0], "## Images that people disagree on")

    ours = {"`rmd`", "`suspicion`", "`agree`", "`uncertainty`"}
    assert ours | {"cleanlab self_confidence", "AUM"} <= rows.keys()
    assert all("to" in cells[0] for cells in rows.values())
    assert sum(cells[0].startswith("**") for cells in rows.values()) == 1


@pytest.mark.slow
def test_wrong_labels_are_found_and_the_best_of_each_set_is_bold(
    page: tuple[str, Path, Path],
) -> None:
    rows = rows_of(page[0], "### AUROC, builtin")

    column = {name: cells[0] for name, cells in rows.items() if "±" in cells[0]}
    values = {name: float(cell.strip("*").split()[0]) for name, cell in column.items()}
    assert max(values.values()) > 0.75
    bold = {name for name, cell in column.items() if cell.startswith("**")}
    assert bold == {name for name in values if values[name] == max(values.values())}


@pytest.mark.slow
def test_planted_labels_are_found(page: tuple[str, Path, Path]) -> None:
    rows = rows_of(page[0], "### Planted wrong labels, builtin")

    for labels in PLANTED:
        found = rows[f"CIFAR-100, {labels.kind}, 10 %"][2]
        assert float(found.strip("*")) > 0.55  # three images of each class


@pytest.mark.slow
def test_the_page_says_which_cells_have_not_run(page: tuple[str, Path, Path]) -> None:
    rows = rows_of(page[0], "### AUROC, builtin")

    assert rows["`suspicion`"][1] == "not run"


@pytest.mark.slow
def test_the_figures_of_the_page_are_drawn(page: tuple[str, Path, Path]) -> None:
    text, docs, _ = page

    assert text.count("](images/evidence-") == len(list((docs / "images").glob("*.svg"))) == 3


@pytest.mark.slow
def test_the_same_results_give_the_same_page(page: tuple[str, Path, Path], tmp_path: Path) -> None:
    _, docs, folder = page

    write_page(folder, tmp_path)

    first, second = (
        {file.name: file.read_bytes() for file in place.rglob("*.*")} for place in (docs, tmp_path)
    )
    assert first == second
    assert len(first) == 4


@pytest.mark.slow
def test_two_views_together_keep_every_score_with_its_image(
    page: tuple[str, Path, Path], shared: Path
) -> None:
    study = Study(page[2], shared, limit=300)
    views = [View("builtin"), View("builtin", flip=True)]
    for view in views:
        extract(study, TEST_SET.source, view.backbone, flip=view.flip)
    alone = [
        Cell(view_name([view], TEST_SET), partial(look_at, study, [view], TEST_SET))
        for view in views
    ]
    assert fill(page[2], alone, jobs=0) == []

    together = look_at(study, views, TEST_SET).values["columns"]

    # Scores of images in another order would agree with nothing.
    for column in ("label_margin", "suspicion", "agree", "EL2N"):
        single = [
            cell["columns"][column]["people"]["spearman"]
            for view in views
            if (cell := read_result(page[2], view_name([view], TEST_SET))) is not None
        ]
        assert min(single) > 0.15
        assert together[column]["people"]["spearman"] == pytest.approx(np.mean(single), abs=0.06)
