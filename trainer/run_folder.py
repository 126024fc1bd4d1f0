"""The files of a run: one folder per recipe, with one folder per seed inside."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from difficulty_service.base.checksums import dump_checked, load_checked
from difficulty_service.base.csv_cells import write_rows
from difficulty_service.base.errors import Setting, TrainingError
from difficulty_service.base.files import replacing
from difficulty_service.base.json_text import parse_json
from difficulty_service.base.tables import write_parquet
from trainer.samples import InputSpec, SkippedEntry

VERSION = 1
"""Version of the files of a run, which its description names."""

CHECKPOINT = "checkpoint.pt"
CORRUPTIONS = "corruptions.json"
DISTANCES = "distances.parquet"
DYNAMICS = "dynamics.parquet"
ERRORS = "errors.parquet"
EVALUATION = "evaluation.json"
EVALUATION_ERRORS = "evaluation_errors.parquet"
EVALUATION_PREDICTIONS = "evaluation.npz"
FINAL = "final.json"
HISTORY = "history.jsonl"
HEAD = "head.safetensors"
HEAD_CHECKPOINT = "head_checkpoint.pt"
HEAD_HISTORY = "head_history.jsonl"
HEAD_METRICS = "head_metrics.json"
INPUTS = "inputs.json"
LAST_MODEL = "model-last.safetensors"
METRICS = "metrics.json"
MODEL = "model.safetensors"
OBJECTIVE = "objective.json"
OOD = "ood.json"
RECIPE = "recipe.json"
ROC = "roc.parquet"
ROC_DIAGRAM = "roc"
TENSORBOARD = "tensorboard"
TEST = "test.npz"
VALIDATION = "validation.npz"
WEIGHTS = "weights.json"


def seed_folder(run: Path, seed: int) -> Path:
    """The folder of one seed."""
    return run / f"seed-{seed}"


def seed_folders(run: Path) -> list[Path]:
    """The folders of all seeds that were started, in ascending order of the seed."""
    folders = [
        folder
        for folder in run.glob("seed-*")
        if re.fullmatch(r"seed-\d+", folder.name) and (folder / RECIPE).exists()
    ]
    if not folders:
        raise TrainingError(
            f"{run} holds no run: no seed-*/{RECIPE} in it",
            "name a folder that `difficulty train` wrote",
        )
    return sorted(folders, key=lambda folder: int(folder.name.removeprefix("seed-")))


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes strict JSON atomically."""
    with replacing(path) as temporary:
        temporary.write_text(dump_checked(values, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object."""
    try:
        return load_checked(path.read_text())
    except FileNotFoundError:
        raise TrainingError(
            f"{path} is missing", "finish the run with ", Setting("resume", value=True)
        ) from None
    except ValueError as error:
        raise TrainingError(f"{path} is damaged ({error})", "train again") from error


def write_run(folder: Path, values: Mapping[str, Any]) -> None:
    """Writes the description of a run into the folder of its seed."""
    write_json(folder / RECIPE, {"version": VERSION, **values})


def read_run(folder: Path) -> dict[str, Any]:
    """The description of the run in the folder of a seed."""
    path = folder / RECIPE
    values = read_json(path)
    version = values.pop("version", None)
    if version != VERSION:
        raise TrainingError(
            f"{path} has version {version} of runs, but this package reads {VERSION}",
            "train again",
        )
    return values


def write_history(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Writes one line of JSON per epoch."""
    with replacing(path) as temporary:
        temporary.write_text("".join(json.dumps(record) + "\n" for record in records))


def read_history(path: Path) -> list[dict[str, Any]]:
    """Reads the records of the epochs."""
    try:
        return [parse_json(line) for line in path.read_text("utf-8").splitlines()]
    except ValueError as error:
        raise TrainingError(f"{path} is damaged ({error})", "train again") from error


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes rows with a header; removes the file where there are none."""
    if not rows:
        path.unlink(missing_ok=True)
        return
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        cells = ([row.get(name, "") for name in rows[0]] for row in rows)
        write_rows(file, rows[0], cells, newline="\n")


def write_errors(path: Path, skipped: Sequence[SkippedEntry]) -> None:
    """Writes the entries of datasets that are not used; removes the file where there are none."""
    if not skipped:
        path.unlink(missing_ok=True)
        return
    rows = [asdict(entry) for entry in dict.fromkeys(skipped)]
    with replacing(path) as temporary:
        write_parquet(temporary, pa.Table.from_pylist(rows))


def write_inputs(path: Path, spec: InputSpec, class_names: Sequence[str]) -> None:
    """Writes the specification of a model's inputs and the names of its classes."""
    statistics = {
        name: None if values is None else values.tolist()
        for name, values in (("mean", spec.mean), ("std", spec.std))
    }
    write_json(path, {**vars(spec), **statistics, "class_names": class_names})


def read_inputs(path: Path) -> tuple[InputSpec, tuple[str, ...]]:
    """Reads the specification of a model's inputs and the names of its classes."""
    values = read_json(path)
    try:
        mean, std = (
            None if values[name] is None else torch.tensor(values[name]) for name in ("mean", "std")
        )
        spec = InputSpec(
            tuple(values["shape"]),
            mean,
            std,
            tuple(values["vocabulary"]),
            values["tokenizer"],
            values["padding"],
        )
        return spec, tuple(values["class_names"])
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise TrainingError(f"{path} is damaged ({error!r})", "train again") from error
