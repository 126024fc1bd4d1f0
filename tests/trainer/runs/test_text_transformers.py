"""Runs of a pretrained network of texts: its own tokens, and evaluation without its weights."""

import shutil
from pathlib import Path

import pytest
import torch

from difficulty_service.base.errors import ConfigError
from tests.small_runs import finish
from trainer import run_folder
from trainer.config import Recipe
from trainer.evaluation.prediction_file import read_predictions
from trainer.metrics.bootstrap import Resampling
from trainer.recipes.file import recipe_from_dict
from trainer.runs.evaluate import DatasetChoice, evaluate_on_dataset, load_model

FEW = Resampling(num_resamples=20)
TEXTS = {"cats": ["the cat sat", "cats sat", "the cat ran"], "dogs": ["the dogs ran", "dog", "a"]}


def recipe_of(model: Path, table: Path, **data: object) -> Recipe:
    rows = [(text, label) for label, texts in TEXTS.items() for text in texts]
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows * 4))
    return recipe_from_dict(
        {
            "name": "texts",
            "data": {
                "train": str(table),
                "test": str(table),
                "kind": "text",
                "validation": 0.25,
                **data,
            },
            "model": {"name": f"transformers:{model}"},
            "optimiser": {"name": "adamw", "learning_rate": 0.003},
            "training": {"epochs": 2, "batch_size": 6, "precision": "fp32"},
        },
        "the recipe of the test",
    )


@pytest.fixture
def bert(small_bert: Path, tmp_path: Path) -> Path:
    """A copy of the network, whose files a test may delete."""
    return Path(shutil.copytree(small_bert, tmp_path / "bert"))


def test_a_run_is_evaluated_again_without_the_weights_that_it_started_from(
    bert: Path, tmp_path: Path
) -> None:
    table = tmp_path / "texts.csv"
    folder = finish(recipe_of(bert, table), tmp_path / "run")
    (bert / "model.safetensors").unlink()

    _, predictions = evaluate_on_dataset(load_model(folder, "cpu"), DatasetChoice(str(table)), FEW)

    saved = read_predictions(folder / "test.npz")
    torch.testing.assert_close(predictions.logits, saved.logits, rtol=0, atol=1e-6)


def test_texts_consist_of_the_tokens_of_the_network(bert: Path, tmp_path: Path) -> None:
    folder = finish(recipe_of(bert, tmp_path / "texts.csv", text_length=5), tmp_path / "run")

    spec, _ = run_folder.read_inputs(folder / run_folder.INPUTS)

    assert spec.shape == (5,)
    assert spec.vocabulary[8:10] == ("dog", "##s")
    assert (spec.tokenizer, spec.padding) == (str(bert), 0)


def test_texts_are_no_longer_than_the_network_allows(bert: Path, tmp_path: Path) -> None:
    folder = finish(recipe_of(bert, tmp_path / "texts.csv"), tmp_path / "run")

    assert run_folder.read_inputs(folder / run_folder.INPUTS)[0].shape == (12,)


def test_a_size_of_vocabulary_beside_that_of_the_network_is_refused(
    bert: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="has its own vocabulary"):
        recipe_of(bert, tmp_path / "texts.csv", vocabulary_size=100)
