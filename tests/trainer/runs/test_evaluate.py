"""Evaluation of a finished run: its predictions, other data, OOD data and corrupted images."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.errors import ConfigError, DatasetError, TrainingError
from difficulty_service.feature_store.part import Part
from difficulty_service.feature_store.store import create_store
from trainer.config import Recipe
from trainer.evaluation.corruptions import CORRUPTIONS, SEVERITIES
from trainer.evaluation.prediction_file import read_predictions
from trainer.metrics.bootstrap import Resampling
from trainer.recipes.file import recipe_from_dict
from trainer.run_folder import read_inputs, write_inputs
from trainer.runs.evaluate import (
    DatasetChoice,
    evaluate_corruptions,
    evaluate_on_dataset,
    evaluate_ood_dataset,
    evaluate_saved_predictions,
    load_model,
)
from trainer.runs.train import RunCallbacks, RunRequest, run_seed
from trainer.samples import InputSpec

MakeRecipe = Callable[..., Recipe]

CLASSES = ("bird", "cat", "dog")
FEW = Resampling(num_resamples=20)
NUM_TEST_IMAGES = 24


def finish(recipe: Recipe, folder: Path, *, stop: bool = False) -> Path:
    """Runs seed 0 of a recipe; returns the folder of its files."""
    callbacks = RunCallbacks(lambda *_: None, lambda _: None, lambda _: None, lambda: stop)
    finished = run_seed(RunRequest(recipe, 0, folder, "cpu"), callbacks)
    assert finished is not stop
    return folder / "seed-0"


def picture(label: int, generator: np.random.Generator) -> Image.Image:
    pixels = generator.integers(0, 90, (32, 32, 3)) + 60 * label
    return Image.fromarray(pixels.astype(np.uint8))


def write_images(folder: Path, labels: Sequence[int], seed: int) -> str:
    """Images of classes that differ in brightness, half of whose range neighbours share."""
    generator = np.random.default_rng(seed)
    for number, label in enumerate(labels):
        path = folder / CLASSES[label] / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(label, generator).save(path)
    return str(folder)


def write_store(folder: Path, features: Tensor, labels: Tensor, names: Sequence[str]) -> str:
    """A folder of features of these classes."""
    ids = [f"{number:03d}.png" for number in range(len(labels))]
    store = create_store(folder, {"class_names": names, "num_shards": 1, "augment_runs": 0})
    store.write_part(0, Part(ids, labels, torch.zeros(len(labels)), features), [])
    return str(folder)


def noise(num_samples: int) -> Tensor:
    return torch.randn(num_samples, 6, generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="module")
def probe(
    probe_recipe: MakeRecipe,
    test_features: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The folder of a seed of a probe with thirty-one test samples."""
    return finish(probe_recipe(data={"test": test_features}), tmp_path_factory.mktemp("probe"))


@pytest.fixture(scope="module")
def test_images(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Eight images of each class."""
    folder = tmp_path_factory.mktemp("data") / "test"
    return write_images(folder, [number % 3 for number in range(NUM_TEST_IMAGES)], seed=1)


@pytest.fixture(scope="module")
def image_tables(
    image_recipe: MakeRecipe, test_images: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Recipe]:
    """Makes the recipe of a tiny residual network on larger images."""
    train = write_images(
        tmp_path_factory.mktemp("data") / "train", [number % 3 for number in range(48)], seed=0
    )

    def make(**data: str) -> Recipe:
        return image_recipe(
            data={"train": train, "test": test_images} | data,
            model={"widths": [4], "blocks": [1]},
            optimiser={"learning_rate": 0.1},
            training={"epochs": 8, "batch_size": 8, "evaluation_batch_size": 10},
        )

    return make


@pytest.fixture(scope="module")
def residual(image_tables: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a seed of a tiny residual network with twenty-four test images."""
    return finish(image_tables(), tmp_path_factory.mktemp("residual"))


def metrics_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "metrics.json").read_text())


def test_saved_predictions_give_the_metrics_of_the_run_with_intervals(probe: Path) -> None:
    record = evaluate_saved_predictions(probe, FEW)

    expected = metrics_of(probe)
    assert record.keys() == expected.keys() == {"raw", "temperature_nll", "temperature_ece"}
    for stage, metrics in record.items():
        added = metrics.keys() - expected[stage].keys()
        assert added == {
            f"{name}_{end}"
            for name in ("accuracy", "nll", "brier_score", "ece")
            for end in ("low", "high")
        }
        assert {name: metrics[name] for name in expected[stage]} == expected[stage]
    raw = record["raw"]
    assert raw["accuracy_low"] <= raw["accuracy"] <= raw["accuracy_high"]


@pytest.mark.parametrize("run", ["probe", "residual"])
def test_the_test_data_as_another_dataset_give_the_same_predictions_and_metrics(
    request: pytest.FixtureRequest, test_features: str, test_images: str, run: str
) -> None:
    folder = request.getfixturevalue(run)
    location = test_features if run == "probe" else test_images

    record, predictions = evaluate_on_dataset(
        load_model(folder, "cpu"), DatasetChoice(location), FEW
    )

    saved = read_predictions(folder / "test.npz")
    assert list(predictions.sample_ids) == list(saved.sample_ids)
    assert torch.equal(predictions.targets, saved.targets)
    torch.testing.assert_close(predictions.logits, saved.logits, rtol=0, atol=1e-6)
    expected = metrics_of(folder)
    assert record["raw"]["accuracy"] == expected["raw"]["accuracy"]
    temperature = record["temperature_nll"]["temperature"]
    assert temperature == expected["temperature_nll"]["temperature"]


def test_classes_in_another_order_are_matched_by_name(probe: Path, tmp_path: Path) -> None:
    trained = load_model(probe, "cpu")
    labels = torch.arange(30) % 3
    features = noise(30) + F.one_hot(labels, 6)
    usual = write_store(tmp_path / "usual", features, labels, CLASSES)
    reversed_store = write_store(tmp_path / "reversed", features, 2 - labels, CLASSES[::-1])

    record, predictions = evaluate_on_dataset(trained, DatasetChoice(usual), FEW)
    reversed_record, reversed_predictions = evaluate_on_dataset(
        trained, DatasetChoice(reversed_store), FEW
    )

    assert torch.equal(reversed_predictions.targets, labels)
    assert torch.equal(reversed_predictions.logits, predictions.logits)
    assert reversed_record == record


def test_images_of_some_of_the_classes_can_be_evaluated(residual: Path, tmp_path: Path) -> None:
    location = write_images(tmp_path / "some", [1, 2, 2], seed=3)

    record, predictions = evaluate_on_dataset(
        load_model(residual, "cpu"), DatasetChoice(location), FEW
    )

    assert predictions.targets.tolist() == [1, 2, 2]
    correct = (predictions.logits.argmax(1) == predictions.targets).double().mean().item()
    assert record["raw"]["accuracy"] == pytest.approx(correct)


def test_images_of_a_split_and_of_another_size_can_be_evaluated(
    residual: Path, tmp_path: Path
) -> None:
    path = tmp_path / "data" / "holdout" / "dog" / "1.png"
    path.parent.mkdir(parents=True)
    picture(2, np.random.default_rng(0)).resize((48, 40)).save(path)
    choice = DatasetChoice(str(tmp_path / "data"), split="holdout")

    _, predictions = evaluate_on_dataset(load_model(residual, "cpu"), choice, FEW)

    assert predictions.targets.tolist() == [2]
    assert predictions.logits.shape == (1, 3)


def test_a_class_that_the_model_does_not_know_is_refused_by_name(
    probe: Path, tmp_path: Path
) -> None:
    location = write_store(tmp_path / "other", noise(6), torch.arange(6) % 2, ("cat", "newt"))

    with pytest.raises(DatasetError, match=r"1 classes that the training dataset lacks.*newt"):
        evaluate_on_dataset(load_model(probe, "cpu"), DatasetChoice(location), FEW)


def test_features_of_another_length_are_refused(probe: Path, tmp_path: Path) -> None:
    location = write_store(
        tmp_path / "short", torch.randn(6, 5), torch.arange(6) % 2, ("cat", "dog")
    )

    with pytest.raises(DatasetError, match="5 dimensions, and the model takes 6"):
        evaluate_on_dataset(load_model(probe, "cpu"), DatasetChoice(location), FEW)


@pytest.mark.parametrize("choice", [{"split": "test"}, {"label_column": "fine"}])
def test_a_feature_store_takes_no_split_and_no_label_column(
    probe: Path, tmp_path: Path, choice: dict[str, str]
) -> None:
    location = write_store(tmp_path / "other", noise(6), torch.arange(6) % 2, ("cat", "dog"))

    with pytest.raises(ConfigError, match="leave out split and label_column"):
        evaluate_on_dataset(load_model(probe, "cpu"), DatasetChoice(location, **choice), FEW)


def test_ood_detection_matches_scikit_learn_and_needs_no_common_classes(
    probe: Path, tmp_path: Path
) -> None:
    trained = load_model(probe, "cpu")
    shifted = noise(40) - 3
    location = write_store(tmp_path / "odd", shifted, torch.arange(40) % 2, ("newt", "toad"))

    record = evaluate_ood_dataset(trained, location)

    own = read_predictions(probe / "test.npz").logits
    with torch.no_grad():
        logits = torch.cat([own, trained.model(shifted)])
    is_ood = np.arange(len(logits)) >= len(own)
    confidence = logits.double().softmax(1).amax(1)
    assert record["positive"] == "ood"
    assert record["msp"]["auroc"] == pytest.approx(roc_auc_score(is_ood, -confidence))
    assert record["max_logit"]["auroc"] == pytest.approx(roc_auc_score(is_ood, -logits.amax(1)))


def test_test_samples_as_ood_samples_have_an_auroc_of_one_half(
    residual: Path, test_images: str
) -> None:
    record = evaluate_ood_dataset(load_model(residual, "cpu"), test_images)

    assert record["entropy"]["auroc"] == pytest.approx(0.5, abs=0.01)


@pytest.fixture(scope="module")
def corrupted(residual: Path) -> tuple[dict[str, Any], int]:
    """Records of the residual network on corrupted images, and the number of reported passes."""
    passes: list[None] = []
    records = evaluate_corruptions(load_model(residual, "cpu"), lambda: passes.append(None))
    return records, len(passes)


def test_test_images_are_evaluated_with_ten_corruptions_at_five_severities(
    corrupted: tuple[dict[str, Any], int],
) -> None:
    records, num_passes = corrupted

    assert list(records) == list(CORRUPTIONS)
    assert len(records) == 10
    assert all(list(by) == [str(severity) for severity in SEVERITIES] for by in records.values())
    assert num_passes == 50
    stages = {"raw", "temperature_nll", "temperature_ece"}
    assert all(record.keys() == stages for by in records.values() for record in by.values())


def test_corruption_makes_predictions_worse(
    corrupted: tuple[dict[str, Any], int], residual: Path
) -> None:
    records, _ = corrupted

    clean = metrics_of(residual)["raw"]
    strong = records["brightness"]["5"]["raw"]
    noisy = records["gaussian_noise"]["5"]["raw"]

    assert strong["accuracy"] < clean["accuracy"]
    assert noisy["nll"] != pytest.approx(clean["nll"])


def test_corruption_is_deterministic(
    corrupted: tuple[dict[str, Any], int],
    residual: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records, _ = corrupted
    trained = load_model(residual, "cpu")
    training = replace(trained.recipe.training, evaluation_batch_size=7)
    monkeypatch.setattr("trainer.runs.evaluate.CORRUPTIONS", ("gaussian_noise",))

    again = evaluate_corruptions(
        replace(trained, recipe=replace(trained.recipe, training=training)), lambda: None
    )

    for severity, record in again["gaussian_noise"].items():
        expected = records["gaussian_noise"][severity]
        assert record["raw"]["nll"] == pytest.approx(expected["raw"]["nll"], abs=1e-5)


def test_the_label_column_of_a_training_table_does_not_apply_to_a_folder_of_test_images(
    image_tables: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    labels = [number % 3 for number in range(30)]
    paths = [f"{number}.png" for number in range(30)]
    for path, label in zip(paths, labels, strict=True):
        picture(label, generator).save(tmp_path / path)
    names = [CLASSES[label] for label in labels]
    pq.write_table(pa.table({"path": paths, "species": names}), tmp_path / "train.parquet")
    table = {"train": str(tmp_path / "train.parquet"), "label_column": "species"}
    folder = finish(image_tables(**table), tmp_path / "run")
    monkeypatch.setattr("trainer.runs.evaluate.CORRUPTIONS", ("contrast",))

    records = evaluate_corruptions(load_model(folder, "cpu"), lambda: None)

    assert list(records) == ["contrast"]


def test_features_cannot_be_corrupted(probe: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"corruptions need a recipe of images.*'features'.*; leave out corruptions=True",
    ):
        evaluate_corruptions(load_model(probe, "cpu"), lambda: None)


def test_the_model_of_an_unfinished_run_is_refused_with_the_remedy(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    folder = finish(probe_recipe(), tmp_path, stop=True)

    with pytest.raises(TrainingError, match=r"model\.safetensors is missing; .*resume=True"):
        load_model(folder, "cpu")


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"recipe\.json is missing"):
        load_model(tmp_path, "cpu")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b""),
        ("model.safetensors", None),
        ("recipe.json", b"{}"),
        ("recipe.json", b'{"recipe": 1, "seed": 0}'),
        ("recipe.json", b'{"recipe"'),
        ("inputs.json", b'{"shape": [6]}'),
        ("inputs.json", b"{"),
    ],
)
def test_a_damaged_file_of_a_run_is_named(
    probe_recipe: MakeRecipe, tmp_path: Path, name: str, content: bytes | None
) -> None:
    folder = finish(probe_recipe(training={"epochs": 1}), tmp_path)
    path = folder / name
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)

    with pytest.raises(TrainingError, match=rf"seed-0/{name} is damaged .*; train again"):
        load_model(folder, "cpu")


def test_parameters_of_another_network_are_refused(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    one = finish(probe_recipe(training={"epochs": 1}), tmp_path / "one")
    deep = probe_recipe(training={"epochs": 1}, model={"hidden": [4]})
    other = finish(deep, tmp_path / "other")
    (one / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes())

    with pytest.raises(TrainingError, match=r"model\.safetensors is damaged"):
        load_model(one, "cpu")


def test_a_run_without_test_data_is_evaluated_on_its_validation_samples(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    folder = finish(probe_recipe(), tmp_path)

    record = evaluate_saved_predictions(folder, FEW)

    # A temperature fitted on the evaluated samples would look too good.
    assert record.keys() == {"raw"}
    assert record["raw"]["nll"] == metrics_of(folder)["raw"]["nll"]


def test_a_run_without_any_predictions_asks_for_data(
    probe_recipe: MakeRecipe, test_features: str, tmp_path: Path
) -> None:
    folder = finish(probe_recipe(data={"validation": 0.0}), tmp_path)

    with pytest.raises(TrainingError, match="has no test data; name a dataset with data"):
        evaluate_saved_predictions(folder, FEW)
    record, _ = evaluate_on_dataset(load_model(folder, "cpu"), DatasetChoice(test_features), FEW)

    assert record.keys() == {"raw"}


def test_ood_detection_needs_test_data(
    probe_recipe: MakeRecipe, test_features: str, tmp_path: Path
) -> None:
    folder = finish(probe_recipe(), tmp_path)

    with pytest.raises(
        TrainingError, match=r"no test data to compare .* with; train with data\.test"
    ):
        evaluate_ood_dataset(load_model(folder, "cpu"), test_features)


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

    record = evaluate_ood_dataset(load_model(text_run, "cpu"), str(tmp_path / "odd.csv"))

    assert 0 <= record["msp"]["auroc"] <= 1


@pytest.mark.parametrize(
    "spec",
    [
        InputSpec((3, 32, 48), torch.tensor([0.1, 1 / 3, 255.0]), torch.tensor([1e-7, 2.0, 3.0])),
        InputSpec((2,), torch.tensor([-1e-30, 1e30]), torch.tensor([0.0, 1.0])),
        InputSpec((7,), vocabulary=("", "<unknown>", "naïve", '"quoted"', "日本")),
    ],
    ids=["images", "features", "texts"],
)
def test_the_inputs_of_a_model_are_read_as_they_were_written(
    spec: InputSpec, tmp_path: Path
) -> None:
    path = tmp_path / "inputs.json"

    write_inputs(path, spec, ["größer", "other"])
    read, class_names = read_inputs(path)

    assert class_names == ("größer", "other")
    assert (read.shape, read.vocabulary) == (spec.shape, spec.vocabulary)
    for one, other in ((read.mean, spec.mean), (read.std, spec.std)):
        assert (one is None) == (other is None)
        assert one is None or other is None or torch.equal(one, other)


@pytest.mark.parametrize(
    "change", [{"mean": "x"}, {"std": {}}, {"shape": None}, {"class_names": 3}, {"vocabulary": 1}]
)
def test_an_invalid_file_of_inputs_is_named(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "inputs.json"
    write_inputs(path, InputSpec((2,), torch.zeros(2), torch.ones(2)), CLASSES)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(TrainingError, match=r"inputs\.json is damaged .*; train again"):
        read_inputs(path)


def test_missing_inputs_are_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"inputs\.json is missing; .*resume=True"):
        read_inputs(tmp_path / "inputs.json")
