"""Every key outside [data] changes something: two values of it, and what they make of a run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor

from difficulty_service.base.checked_safetensors import read_tensors
from difficulty_service.base.errors import DifficultyError
from difficulty_service.cli import create_app
from trainer.config import Recipe
from trainer.data import open_splits
from trainer.evaluation.prediction_file import read_predictions
from trainer.recipes.file import recipe_from_dict
from trainer.recipes.tables import TABLES, keys_of_table
from trainer.run_folder import read_json
from trainer.runs.outcome import predictions_of
from trainer.runs.train import RunRequest, run_seed
from trainer.samples import Inputs
from trainer.training.accelerator import make_accelerator
from trainer.training.loop import TrainingCallbacks, train
from trainer.training.state import make_train_state
from trainer.training.step import TrainingData

CPU = torch.device("cpu")

KINDS: dict[str, dict[str, dict[str, Any]]] = {
    "probe": {"data": {"train": "FEATURES", "kind": "features"}, "model": {"name": "probe"}},
    "images": {
        "data": {"train": "IMAGES"},
        "model": {"name": "small_resnet", "widths": [4, 8], "blocks": [1, 1]},
    },
}
"""Recipes that the changes apply to, with names in capitals for locations."""


@dataclass(frozen=True)
class Change:
    """Two values of a key, and where the difference shows.

    Attributes:
        values: The two values; None leaves the key out.
        kind: A key of KINDS.
        observe: A key of OBSERVERS.
        beside: Other keys that the key needs.
    """

    values: tuple[Any, Any]
    kind: str = "probe"
    observe: str = "run"
    beside: Mapping[str, Any] = field(default_factory=dict)


def by_scores(first: object, second: object, **beside: object) -> Change:
    needs = {"alpha": 0.5, "weights": "scores", "scores": "SCORES"} | beside
    return Change((first, second), beside={f"regulariser.{key}": needs[key] for key in needs})


def by_order(first: object, second: object, **beside: object) -> Change:
    needs = {"order": "easy_first", "scores": "SCORES"} | beside
    return Change((first, second), beside={f"sampling.{key}": needs[key] for key in needs})


DOUBTED = {"loss.weights": "label_probability", "loss.scores": "SCORES"}

FAILS_FIRST = {"loss.missing", "regulariser.missing", "regulariser.unreliable"}
"""Keys whose first value refuses these scores."""

FAILS_SECOND = {
    *("loss.targets", "loss.weights", "regulariser.weights", "sampling.order"),
    *("training.fsdp", "training.sync_batchnorm"),
}
"""Keys whose second value needs a score file, several processes or batch normalisation."""

HEAD = {"uncertainty.epochs": 2}

CHANGES = {
    "model.name": Change(("small_resnet", "resnet18"), "images"),
    "loss.name": Change(("cross_entropy", "brier")),
    "loss.weights": Change(("constant", "label_probability")),
    "loss.targets": Change(("labels", "posterior")),
    "loss.scores": Change(("SCORES", "OTHER_LABEL_SCORES"), beside=DOUBTED),
    "loss.missing": Change(("error", "keep"), beside=DOUBTED | {"loss.scores": "FEWER_SCORES"}),
    "regulariser.alpha": Change((0.0, 0.5)),
    "regulariser.weights": Change(("constant", "scores"), beside={"regulariser.alpha": 0.5}),
    "regulariser.scores": by_scores("SCORES", "OTHER_SCORES"),
    "regulariser.column": by_scores("rmd", "knn"),
    "regulariser.normalise": by_scores("minmax", "none"),
    "regulariser.winsorise": by_scores(0.0, 0.3),
    "regulariser.score_temperature": by_scores(0.7, 0.1),
    "regulariser.c": by_scores(0.001, 5.0),
    "regulariser.missing": by_scores("error", "mean", scores="FEWER_SCORES"),
    "regulariser.unreliable": by_scores("error", "allow", scores="UNRELIABLE_SCORES"),
    "sampling.order": Change(("random", "easy_first")),
    "sampling.scores": by_order("SCORES", "OTHER_SCORES"),
    "sampling.column": by_order("rmd", "knn"),
    "sampling.start": by_order(0.2, 0.6),
    "sampling.until": by_order(0.5, 1.0),
    "optimiser.name": Change(("sgd", "adamw")),
    "optimiser.learning_rate": Change((0.1, 0.2)),
    "optimiser.momentum": Change((0.9, 0.5)),
    "optimiser.nesterov": Change((False, True)),
    "optimiser.weight_decay": Change((0.0, 0.1)),
    "optimiser.gradient_clip": Change((None, 0.01)),
    "schedule.name": Change(("cosine", "constant")),
    "schedule.milestones": Change(([0.5], [0.2]), beside={"schedule.name": "steps"}),
    "schedule.factor": Change(
        (0.1, 0.5), beside={"schedule.name": "steps", "schedule.milestones": [0.5]}
    ),
    "schedule.warmup": Change((0.0, 0.5)),
    "training.epochs": Change((2, 3)),
    "training.batch_size": Change((16, 32)),
    "training.seeds": Change(([0], [0, 1]), observe="command"),
    "training.reduction": Change(("mean", "sum")),
    "training.precision": Change(("fp32", "bf16")),
    "training.mixing": Change(("none", "mixup"), "images"),
    "training.mixing_alpha": Change((1.0, 0.1), "images", beside={"training.mixing": "cutmix"}),
    "training.gradient_accumulation": Change((1, 2), "images"),
    "training.channels_last": Change((True, False), "images", "layout"),
    "training.compile": Change((False, True), observe="compiled"),
    "training.dynamics": Change((None, True), observe="files"),
    "training.ema_decay": Change((None, 0.5)),
    "training.sync_batchnorm": Change((False, True)),
    "training.fsdp": Change((False, True)),
    "training.trackers": Change((["tensorboard"], []), observe="folders"),
    "training.checkpoint_every": Change((1, 2), observe="saves"),
    "training.evaluation_batch_size": Change((512, 2), observe="batches"),
    "training.final": Change(
        ("last", "best"), beside={"training.epochs": 6, "optimiser.learning_rate": 3.0}
    ),
    "training.best_by": Change(
        ("accuracy", "nll"),
        beside={"training.final": "best", "training.epochs": 6, "optimiser.learning_rate": 3.0},
    ),
}

CHANGES |= {
    "uncertainty.epochs": Change((0, 2), observe="head"),
    "uncertainty.objective": Change(("ranking", "squared"), observe="head", beside=HEAD),
    "uncertainty.margin": Change((0.1, 1.0), observe="head", beside=HEAD),
    "uncertainty.leeway": Change((0.0, 0.5), observe="head", beside=HEAD),
    "uncertainty.hidden": Change(([8], []), observe="head", beside=HEAD),
    "uncertainty.batch_size": Change((16, 32), observe="head", beside=HEAD),
    "uncertainty.learning_rate": Change((0.001, 0.01), observe="head", beside=HEAD),
    "uncertainty.weight_decay": Change((0.0, 0.1), observe="head", beside=HEAD),
    "uncertainty.warmup": Change((0.0, 0.5), observe="head", beside=HEAD),
}


@dataclass(frozen=True)
class CountedInputs:
    """Inputs that record the number of batches."""

    inputs: Inputs
    counts: list[int]

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:
        self.counts.append(len(plan))
        return self.inputs.batches(plan, draws)


def run_of(recipe: Recipe, folder: Path) -> object:
    """The model, the predictions and which files there are; or the message of the error."""
    run_seed(RunRequest(recipe, 0, folder, "cpu"))
    seed = folder / "seed-0"
    predictions = read_predictions(seed / "validation.npz").logits.tolist()
    epoch = read_json(seed / "final.json")["epoch"]
    return (seed / "model.safetensors").read_bytes(), predictions, epoch


def head_of(recipe: Recipe, folder: Path) -> object:
    """The parameters of the uncertainty head, without what its file says about the recipe."""
    run_of(recipe, folder)
    file = folder / "seed-0" / "head.safetensors"
    if not file.exists():
        return None
    return {name: values.tolist() for name, values in read_tensors(file)[0].items()}


def folders_of(recipe: Recipe, folder: Path) -> object:
    run_of(recipe, folder)
    return [entry.name for entry in (folder / "seed-0").iterdir() if entry.is_dir()]


def files_of(recipe: Recipe, folder: Path) -> object:
    run_of(recipe, folder)
    return sorted(entry.name for entry in (folder / "seed-0").iterdir())


def layout_of(recipe: Recipe, _folder: Path) -> object:
    state = make_train_state(recipe, 0, open_splits(recipe.data, 0, CPU), _accelerator(recipe))
    return [
        parameter.is_contiguous(memory_format=torch.channels_last)
        for parameter in state.model.parameters()
        if parameter.ndim == 4
    ]


def compiled_of(recipe: Recipe, _folder: Path) -> object:
    state = make_train_state(recipe, 0, open_splits(recipe.data, 0, CPU), _accelerator(recipe))
    return getattr(state.model, "_compiled_call_impl", None) is not None


def saves_of(recipe: Recipe, _folder: Path) -> object:
    accelerator, splits = _accelerator(recipe), open_splits(recipe.data, 0, CPU)
    state = make_train_state(recipe, 0, splits, accelerator)
    saved: list[int] = []
    callbacks = TrainingCallbacks(
        lambda _: None, lambda _: None, lambda: saved.append(state.progress.epoch), lambda: False
    )
    data = TrainingData(splits.train, None, splits.validation)
    train(state, data, recipe, 0, accelerator, callbacks)
    return saved


def batches_of(recipe: Recipe, _folder: Path) -> object:
    accelerator, splits = _accelerator(recipe), open_splits(recipe.data, 0, CPU)
    model = make_train_state(recipe, 0, splits, accelerator).model
    counted = CountedInputs(splits.train.inputs, [])
    predictions_of(model, replace(splits.train, inputs=counted), recipe, accelerator)
    return counted.counts


def _accelerator(recipe: Recipe) -> Accelerator:
    return make_accelerator("cpu", recipe.training.precision)


OBSERVERS: dict[str, Callable[[Recipe, Path], object]] = {
    "run": run_of,
    "head": head_of,
    "folders": folders_of,
    "files": files_of,
    "layout": layout_of,
    "compiled": compiled_of,
    "saves": saves_of,
    "batches": batches_of,
}


def recipe_with(
    key: str, change: Change, value: object, locations: Mapping[str, str]
) -> dict[str, Any]:
    values: dict[str, Any] = {
        "name": "one-key",
        "training": {"epochs": 2, "batch_size": 16, "precision": "fp32"},
        "data": {"validation": 0.2},
        "optimiser": {"learning_rate": 0.05},
    }
    for table, part in KINDS[change.kind].items():
        values[table] = values.get(table, {}) | part
    if key == "model.name":
        values["model"] = {}
    for each, setting in [*change.beside.items(), (key, value)]:
        table, name = each.split(".")
        if setting is not None:
            values.setdefault(table, {})[name] = setting
    for part in values.values():
        if isinstance(part, dict):
            part |= {
                name: locations.get(entry, entry)
                for name, entry in part.items()
                if isinstance(entry, str)
            }
    return values


def test_every_key_is_changed() -> None:
    keys = {
        f"{table}.{name}" for table in TABLES if table != "data" for name in keys_of_table(table)
    }

    assert set(CHANGES) == keys


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key in CHANGES if CHANGES[key].observe != "command"])
def test_a_key_changes_the_run(key: str, locations: Mapping[str, str], tmp_path: Path) -> None:
    change = CHANGES[key]

    def outcome(value: object, folder: Path) -> object:
        values = recipe_with(key, change, value, locations)
        try:
            return OBSERVERS[change.observe](recipe_from_dict(values, key), folder)
        except DifficultyError as error:
            return str(error).replace(str(folder), "")

    first, again, second = (
        outcome(value, tmp_path / name)
        for name, value in zip(
            ("first", "again", "second"),
            (change.values[0], change.values[0], change.values[1]),
            strict=True,
        )
    )

    assert isinstance(first, str) is (key in FAILS_FIRST)
    assert isinstance(second, str) is (key in FAILS_SECOND)
    assert first == again, "without a change nothing differs"
    assert first != second


@pytest.mark.slow
def test_the_seeds_decide_which_runs_there_are(features: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'[data]\ntrain = "{features}"\nkind = "features"\n[model]\nname = "probe"\n'
        "[training]\nepochs = 1\n"
    )

    for seeds in CHANGES["training.seeds"].values:
        words = ["train", str(recipe), "--set", f"training.seeds={seeds}", "--device", "cpu"]
        create_app()([*words, "--out", str(tmp_path / str(len(seeds)))])

    folders = [sorted(file.name for file in (tmp_path / name).iterdir()) for name in ("1", "2")]
    assert folders == [["seed-0"], ["seed-0", "seed-1"]]
