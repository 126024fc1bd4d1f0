"""Evaluation of networks of texts and trees: their vocabulary, and OOD texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from difficulty_service.base.checksums import load_checked
from tests.small_runs import finish
from trainer.evaluation.prediction_file import read_predictions
from trainer.metrics.bootstrap import Resampling
from trainer.recipes.file import recipe_from_dict
from trainer.runs.evaluate import (
    DatasetChoice,
    OodChoice,
    evaluate_on_dataset,
    evaluate_ood_dataset,
    load_model,
    measure_features,
)

FEW = Resampling(num_resamples=20)


def metrics_of(folder: Path) -> dict[str, Any]:
    return load_checked((folder / "metrics.json").read_text())


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of texts about two things, with words that only the test texts have."""
    folder = tmp_path_factory.mktemp("texts")
    animals = ["the cat sat on a mat", "dogs bark at the cat", "a dog ate my mat"]
    sky = ["rain fell from dark clouds", "the sun shines on clouds", "dark rain and no sun"]
    rows = [(text, "animals") for text in animals] + [(text, "weather") for text in sky]
    write_table(folder / "train.csv", rows * 4)
    others = [("a dog and a platypus", "animals"), ("hail and rain", "weather"), ("?", "weather")]
    write_table(folder / "test.csv", others)
    return folder


def write_table(path: Path, rows: Sequence[tuple[str, str]]) -> None:
    path.write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in rows))


@pytest.fixture(scope="module")
def text_run(texts: Path) -> Path:
    """The folder of a seed of a text network whose file of word vectors was deleted."""
    vectors = texts / "vectors.txt"
    vectors.write_text("cat 1 0 0 0\nrain 0 1 0 0\n")
    recipe = recipe_from_dict(
        {
            "name": "texts",
            "data": {
                "train": str(texts / "train.csv"),
                "test": str(texts / "test.csv"),
                "kind": "text",
                "validation": 0.25,
                "text_length": 5,
            },
            "model": {"name": "text_cnn", "embedding_dim": 4, "embeddings": str(vectors)},
            "optimiser": {"name": "adamw", "learning_rate": 0.003},
            "training": {"epochs": 2, "batch_size": 6, "precision": "fp32"},
        },
        "the recipe of the test",
    )
    folder = finish(recipe, texts / "run")
    vectors.unlink()
    return folder


def test_texts_are_encoded_with_the_vocabulary_of_the_model(text_run: Path, texts: Path) -> None:
    choice = DatasetChoice(str(texts / "test.csv"))

    record, predictions = evaluate_on_dataset(load_model(text_run, "cpu"), choice, FEW)

    saved = read_predictions(text_run / "test.npz")
    torch.testing.assert_close(predictions.logits, saved.logits, rtol=0, atol=1e-6)
    assert torch.equal(predictions.targets, saved.targets)
    assert record["raw"]["accuracy"] == metrics_of(text_run)["raw"]["accuracy"]
    vocabulary = load_model(text_run, "cpu").spec.vocabulary
    assert "cat" in vocabulary
    assert "platypus" not in vocabulary


def test_texts_of_other_classes_are_ood(text_run: Path, tmp_path: Path) -> None:
    write_table(tmp_path / "odd.csv", [("stocks fell", "money"), ("gold rose again", "money")])

    record, _ = evaluate_ood_dataset(
        load_model(text_run, "cpu"), OodChoice(str(tmp_path / "odd.csv"))
    )

    assert 0 <= record["msp"]["auroc"] <= 1


def test_ood_texts_need_no_labels_and_may_stand_in_another_column(
    text_run: Path, tmp_path: Path
) -> None:
    trained = load_model(text_run, "cpu")
    (tmp_path / "plain.csv").write_text("text\nstocks fell\ngold rose again\n")
    (tmp_path / "other.csv").write_text("body,text\nstocks fell,a cat\ngold rose again,rain\n")
    plain = OodChoice(str(tmp_path / "plain.csv"))
    other = OodChoice(str(tmp_path / "other.csv"), column="body")

    records = [evaluate_ood_dataset(trained, choice)[0] for choice in (plain, other)]

    assert records[0] == records[1]


def test_a_network_of_texts_has_mahalanobis_distances(text_run: Path, texts: Path) -> None:
    trained = load_model(text_run, "cpu")

    features = measure_features(trained)
    record, curves = evaluate_ood_dataset(
        trained, OodChoice(str(texts / "test.csv")), None, features
    )

    # The test texts are no further than themselves.
    assert record["mahalanobis"]["auroc"] == pytest.approx(0.5)
    assert (curves[-1].stage, curves[-1].by) == ("raw", "relative_mahalanobis_unit")


@pytest.mark.slow
def test_a_network_of_trees_learns_from_phrases_and_is_evaluated_on_sentences(
    tmp_path: Path,
) -> None:
    rows = [
        ("(1 (1 good) (0 film))", 1),
        ("(0 (0 bad) (0 film))", 0),
        ("(1 (0 not) (1 (0 bad) (0 film)))", 1),
        ("(0 (0 not) (0 (1 good) (0 film)))", 0),
    ] * 6
    path = tmp_path / "trees.csv"
    path.write_text("tree,label\n" + "".join(f"{tree},{label}\n" for tree, label in rows))
    values = {
        "name": "trees",
        "data": {"train": str(path), "test": str(path), "kind": "trees", "validation": 0.25},
        "model": {"name": "tree_lstm", "hidden": 16, "embedding_dim": 8, "dropout": 0.0},
        "optimiser": {"name": "adagrad", "learning_rate": 0.1},
        "training": {"epochs": 30, "batch_size": 6, "precision": "fp32"},
    }

    folder = finish(recipe_from_dict(values, "the recipe of the test"), tmp_path / "run")

    assert metrics_of(folder)["raw"]["accuracy"] == 1, "the order of words decides"
    record, predictions = evaluate_on_dataset(
        load_model(folder, "cpu"), DatasetChoice(str(path)), FEW
    )
    assert record["raw"]["accuracy"] == 1
    assert len(predictions.targets) == len(rows)
