"""Evaluation of a network of images: other images, OOD images and corrupted ones."""

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

from difficulty_service.base.checksums import load_checked
from difficulty_service.base.errors import ConfigError, DatasetError
from difficulty_service.images.corruptions import CORRUPTIONS, SEVERITIES
from tests.small_runs import finish
from trainer.config import Recipe
from trainer.evaluation.prediction_file import read_predictions
from trainer.evaluation.record import STAGES
from trainer.metrics.bootstrap import Resampling
from trainer.runs.corruptions import CorruptionChoice, evaluate_corruptions
from trainer.runs.evaluate import (
    DatasetChoice,
    OodChoice,
    evaluate_on_dataset,
    evaluate_ood_dataset,
    load_model,
)

MakeRecipe = Callable[..., Recipe]

CLASSES = ("bird", "cat", "dog")
FEW = Resampling(num_resamples=20)
NUM_TEST_IMAGES = 24


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
    return load_checked((folder / "metrics.json").read_text())


@pytest.mark.slow
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


def test_test_samples_as_ood_samples_have_an_auroc_of_one_half(
    residual: Path, test_images: str
) -> None:
    record, _ = evaluate_ood_dataset(load_model(residual, "cpu"), OodChoice(test_images))

    assert record["entropy"]["auroc"] == pytest.approx(0.5, abs=0.01)


def write_ood(folder: Path) -> list[OodChoice]:
    """The same six images without labels in every form that OOD data may have."""
    generator = np.random.default_rng(4)
    pixels = generator.integers(0, 255, (30, 32, 32, 3)).astype(np.uint8)
    names = [f"{number}.png" for number in range(6)]
    for place in ("flat", "years/2019", "split/holdout", "split/other"):
        (folder / place).mkdir(parents=True)
    for name, image in zip(names, pixels[24:], strict=True):
        for place in ("flat", "years", "years/2019", "split/holdout"):
            if place != "years" or name < "3":
                Image.fromarray(image).save(folder / place / name)
    for name in names:
        (folder / ("years/2019" if name < "3" else "years") / name).unlink(missing_ok=True)
    Image.fromarray(pixels[0]).save(folder / "split" / "other" / "x.png")
    files = [(folder / "flat" / name).read_bytes() for name in names]
    table = pa.table({"scan": files, "other": names})
    pq.write_table(table, folder / "table.parquet")
    published = folder / "CIFAR-10-C"
    published.mkdir()
    np.save(published / "gaussian_noise.npy", pixels)
    np.save(published / "fog.npy", pixels[::-1])
    np.save(published / "labels.npy", np.tile(np.arange(6), 5))
    return [
        OodChoice(str(folder / "flat")),
        OodChoice(str(folder / "years")),
        OodChoice(str(folder / "split"), split="holdout"),
        OodChoice(str(folder / "table.parquet"), column="scan"),
        OodChoice(str(published), split="gaussian_noise/5"),
    ]


def test_ood_images_need_no_labels_in_whatever_form_they_are(
    residual: Path, tmp_path: Path
) -> None:
    trained = load_model(residual, "cpu")

    choices = write_ood(tmp_path)
    records = [evaluate_ood_dataset(trained, choice)[0] for choice in choices]

    assert all(record == records[0] for record in records)
    assert choices[-1].name == f"{tmp_path / 'CIFAR-10-C'} gaussian_noise/5"
    assert choices[3].name == f"{tmp_path / 'table.parquet'} scan"


def test_ood_images_need_no_ids_where_the_recipe_names_a_column_of_them(
    residual: Path, tmp_path: Path
) -> None:
    trained = load_model(residual, "cpu")
    (choice,) = (each for each in write_ood(tmp_path) if each.column is not None)
    data = trained.recipe.data.model_copy(update={"id_column": "index"})
    recipe = trained.recipe.model_copy(update={"data": data})

    record, _ = evaluate_ood_dataset(replace(trained, recipe=recipe), choice)

    assert record == evaluate_ood_dataset(trained, choice)[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"split": "nowhere"}, "has no sub-folder 'nowhere'"), ({"column": "x"}, "leave out ood_c")],
)
def test_an_error_about_ood_data_names_their_options(
    residual: Path, test_images: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        evaluate_ood_dataset(load_model(residual, "cpu"), OodChoice(test_images, **options))

    assert caught.value.parameter in {"ood_split", "ood_column"}


@pytest.fixture(scope="module")
def corrupted(residual: Path) -> tuple[dict[str, Any], int]:
    """Records of the residual network on corrupted images, and the number of reported passes."""
    passes: list[None] = []
    records = evaluate_corruptions(load_model(residual, "cpu"), lambda: passes.append(None))
    return records, len(passes)


@pytest.mark.long
def test_test_images_are_evaluated_with_nineteen_corruptions_at_five_severities(
    corrupted: tuple[dict[str, Any], int],
) -> None:
    records, num_passes = corrupted

    assert list(records) == list(CORRUPTIONS)
    assert len(records) == 19
    assert all(list(by) == [str(severity) for severity in SEVERITIES] for by in records.values())
    assert num_passes == 95
    assert all(record.keys() == set(STAGES) for by in records.values() for record in by.values())


@pytest.mark.long
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
) -> None:
    records, _ = corrupted
    trained = load_model(residual, "cpu")
    training = trained.recipe.training.model_copy(update={"evaluation_batch_size": 7})

    again = evaluate_corruptions(
        replace(trained, recipe=trained.recipe.model_copy(update={"training": training})),
        lambda: None,
        CorruptionChoice(("gaussian_noise",)),
    )

    for severity, record in again["gaussian_noise"].items():
        expected = records["gaussian_noise"][severity]
        assert record["raw"]["nll"] == pytest.approx(expected["raw"]["nll"], abs=1e-5)


@pytest.mark.slow
def test_the_label_column_of_a_training_table_does_not_apply_to_a_folder_of_test_images(
    image_tables: Callable[..., Recipe], tmp_path: Path
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
    choice = CorruptionChoice(("contrast",))

    records = evaluate_corruptions(load_model(folder, "cpu"), lambda: None, choice)

    assert list(records) == ["contrast"]


@pytest.mark.slow
def test_corruption_in_several_processes_is_that_of_one(
    corrupted: tuple[dict[str, Any], int], residual: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, _ = corrupted
    monkeypatch.setattr("trainer.runs.corruptions.FEW_IMAGES", 1)
    monkeypatch.setattr("trainer.runs.corruptions.num_workers", lambda: 2)
    choice = CorruptionChoice(("fog", "contrast"))

    again = evaluate_corruptions(load_model(residual, "cpu"), lambda: None, choice)

    assert again == {name: records[name] for name in ("fog", "contrast")}


@pytest.mark.parametrize("below", ["", "weather"])
def test_published_images_are_evaluated_as_they_are(
    residual: Path, test_images: str, tmp_path: Path, below: str
) -> None:
    for severity in SEVERITIES:
        place = tmp_path / below / "fog" / str(severity)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(test_images)

    records = evaluate_corruptions(
        load_model(residual, "cpu"), lambda: None, CorruptionChoice(folder=tmp_path)
    )

    clean = metrics_of(residual)["raw"]
    assert list(records) == ["fog"]
    assert list(records["fog"]) == ["1", "2", "3", "4", "5"]
    for record in records["fog"].values():
        assert record["raw"]["nll"] == pytest.approx(clean["nll"], abs=1e-5)


def test_the_kinds_of_published_files_are_their_names(tmp_path: Path) -> None:
    for name in ("labels", "fog", "snow"):
        (tmp_path / f"{name}.npy").touch()

    places = CorruptionChoice(folder=tmp_path).places()

    assert places == {name: DatasetChoice(str(tmp_path), name) for name in ("fog", "snow")}
    with pytest.raises(ConfigError, match=r"no corruption 'fogg' in .*; did you mean 'fog'\?"):
        CorruptionChoice(("fogg",), tmp_path).places()
    with pytest.raises(DatasetError, match="holds no corrupted images"):
        CorruptionChoice(folder=tmp_path.parent / "nowhere").places()
