"""The quick form of the study: a few hundred real images, from their extraction to the page."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.evidence import uncertainty
from benchmarks.evidence.cells import Cell, fill, read_result
from benchmarks.evidence.data import Study, extract
from benchmarks.evidence.label_sets import TEST_SET, TRAINING_SETS, LabelSet
from benchmarks.evidence.names import COLUMNS
from benchmarks.evidence.noise import NOISE
from benchmarks.evidence.page import TABLES
from benchmarks.evidence.paper import paper_cells
from benchmarks.evidence.run import score_all, write_results
from benchmarks.evidence.scored import cell_name, score_samples
from benchmarks.evidence.tables import read_rows
from benchmarks.evidence.uncertainty import head_cell, uncertainty_cells
from benchmarks.evidence.views import View, look_at, view_name
from difficulty_service.cli import create_app

AGGREGATED = TRAINING_SETS[0]
IMAGES = 300
PLANTED = [LabelSet("cifar100-test", kind, 0.1) for kind in NOISE]


def difficulty(*words: object) -> None:
    """The command in this process, which has loaded torch."""
    create_app()([str(word) for word in words])


@pytest.fixture(scope="module")
def written(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of the page of the quick form, and that of the study."""
    folder, docs = (tmp_path_factory.mktemp(name) for name in ("study", "docs"))
    study = Study(folder, shared, limit=IMAGES)
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uncertainty, "_difficulty", difficulty)
        assert fill(folder, cells, jobs=0) == []
    heads = uncertainty_cells(study, "builtin", [TEST_SET, AGGREGATED])
    assert fill(folder, heads, jobs=0) == []
    write_results(folder, docs)
    return docs, folder


@pytest.mark.long
def test_every_score_and_every_peer_is_compared_with_people(written: tuple[Path, Path]) -> None:
    rows = read_rows(written[0] / TABLES / "people.csv")

    assert {row["score"] for row in rows} == COLUMNS.keys()
    assert all(
        float(row["spearman_low"]) < float(row["spearman"]) < float(row["spearman_high"])
        for row in rows
    )


@pytest.mark.long
def test_wrong_labels_are_found_by_every_score_that_knows_labels(
    written: tuple[Path, Path],
) -> None:
    rows = read_rows(written[0] / TABLES / "wrong_labels.csv")

    found = {row["score"]: float(row["auroc"]) for row in rows if row["labels"] == "aggre"}
    assert found.keys() == COLUMNS.keys() - {"kmeans", "knn"}
    assert max(found.values()) > 0.75
    assert {row["suspicion_statistic"] for row in rows if row["score"] == "suspicion"} == {
        "present"
    }


@pytest.mark.long
def test_planted_labels_are_found(written: tuple[Path, Path]) -> None:
    rows = read_rows(written[0] / TABLES / "planted.csv")

    assert [(row["dataset"], row["noise"]) for row in rows] == [
        ("CIFAR-100", labels.kind) for labels in PLANTED
    ]
    assert all(float(row["auroc"]) > 0.55 for row in rows)  # three images of each class


@pytest.mark.long
def test_the_figures_of_the_page_are_drawn(written: tuple[Path, Path]) -> None:
    docs, _ = written
    text = (docs / "evidence.md").read_text()

    assert text.count("](images/evidence-") == len(list((docs / "images").glob("*.svg"))) == 3


@pytest.mark.long
def test_two_views_together_keep_every_score_with_its_image(
    written: tuple[Path, Path], shared: Path
) -> None:
    study = Study(written[1], shared, limit=IMAGES)
    views = [View("builtin"), View("builtin", flip=True)]
    for view in views:
        extract(study, TEST_SET.source, view.backbone, flip=view.flip)
    alone = [
        Cell(view_name([view], TEST_SET), partial(look_at, study, [view], TEST_SET))
        for view in views
    ]
    assert fill(written[1], alone, jobs=0) == []

    together = look_at(study, views, TEST_SET).values["columns"]

    # Scores of images in another order would agree with nothing.
    for column in ("label_margin", "suspicion", "agree", "EL2N"):
        single = [
            cell["columns"][column]["people"]["spearman"]
            for view in views
            if (cell := read_result(written[1], view_name([view], TEST_SET))) is not None
        ]
        assert min(single) > 0.15
        assert together[column]["people"]["spearman"] == pytest.approx(np.mean(single), abs=0.06)
