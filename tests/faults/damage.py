"""Damages files of one kind and reads them, in a process of its own, which a reader might end."""

import os
import random
import resource
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from api.results.score_columns import map_columns, write_columns
from difficulty_service.base.checksums import ChangedFile, describe_change, write_json
from difficulty_service.base.errors import DifficultyError
from difficulty_service.features.description import FeatureDescription, read_description
from difficulty_service.features.errors_file import BadImage, read_errors, write_errors
from difficulty_service.features.shard import ShardTable, open_shard, read_bad_images, write_shard
from difficulty_service.features.shard_images import read_images
from difficulty_service.features.store import create_store
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit
from difficulty_service.marks.files import read_marks, write_marks
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample
from difficulty_service.scores.explanation import read_explanation
from difficulty_service.scores.file import ScoreFile, read_scores, to_schema, write_scores
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scoring.fitted_gaussians import load_gaussians, save_gaussians
from tests.faults.foreign_files import FOREIGN, Kind
from trainer import run_folder
from trainer.evaluation.prediction_file import Predictions, read_predictions, write_predictions
from trainer.training.state import Checkpoint, TrainingProgress, load_checkpoint, save_checkpoint

ROWS, DIM = 300, 8
LONGEST_BLOCK = 512


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def scores() -> pa.Table:
    values = numbers(ROWS).double().tolist()
    return pa.table(
        {
            "sample_id": [f"photo {row}.jpg" for row in range(ROWS)],
            "label": pa.array([row % 3 for row in range(ROWS)], pa.int32()),
            "label_name": [f"class {row % 3}" for row in range(ROWS)],
            **dict.fromkeys(("md", "md_agnostic", "rmd", "percentile"), values),
            "nearest_label": pa.array([0] * ROWS, pa.int32()),
            "label_margin": values,
        }
    )


def score_values(path: Path) -> object:
    read = read_scores(path)
    return read.table.to_pydict(), read.provenance


def store_shard(path: Path) -> None:
    table = ShardTable(
        [f"photo {row}" for row in range(ROWS)],
        torch.arange(ROWS) % 3,
        torch.zeros(ROWS, dtype=torch.int64),
        numbers(ROWS, DIM),
        [bytes([row % 256]) * 32 for row in range(ROWS)],
    )
    write_shard(path, table, [BadImage("bad", "cut short")])


def shard_values(path: Path) -> object:
    opened = open_shard(path, ["sample_id", "run"])
    bad = read_bad_images(path)
    middle = opened.read_features(slice(5, 20)).tolist()
    texts = [repr(value) for value in vars(read_images(path, 1, with_ids=True)).values()]
    return opened.sample_ids.to_pylist(), opened.labels.tolist(), bad, middle, texts, rest(opened)


def rest(opened: Any) -> object:  # noqa: ANN401
    return opened.runs.tolist(), opened.features().tolist()


def gaussian_values(path: Path) -> object:
    gaussians, provenance = load_gaussians(path)
    moments = {name: tensor.tolist() for name, tensor in vars(gaussians.moments).items()}
    factors = [
        {**vars(factor), "whitening": factor.whitening.tolist()}
        for factor in (gaussians.within, gaussians.agnostic)
    ]
    means = gaussians.mean.tolist(), gaussians.class_means.tolist()
    return moments, factors, means, gaussians.options, gaussians.warnings, provenance.to_json()


def gaussians(path: Path) -> None:
    fitted = fit(numbers(80, 5).double(), torch.arange(80) % 3, 3, FitOptions(shrinkage="oas"))
    save_gaussians(path, fitted, FeatureDescription.of(DESCRIPTION))


def column_values(path: Path) -> object:
    """A file that is damaged is made anew."""
    columns = map_columns(path)
    if columns is None:
        columns_file(path)
        columns = map_columns(path)
    assert columns is not None
    samples = columns.samples
    arrays = [samples.labels, samples.nearest, samples.rmd, samples.margins, samples.percentiles]
    ids = samples.ids.to_pylist(), samples.copy_of.to_pylist()
    return ids, [array.tolist() for array in arrays], samples.names, columns.provenance


def columns_file(path: Path) -> None:
    write_columns(path, ScoreFile(to_schema(scores()), Provenance.of({"dataset": "photos"})))


def prediction_values(path: Path) -> object:
    read = read_predictions(path)
    return read.sample_ids, read.logits.tolist(), read.targets.tolist()


def predictions(path: Path) -> None:
    ids = [f"photo {row}" for row in range(50)]
    write_predictions(path, Predictions(ids, numbers(50, 3), torch.arange(50) % 3))


def checkpoint(path: Path) -> None:
    model = {"weight": numbers(20, 5), "bias": numbers(5)}
    save_checkpoint(
        path, Checkpoint({"seed": 1}, TrainingProgress(3), model, {"lr": 0.1}, {}, {}, {})
    )


def provenance_values(path: Path) -> object:
    return sorted(
        read_scores(path.with_name("scores.csv"), ["sample_id"]).provenance.to_json().items()
    )


def text_scores(path: Path) -> None:
    write_scores(path, scores(), Provenance.of({"dataset": "photos"}))


def marks(path: Path) -> None:
    kinds = (MarkedSample("", Mark.KEEP), MarkedSample("", Mark.RELABEL, "a, b", "c"))
    write_marks(path, [replace(kinds[row % 2], sample_id=f"photo {row}") for row in range(50)])


def mark_values(path: Path) -> object:
    read = read_marks(path, ())
    if describe_change(path) in read.warnings:
        warnings.warn(describe_change(path), ChangedFile, stacklevel=1)
    return read.samples


DESCRIPTION = {
    "class_names": ["a", "b"],
    "num_shards": 1,
    "augment_runs": 0,
    "seed": 3,
    "backbone": "builtin",
    "feature_dim": 8,
}

TEXTS: Mapping[str, Kind] = {
    "csv": ("scores.csv", text_scores, score_values),
    "jsonl": ("scores.jsonl", text_scores, score_values),
    "marks": ("scores.marks.csv", marks, mark_values),
}
"""Kinds of files that people edit: a damaged one is at least said to have changed."""

KINDS: Mapping[str, Kind] = {
    "scores": (
        "scores.parquet",
        lambda path: write_scores(path, scores(), Provenance.of({"dataset": "photos", "seed": 1})),
        score_values,
    ),
    "provenance": (
        "scores.csv.json",
        lambda path: write_scores(
            path.with_name("scores.csv"), scores(), Provenance.of({"dataset": "photos"})
        ),
        provenance_values,
    ),
    "part": ("part-00000.arrow", store_shard, shard_values),
    "store": (
        "store.json",
        lambda path: create_store(path.parent, FeatureDescription.of(DESCRIPTION)),
        lambda path: sorted(read_description(path.parent).to_json().items()),
    ),
    "errors": (
        "errors.parquet",
        lambda path: write_errors(path.parent, [BadImage(f"{row}", "bad") for row in range(20)]),
        lambda path: read_errors(path.parent),
    ),
    "gaussians": ("gaussians.safetensors", gaussians, gaussian_values),
    "columns": ("columns.arrow", columns_file, column_values),
    "explanation": (
        "scores.explained.json",
        lambda path: write_json(path, {"format_version": 1, "groups": [[1, 0.25]], "name": "é"}),
        lambda path: sorted(read_explanation(path).items()),  # type: ignore[union-attr]
    ),
    "predictions": ("test.npz", predictions, prediction_values),
    "checkpoint": ("checkpoint.pt", checkpoint, load_checkpoint),
    "run": (
        "metrics.json",
        lambda path: run_folder.write_json(path, {"raw": {"ece": 0.125, "bins": [1, 2, 3]}}),
        lambda path: sorted(run_folder.read_json(path).items()),
    ),
}
"""Every other kind of file that this package writes and reads again."""

ALL = {**KINDS, **TEXTS, **FOREIGN}


def flip_bit(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def zero_block(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data))
    length = min(chance.randint(1, LONGEST_BLOCK), len(data) - start)
    data[start : start + length] = bytes(length)


def truncate(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def swap_blocks(data: bytearray, chance: random.Random) -> None:
    length = chance.randint(1, min(LONGEST_BLOCK, len(data) // 3))
    first = chance.randrange(len(data) - 2 * length)
    second = chance.randrange(first + length, len(data) - length + 1)
    one, other = data[first : first + length], data[second : second + length]
    data[first : first + length], data[second : second + length] = other, one


def repeat_block(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data))
    block = data[start : start + chance.randint(1, LONGEST_BLOCK)]
    data[start:start] = block


def remove_block(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data))
    del data[start : start + chance.randint(1, LONGEST_BLOCK)]


DAMAGES = (flip_bit, zero_block, truncate, swap_blocks, repeat_block, remove_block)


def outcome(kind: str, path: Path, expected: str) -> str:
    """Reads a damaged file."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            is_same = repr(ALL[kind][2](path)) == expected
    except DifficultyError as error:
        named = path.name in str(error) and (error.remedy or kind not in KINDS)
        return "named" if named else f"without file or remedy: {error}"
    except Exception as error:  # noqa: BLE001 - to be reported
        return f"{type(error).__name__}: {error}".replace("\n", " ")
    if any(issubclass(each.category, ChangedFile) for each in caught):
        return "told"
    return "same" if is_same else "different"


def read_damaged(kind: str, folder: Path, first: int, last: int) -> None:
    """Damages a file in one way after another.

    The file `outcomes` gets the number of each damage before the file is read, and the outcome
    after it: `same`, `named` (an error with the file, and a remedy unless other programs write such
    files), `told` (a warning that it changed), `different`, or the error that is none of these; at
    the end, by how much the largest memory of the process grew, in MB. What libraries print goes to
    `errors`.
    """
    os.dup2(os.open(folder / "errors", os.O_WRONLY | os.O_CREAT), 2)
    name, write, read = ALL[kind]
    original = folder / "original" / name
    original.parent.mkdir(exist_ok=True)
    write(original)
    expected = repr(read(original))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (folder / "outcomes").open("w") as outcomes:
        for number in range(first, last):
            chance = random.Random(f"{kind} {number}")  # noqa: S311 - a repeatable sequence
            path = folder / f"{number}" / name
            path.parent.mkdir()
            for beside in original.parent.iterdir():
                (path.parent / beside.name).write_bytes(beside.read_bytes())
            damage = DAMAGES[number % len(DAMAGES)]
            data = bytearray(original.read_bytes())
            damage(data, chance)
            path.write_bytes(data)
            print(number, damage.__name__, end=" ", file=outcomes, flush=True)
            print(outcome(kind, path, expected), file=outcomes, flush=True)
            shutil.rmtree(path.parent)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
        print("memory", grown, file=outcomes)
