"""What figures are drawn from: runs with their seeds, and score files."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.base.errors import ScoreFileError, TrainingError
from difficulty_service.scores.file import read_score_schema, read_scores
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.score_columns import require_columns
from trainer import run_folder
from trainer.evaluation.prediction_file import Predictions, read_predictions
from trainer.evaluation.record import read_metrics
from trainer.reports.comparison import unique_names

ADAFOCAL = "adafocal.csv"


@dataclass(frozen=True)
class SeedFolder:
    """The files of one seed, each of which may be missing."""

    seed: int
    folder: Path

    @cached_property
    def history(self) -> Sequence[Mapping[str, Any]]:
        """The records of its epochs; none before its first checkpoint."""
        path = self.folder / run_folder.HISTORY
        return run_folder.read_history(path) if path.is_file() else []

    @cached_property
    def predictions(self) -> Predictions | None:
        """Its test predictions, or else those of its validation samples; None without either."""
        for name in (run_folder.TEST, run_folder.VALIDATION):
            if (self.folder / name).is_file():
                return read_predictions(self.folder / name)
        return None

    @cached_property
    def class_names(self) -> Sequence[str]:
        """The names of the classes that it predicts."""
        return run_folder.read_inputs(self.folder / run_folder.INPUTS)[1]

    @cached_property
    def temperature(self) -> float | None:
        """The temperature with the least NLL of the validation samples; None without one."""
        path = self.folder / run_folder.METRICS
        if not path.is_file():
            return None
        value = read_metrics(path).get("temperature_nll", {}).get("temperature")
        return None if value is None else float(value)

    @cached_property
    def adafocal(self) -> Sequence[Mapping[str, str]]:
        """What AdaFocal reported for each epoch and bin; nothing of another loss."""
        path = self.folder / ADAFOCAL
        if not path.is_file():
            return []
        with path.open(newline="") as file:
            return list(csv.DictReader(file))


@dataclass(frozen=True)
class RunSource:
    """A run."""

    name: str
    folder: Path
    seeds: tuple[SeedFolder, ...]


@dataclass(frozen=True)
class ScoreSource:
    """A score file."""

    name: str
    path: Path
    column: str
    table: pa.Table
    provenance: Provenance

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """The scores, NaN where a sample has none. Shape (samples,)."""
        values: NDArray[np.float64] = self.table[self.column].to_numpy().astype(np.float64)
        return values

    @cached_property
    def sample_ids(self) -> list[str]:
        """The ids of the samples."""
        ids: list[str] = self.table["sample_id"].to_pylist()
        return ids

    @property
    def corruption(self) -> str | None:
        """Corruption of the images, such as "fog:3"; None of images as they are."""
        return self.provenance.corruption


@dataclass(frozen=True)
class Sources:
    """Everything that figures are drawn from, and how many parts some of them have.

    Attributes:
        num_bins: Bins of samples whose error rates are compared.
        num_images: Images in each half of a sheet.
    """

    runs: tuple[RunSource, ...]
    scores: tuple[ScoreSource, ...]
    num_bins: int = 10
    num_images: int = 24

    @property
    def clean_scores(self) -> tuple[ScoreSource, ...]:
        """The score files of images without a corruption."""
        return tuple(each for each in self.scores if each.corruption is None)

    def seeds(self) -> Iterator[tuple[RunSource, SeedFolder]]:
        """Every seed, with its run."""
        for run in self.runs:
            for seed in run.seeds:
                yield run, seed


def read_sources(paths: Sequence[Path], column: str) -> Sources:
    """Reads folders of runs and score files."""
    if not paths or len({path.resolve() for path in paths}) < len(paths):
        raise TrainingError(
            f"{len(paths)} runs and score files to draw", "give at least one, and each once"
        )
    runs = [_read_run(path) for path in paths if path.is_dir()]
    scores = [_read_scores(path, column) for path in paths if not path.is_dir()]
    run_names = unique_names([(run.name, run.folder) for run in runs])
    score_names = unique_names([(each.path.stem, each.path) for each in scores])
    return Sources(
        tuple(replace(run, name=name) for run, name in zip(runs, run_names, strict=True)),
        tuple(replace(each, name=name) for each, name in zip(scores, score_names, strict=True)),
    )


def _read_run(folder: Path) -> RunSource:
    folders = run_folder.seed_folders(folder)
    recipe = run_folder.read_run(folders[0])["recipe"]
    seeds = [SeedFolder(int(each.name.removeprefix("seed-")), each) for each in folders]
    return RunSource(str(recipe["name"]), folder, tuple(seeds))


def _read_scores(path: Path, column: str) -> ScoreSource:
    present = read_score_schema(path).names
    require_columns([column], present, str(path), parameter="score_column")
    contents = read_scores(path, list(dict.fromkeys(["sample_id", "label_name", column])))
    values = contents.table[column]
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        raise ScoreFileError(
            f"column {column!r} of {path} holds {values.type}, not scores", parameter="score_column"
        )
    source = ScoreSource(path.stem, path, column, contents.table, contents.provenance)
    if not np.isfinite(source.scores).any():
        raise ScoreFileError(
            f"no sample of {path} has a score in column {column!r}",
            "score with that scorer, or choose another column",
            parameter="score_column",
        )
    return source
