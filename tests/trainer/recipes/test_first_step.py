"""Every recipe that ships with the package takes a training step on small data of its kind."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor

from difficulty_service.scores.file import open_scores
from tests.factories import write_image_folder, write_score_file
from trainer.config import Recipe
from trainer.data import Splits, open_splits
from trainer.recipes.file import read_recipe, shipped_recipes
from trainer.training.loop import TrainingCallbacks, train
from trainer.training.state import make_train_state
from trainer.training.step import TrainingData
from trainer.transformers_files import encoder_of
from trainer.weights.from_scores import weights_of_samples

SIDES = {
    "adafocal_imagenet": 64,
    "fine_tune_resnet50": 64,
    "fine_tune_vit_b": 64,
    "focal_tiny_imagenet": 64,
    "sample_difficulty_imagenet": 64,
}
"""Height and width of the images that are not 32x32; some recipes enlarge them."""

DIMS = {"focal_newsgroups": 100, "tree_lstm_sst": 300}
"""Dimension of the word vectors that a recipe reads from a file."""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], str]:
    """Writes sixty square images of two classes, of which even 2 % can be held out."""

    def write(side: int) -> str:
        folder = tmp_path_factory.mktemp("pictures")
        return str(write_image_folder(folder, ("cat", "dog"), each=30, size=(side, side)))

    return write


@pytest.fixture
def texts(tmp_path: Path) -> str:
    """Thirty texts of two classes."""
    path = tmp_path / "texts.parquet"
    table = {"text": ["a cat sat", "the dog ran far"] * 15, "label": [0, 1] * 15}
    pq.write_table(pa.table(table), path)
    return str(path)


@pytest.fixture
def trees(tmp_path: Path) -> str:
    """Thirty trees of two classes, with a column of splits."""
    path = tmp_path / "trees.parquet"
    table = {
        "tree": ["(0 (0 no) (1 cat))", "(1 (1 a) (1 dog))"] * 15,
        "label2": [0, 1] * 15,
        "split": ["train"] * 20 + ["dev"] * 10,
    }
    pq.write_table(pa.table(table), path)
    return str(path)


@pytest.fixture
def write_glove(tmp_path: Path) -> Callable[[int], str]:
    """Writes vectors of so many numbers of two of the words."""

    def write(dim: int) -> str:
        path = tmp_path / f"glove.{dim}d.txt"
        path.write_text("".join(f"{word}{' 0.5' * dim}\n" for word in ("cat", "dog")))
        return str(path)

    return write


@pytest.fixture
def small(
    pictures: Callable[[int], str],
    texts: str,
    trees: str,
    features: str,
    write_glove: Callable[[int], str],
    small_bert: Path,
) -> Callable[[str], Recipe]:
    """Reads a recipe for small data and batches of two."""

    def read(name: str) -> Recipe:
        kind = read_recipe(name).data.kind
        written = {"features": features, "text": texts, "trees": trees}.get(kind)
        train = written or pictures(SIDES.get(name, 32))
        changes = [f"data.train={train}", "data.test=", "training.batch_size=2"]
        if kind == "trees":
            changes += ["data.test_split=", f"data.validation={train}", "data.phrases=false"]
        if name.startswith("fine_tune"):
            changes.append("model.pretrained=false")
        if name.endswith("_bert"):
            changes.append(f"model.name=transformers:{small_bert}")
        if name in DIMS:
            changes.append(f"model.embeddings={write_glove(DIMS[name])}")
        return read_recipe(name, changes)

    return read


def weights_of(splits: Splits, recipe: Recipe, folder: Path) -> Tensor | None:
    """Weights by scores that rise from sample to sample, where the recipe has weights."""
    if recipe.regulariser.weights == "constant":
        return None
    ids = list(splits.all_ids)
    scores = dict(zip(ids, np.linspace(-100.0, 100.0, len(ids)), strict=True))
    path = write_score_file(folder / "scores.parquet", scores, backbone="builtin")
    with open_scores(path) as opened:
        weights, _ = weights_of_samples(
            splits.train.sample_ids, opened, recipe.regulariser, known_ids=ids
        )
    return weights


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_takes_a_step(
    small: Callable[[str], Recipe], accelerator: Accelerator, tmp_path: Path, name: str
) -> None:
    recipe = small(name)
    tokenizer = encoder_of(recipe.model.name)
    splits = open_splits(recipe.data, 0, torch.device("cpu"), tokenizer)
    state = make_train_state(recipe, 0, splits, accelerator)
    parameters = dict(state.model.named_parameters())
    before = {key: value.detach().clone() for key, value in parameters.items()}
    steps: list[int] = []
    data = TrainingData(splits.train, weights_of(splits, recipe, tmp_path), splits.validation)
    callbacks = TrainingCallbacks(steps.append, lambda _: None, lambda: None, lambda: True)

    train(state, data, recipe, 0, accelerator, callbacks)

    moved = {key for key, value in parameters.items() if not torch.equal(value, before[key])}
    trained = {key for key, value in parameters.items() if value.requires_grad}
    assert steps == [2]
    assert all(value.isfinite().all() for value in parameters.values())
    # timm's residual branches start at zero, so that only their last layer moves at first.
    assert 2 * len(moved) > len(trained)
    assert moved <= trained
