"""The last stage of a run: an uncertainty head for its classifier, which stays as it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from difficulty_service.features.description import PrecisionPilot
from trainer import run_folder
from trainer.config import Recipe
from trainer.data import Splits
from trainer.models import build_model
from trainer.recipes.file import recipe_as_dict
from trainer.runs.model_file import load_parameters
from trainer.samples import Samples
from trainer.training.loop import TrainingCallbacks
from trainer.training.state import Checkpoint, load_checkpoint, require_same_run, save_checkpoint
from trainer.uncertainty.cached_features import open_source, read_cached_features
from trainer.uncertainty.head import TrainedHead, UncertaintyHead, write_head
from trainer.uncertainty.retrieval import CHEAP_SAMPLES, evaluate_retrieval
from trainer.uncertainty.training import (
    HeadSamples,
    HeadState,
    auroc_correct,
    classify,
    make_head_state,
    predict_uncertainties,
    train_head,
)


@dataclass(frozen=True)
class HeadRun:
    """The run of a classifier that gets a head."""

    folder: Path
    recipe: Recipe
    seed: int
    splits: Splits
    identity: Mapping[str, Any]
    device: torch.device


def train_uncertainty(
    run: HeadRun, on_epoch: Callable[[dict[str, Any]], None], should_stop: Callable[[], bool]
) -> bool:
    """Trains and evaluates a run's head unless it has one; False when a callback stopped it."""
    folder, config = run.folder, run.recipe.uncertainty
    source = open_source(run.recipe.data.train)
    identity = {
        "classifier": dict(run.identity),
        "uncertainty": recipe_as_dict(run.recipe)["uncertainty"],
        "features": source.description.kind(),
        "runs": source.runs,
    }
    metrics = folder / run_folder.HEAD_METRICS
    if metrics.exists():
        require_same_run(metrics, run_folder.read_json(metrics)["identity"], identity)
        return True
    num_classes = len(run.splits.train.class_names)
    classifier = build_model(run.recipe.model, run.splits.spec, num_classes)
    load_parameters(classifier, folder)
    classifier = classifier.to(run.device).eval()
    cached, _ = read_cached_features(run.recipe.data.train)
    features = cached.select(run.splits.train.sample_ids).to(run.device)
    samples = classify(classifier, features, run.splits.train.labels)
    validation, test = (
        None if split is None else classify(classifier, _features_of(split), split.labels)
        for split in (run.splits.validation, run.splits.test)
    )
    state = make_head_state(config, run.seed, features)
    state = _resumed(folder / run_folder.HEAD_CHECKPOINT, identity, state)

    def save() -> None:
        checkpoint = Checkpoint(
            identity=identity,
            progress=state.progress,
            model=state.head.state_dict(),
            optimiser=state.optimiser.state_dict(),
            loss={},
            average={},
            scaler={},
        )
        save_checkpoint(folder / run_folder.HEAD_CHECKPOINT, checkpoint)
        run_folder.write_history(folder / run_folder.HEAD_HISTORY, state.progress.history)

    callbacks = TrainingCallbacks(lambda _: None, on_epoch, save, should_stop)
    if not train_head(state, samples, validation, config, run.seed, callbacks):
        return False
    described = _describe(run, identity, source.description.precision_pilot)
    write_head(folder / run_folder.HEAD, TrainedHead(state.head, described))
    record = {"identity": identity}
    splits = (run.splits.validation, validation), (run.splits.test, test)
    for name, (split, split_samples) in zip(("validation", "test"), splits, strict=True):
        if split is not None and split_samples is not None:
            record[name] = _evaluate(state.head, split_samples, split.labels)
    run_folder.write_json(metrics, record)
    return True


def _features_of(samples: Samples) -> Tensor:
    """The features of a split, of the first run of each sample. Shape (samples, 1, dim)."""
    (features,) = samples.inputs.batches([torch.arange(len(samples))], None)
    return features[:, None]


def _resumed(path: Path, identity: Mapping[str, Any], state: HeadState) -> HeadState:
    """The state of a checkpoint, or the given one where there is none."""
    if not path.exists():
        return state
    checkpoint = load_checkpoint(path)
    require_same_run(path, checkpoint.identity, identity)
    state.head.load_state_dict(checkpoint.model)
    state.optimiser.load_state_dict(dict(checkpoint.optimiser))
    return replace(state, progress=checkpoint.progress)


def _describe(
    run: HeadRun, identity: Mapping[str, Any], pilot: PrecisionPilot | None
) -> dict[str, Any]:
    """The provenance of a head; `pilot` is what the precision of its features was chosen by."""
    recipe = recipe_as_dict(run.recipe)
    comparison = {"precision_pilot": pilot.to_json()} if pilot else {}
    return {
        "features": {**identity["features"], **comparison},
        "runs": identity["runs"],
        "uncertainty": identity["uncertainty"],
        "classifier": {name: recipe[name] for name in ("name", "model", "loss")},
        "dataset": run.recipe.data.train,
        "seed": run.seed,
        "package_version": version("difficulty-service"),
    }


def _evaluate(head: UncertaintyHead, samples: HeadSamples, labels: Tensor) -> dict[str, Any]:
    """How well a head ranks the samples of a split."""
    uncertainties = predict_uncertainties(head, samples.features)
    record: dict[str, Any] = {
        "num_samples": len(labels),
        "auroc_correct": auroc_correct(uncertainties, samples.correct[:, 0]),
    }
    if 1 < len(labels) <= CHEAP_SAMPLES:
        retrieval = evaluate_retrieval(uncertainties, samples.features[:, 0], labels)
        record |= {"r_auroc": retrieval.r_auroc, "recall_at_1": retrieval.recall_at_1}
    return record
