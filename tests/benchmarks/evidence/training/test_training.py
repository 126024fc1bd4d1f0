"""Networks of the study are trained by the product's trainer, on a few images for one epoch."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.evidence.cells import fill, read_result
from benchmarks.evidence.data import Study, extract, read_images
from benchmarks.evidence.label_sets import LabelSet, label_samples
from benchmarks.evidence.results import Results
from benchmarks.evidence.training import answers, tables
from benchmarks.evidence.training.cells import chosen_alpha, run_name, search_cells, seed_cells
from benchmarks.evidence.training.data import SOURCE, prepare_splits, read_splits
from benchmarks.evidence.training.methods import (
    ANY_LABELS,
    CONSTANT,
    PROBE,
    SCRATCH,
    WRONG_LABELS,
)
from benchmarks.evidence.training.tables import training, verdicts
from benchmarks.evidence.training.trust import NUM_CLASSES, TRUST, with_wrong
from difficulty_service.scores.file import read_scores
from trainer.weights.label_trust import trust_in_labels

NETWORKS = [replace(each, epochs=1, seeds=2) for each in (PROBE, SCRATCH)]
FROM_SCRATCH = {"cross-entropy", "suspects-dropped"}
"""Methods of the quick form from scratch; all are in that of the probe."""


IMAGES, TRAINED = 800, 720
"""With fewer, some classes have no image that is not suspected to be of another."""


@pytest.fixture(scope="module")
def study(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study of a few training images and as many test images."""
    study = Study(tmp_path_factory.mktemp("study"), shared, limit=IMAGES)
    for source in (SOURCE, "cifar10-test"):
        extract(study, source, "builtin")
    prepare_splits(study)
    return study


@pytest.fixture(scope="module")
def filled(study: Study) -> Study:
    """The study with runs of two seeds under the labels with most errors."""
    for network in NETWORKS:
        for cells in (search_cells, seed_cells):
            chosen = [
                cell
                for cell in cells(study, network, "worst")
                if network.name == "probe" or cell.name.split("/")[3] in FROM_SCRATCH
            ]
            assert fill(study.folder, chosen, jobs=0) == []
    return study


@pytest.mark.long
def test_labels_and_images_of_every_split_are_those_of_the_tables(study: Study) -> None:
    images = read_images(study, SOURCE, "builtin")
    given = label_samples(study, images, LabelSet(SOURCE, "worst"))[0].labels
    splits = read_splits(study, "worst")

    held_out = np.arange(IMAGES) % 10 == 9

    np.testing.assert_array_equal(splits.train.labels, given[~held_out])
    np.testing.assert_array_equal(splits.validation.labels, given[held_out])
    np.testing.assert_array_equal(splits.validation.features, images.features[held_out])
    assert splits.train.images.shape == (TRAINED, 32, 32, 3)
    assert (splits.train.labels != read_splits(study, "official").train.labels).mean() > 0.25


@pytest.mark.long
def test_suspects_are_dropped_or_get_the_suggested_label(study: Study) -> None:
    splits = read_splits(study, "worst")
    table = read_scores(splits.scores).table.to_pylist()
    suspects = {int(row["sample_id"]): row for row in table if row["suspicion"] > 0}

    dropped, relabelled = splits.without_suspects(), splits.relabelled()

    kept = [row for row in range(TRAINED) if row not in suspects]
    assert 0 < len(suspects) < TRAINED
    np.testing.assert_array_equal(dropped.train.images, splits.train.images[kept])
    np.testing.assert_array_equal(dropped.train.labels, splits.train.labels[kept])
    for row, label in enumerate(relabelled.train.labels):
        suspected = suspects.get(row, {}).get("suggested_label_name")
        assert label == (splits.train.labels[row] if suspected is None else int(suspected))
    np.testing.assert_array_equal(relabelled.validation.labels, splits.validation.labels)


@pytest.mark.long
def test_the_trainer_trusts_labels_by_what_the_study_of_trust_tells_it(
    study: Study, tmp_path: Path
) -> None:
    scores, given = read_splits(study, "worst").scores, {}
    table = read_scores(scores).table

    for name, wrong in TRUST.items():
        with_wrong(wrong, scores, tmp_path / "told.parquet")
        told = read_scores(tmp_path / "told.parquet").table
        given[name] = trust_in_labels(told, NUM_CLASSES)

    np.testing.assert_allclose(given["1 - p_wrong"], 1 - table["p_wrong"].to_numpy(), rtol=1e-6)
    np.testing.assert_allclose(
        given["mean of both"], trust_in_labels(table, NUM_CLASSES), rtol=1e-5, atol=1e-6
    )
    both = (given["1 - p_wrong"] + given["features alone"]) / 2
    np.testing.assert_allclose(given["mean of both"], both, rtol=1e-5, atol=1e-6)
    assert np.abs(given["features alone"] - given["1 - p_wrong"]).max() > 0.1


@pytest.mark.long
def test_other_seeds_run_with_the_strength_of_the_least_loss_of_held_out_labels(
    filled: Study,
) -> None:
    losses = {
        alpha: (
            read_result(filled.folder, run_name(PROBE, "worst", CONSTANT, alpha, seed=0)) or {}
        )["validation_nll"]
        for alpha in PROBE.alphas
    }

    chosen = chosen_alpha(filled.folder, PROBE, "worst", CONSTANT)

    assert chosen is not None
    assert losses[chosen] == min(losses.values())
    assert len(set(losses.values())) == len(losses)
    others = [cell.name for cell in seed_cells(filled, NETWORKS[0], "worst")]
    assert [name for name in others if "/constant" in name] == [
        run_name(PROBE, "worst", CONSTANT, chosen, seed=1)
    ]


@pytest.mark.long
def test_every_method_and_seed_trains_another_network(filled: Study) -> None:
    folder = filled.folder / "cells/training/probe/worst"
    cells = [json.loads(file.read_text()) for file in folder.rglob("*.json")]

    losses = {cell["metrics"]["raw"]["nll"] for cell in cells}
    assert len(losses) == len(cells) == 18 + 9


@pytest.mark.long
def test_methods_without_all_their_seeds_have_no_row_and_no_verdict(filled: Study) -> None:
    results = Results(filled.folder)

    said = {row["answer"] for row in verdicts(results)}

    assert list(training(results)) == []  # two of five seeds have run
    assert said == {"too few runs to say"}


@pytest.mark.long
def test_methods_with_all_their_seeds_are_compared_with_cross_entropy(
    filled: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {NETWORKS[0]: "probe"}
    for module in (tables, answers):
        monkeypatch.setattr(module, "NETWORKS", names)

    rows = list(training(Results(filled.folder)))

    methods = [method.name for method in (*ANY_LABELS, *WRONG_LABELS)]
    assert {row["labels"] for row in rows} == {"worst"}
    assert list(dict.fromkeys(row["method"] for row in rows)) == methods
    assert {row["method"] for row in rows if "difference" not in row} == {"cross-entropy"}
    assert {row["method"] for row in rows if row.get("suspicion_statistic") == "present"} == {
        method.name for method in WRONG_LABELS
    }
