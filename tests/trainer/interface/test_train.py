"""`trainer.train`: a recipe whose model, loss and data are objects of the calling program."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

import difficulty_service as ds
import trainer
from difficulty_service.base.checksums import load_checked
from difficulty_service.base.errors import ConfigError, DatasetError, TrainingError
from trainer import run_folder
from trainer.metrics.bootstrap import Resampling
from trainer.runs.evaluate import DatasetChoice, evaluate_on_dataset, load_model

DIM, CLASSES = 6, 3

RECIPE = {"name": "mine", "training": {"epochs": 2, "batch_size": 16}, "model": {"name": "probe"}}

Arrays = tuple[NDArray[np.float32], NDArray[np.int64]]


class Net(nn.Module):
    """A network of the user, which this file defines and a recipe can name."""

    def __init__(self, num_classes: int, hidden: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(DIM, hidden), nn.ReLU(), nn.Linear(hidden, num_classes)
        )

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.layers(features)
        return logits


def squared_error(logits: Tensor, targets: Tensor, *, scale: float = 1.0) -> Tensor:
    """A loss of the user."""
    return scale * (logits - F.one_hot(targets, logits.shape[1])).square().sum(dim=1)


def make_arrays(seed: int, samples: int = 90) -> Arrays:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, samples)
    features = generator.standard_normal((samples, DIM)) + 3 * np.eye(CLASSES, DIM)[labels]
    return features.astype(np.float32), labels


def run(tmp_path: Path, **parts: Any) -> trainer.TrainedRun:  # noqa: ANN401
    parts = {"train": make_arrays(0), "test": make_arrays(1), "out": tmp_path / "run"} | parts
    return trainer.train(RECIPE, progress=False, **parts)


def test_arrays_train_and_judge_a_model(tmp_path: Path) -> None:
    trained = run(tmp_path, settings={"training.epochs": 20})

    assert trained.metrics["raw"]["accuracy"] > 0.9
    assert trained.class_names == ("0", "1", "2")
    assert len(trained.history) == 20
    assert (trained.folder / run_folder.METRICS).exists()


def test_the_model_of_a_run_takes_the_samples_as_they_are_in_the_data(tmp_path: Path) -> None:
    trained = run(tmp_path, model=Net)
    features, labels = make_arrays(1)

    with torch.no_grad():
        logits = trained.model(torch.from_numpy(features))

    accuracy = (logits.argmax(dim=1).numpy() == labels).mean()
    assert accuracy == pytest.approx(trained.metrics["raw"]["accuracy"])


def test_a_class_is_recorded_by_its_name_and_found_again(tmp_path: Path) -> None:
    trained = run(tmp_path, model=Net)

    assert trained.recipe.model.name == f"{__name__}:Net"
    again = load_model(trained.folder, "cpu").model.state_dict()
    assert all(
        torch.equal(again[name], value) for name, value in trained.model.state_dict().items()
    )


def test_a_network_is_copied_and_starts_from_its_own_parameters(tmp_path: Path) -> None:
    network = Net(CLASSES)
    before = {name: value.clone() for name, value in network.state_dict().items()}

    runs = [run(tmp_path, model=network, out=tmp_path / each, seed=3) for each in ("a", "b")]

    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    first, second = (load_file(each.folder / run_folder.MODEL) for each in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_network_trained_as_an_object_is_not_guessed_afterwards(tmp_path: Path) -> None:
    trained = run(tmp_path, model=Net(CLASSES))

    with pytest.raises(ConfigError, match="was an object of a Python program"):
        load_model(trained.folder, "cpu")


def test_a_loss_of_ones_own_is_minimised_with_its_constants(tmp_path: Path) -> None:
    plain = run(tmp_path, loss=squared_error, settings={"loss.scale": 1.0})
    scaled = run(tmp_path, loss=squared_error, settings={"loss.scale": 2.0}, out=tmp_path / "2")

    assert scaled.history[0]["train_loss"] > 1.5 * plain.history[0]["train_loss"]
    objective = load_checked((scaled.folder / "objective.json").read_text())
    assert objective["loss"] == {"name": f"{__name__}:squared_error", "constants": {"scale": 2.0}}


def test_a_loss_without_a_name_is_minimised_too(tmp_path: Path) -> None:
    own = run(tmp_path, loss=lambda logits, targets: squared_error(logits, targets))
    named = run(tmp_path, loss=squared_error, out=tmp_path / "named")

    assert own.history[1]["train_loss"] == named.history[1]["train_loss"]


def test_scores_in_memory_weigh_the_entropy_by_sample_id(tmp_path: Path) -> None:
    features, labels = make_arrays(0)
    scores = ds.score(features, labels)

    trained = run(
        tmp_path,
        scores=scores,
        settings={"regulariser.weights": "scores", "regulariser.alpha": 0.3},
    )

    objective = load_checked((trained.folder / "objective.json").read_text())
    assert objective["weights"] == "scores"
    assert 0 < objective["distribution"]["mean"] < 1


def test_scores_in_memory_weigh_the_loss_by_the_probability_of_labels(tmp_path: Path) -> None:
    scores = ds.score(*make_arrays(0), scorers=["suspicion"])

    trained = run(tmp_path, scores=scores, settings={"loss.weights": "label_probability"})

    objective = load_checked((trained.folder / "objective.json").read_text())
    assert objective["labels"]["weights"] == "label_probability"
    assert 0 < objective["labels"]["beliefs"]["mean_probability"] <= 1


def test_scores_without_weights_by_scores_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no effect with regulariser\.weights"):
        run(tmp_path, scores=ds.score(*make_arrays(0)))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["array", "pairs", "tensor"])
def test_images_in_memory_are_trained_on(tmp_path: Path, form: str) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(40) % 2
    images = generator.integers(0, 100, (40, 8, 8, 3), dtype=np.uint8)
    images[labels == 1] += 150
    data = {
        "array": (images, labels),
        "pairs": [(image, int(label)) for image, label in zip(images, labels, strict=True)],
        "tensor": (torch.from_numpy(images).permute(0, 3, 1, 2), labels),
    }[form]

    trained = run(
        tmp_path,
        train=data,
        test=data,
        model="small_resnet",
        settings={"training.epochs": 4, "optimiser.learning_rate": 0.02, "data.validation": 0.2},
    )

    assert trained.metrics["raw"]["accuracy"] == 1.0


def test_rows_without_a_label_or_with_nan_are_left_out_with_a_warning(tmp_path: Path) -> None:
    features, labels = make_arrays(0)
    features[3, 2] = np.nan

    with pytest.warns(UserWarning, match="1 of 90 rows are left out"):
        trained = run(tmp_path, train=(features, labels))

    assert all(np.isfinite(record["train_loss"]) for record in trained.history)


def test_an_interrupted_run_resumes_to_the_same_parameters(tmp_path: Path) -> None:
    def interrupt(record: dict[str, Any]) -> None:
        if record["epoch"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, model=Net, on_epoch=interrupt)
    resumed = run(tmp_path, model=Net, resume=True)
    whole = run(tmp_path, model=Net, out=tmp_path / "whole")

    first, second = (load_file(each.folder / run_folder.MODEL) for each in (resumed, whole))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    run(tmp_path)

    with pytest.raises(TrainingError, match="already holds a run"):
        run(tmp_path)


def test_a_trained_class_is_evaluated_on_features_in_a_file(tmp_path: Path) -> None:
    trained = run(tmp_path, model=Net)
    features, labels = make_arrays(2)
    np.savez(tmp_path / "more.npz", features=features, labels=labels)

    loaded = load_model(trained.folder, "cpu")
    choice = DatasetChoice(str(tmp_path / "more.npz"))
    record, predictions = evaluate_on_dataset(loaded, choice, Resampling(num_resamples=2))

    assert len(predictions.targets) == len(labels)
    assert 0 <= record["raw"]["accuracy"] <= 1


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"model": lambda classes: Net(classes)}, "does not take num_classes"),
        ({"model": lambda num_classes: num_classes}, "makes an object of type int"),
        ({"model": nn.Linear(DIM, CLASSES + 1)}, r"returns shape \(2, 4\) for 2 samples"),
        ({"model": nn.Linear(DIM + 1, CLASSES)}, "cannot take a batch"),
        ({"model": nn.Linear(DIM, CLASSES), "settings": {"model.width": 3}}, "width: no such key"),
        ({"loss": F.cross_entropy}, "not one loss each"),
        ({"loss": nn.PReLU()}, "parameters of its own|forward"),
        ({"settings": {"training.epochs": 0}}, "training.epochs = 0"),
        ({"settings": {"epochs.of.training": 1}}, "not a key of a recipe"),
        ({"settings": {"data.test": "x"}}, "data.test is changed more than once"),
        ({"test": [("a.png", 1)]}, "different kinds"),
        ({"scores": 3}, "scores are of type int"),
    ],
)
def test_what_cannot_work_is_an_error_that_says_why(
    tmp_path: Path, parts: dict[str, Any], message: str
) -> None:
    with pytest.raises((ConfigError, DatasetError), match=message):
        run(tmp_path, **parts)


@pytest.mark.slow
def test_the_package_loads_nothing_heavy_until_a_name_is_used() -> None:
    code = (
        "import sys, trainer; print('torch' in sys.modules, trainer.train.__name__); "
        "print('torch.distributed.tensor' in sys.modules)"
    )
    command = (sys.executable, "-c", code)
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603

    assert done.stdout.split() == ["False", "train", "False"]


@pytest.mark.parametrize(
    "used",
    [
        {"regulariser.weights": "scores", "regulariser.alpha": 0.3},
        {"sampling.order": "easy_first"},
    ],
    ids=["weights", "order"],
)
def test_scores_of_other_labels_are_warned_of(tmp_path: Path, used: dict[str, Any]) -> None:
    features, labels = make_arrays(0)
    other = labels.copy()
    other[:7] = (other[:7] + 1) % CLASSES

    with pytest.warns(UserWarning, match=r"7 of 90 training .* example '0': .*score the training"):
        run(
            tmp_path,
            settings={**used, "data.validation": 0},
            scores=ds.score(features, other),
        )


def test_scores_of_the_same_labels_and_of_labels_under_other_names_are_not_warned_of(
    tmp_path: Path,
) -> None:
    features, labels = make_arrays(0)
    named = [("cat", "dog", "eel")[label] for label in labels]
    settings = {"regulariser.weights": "scores", "regulariser.alpha": 0.3}

    for number, given in enumerate((labels, named)):
        scores = ds.score(features, given)
        run(tmp_path / str(number), settings=settings, scores=scores)
