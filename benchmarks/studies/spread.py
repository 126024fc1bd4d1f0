"""Does it matter which sample gets which weight, at equal alpha times mean weight?

Probes with one hidden layer learn the features of 5,000 images of CIFAR-10 and of CIFAR-100 by the
built-in encoder, with three seeds; `--learners networks` trains the small residual networks of
`losses` from scratch on the same images, with fewer spreads. The weights of entropy come from the
RMD of MobileNetV2, for several normalisations and for temperatures T that give them a coefficient
of variation of 0.05 to 2. Each is compared with constant entropy and with the same weights permuted
among the samples, at the same mean strength; the permutation separates difficulty from the
distribution of the weights.
The encoder has learned the training images of CIFAR-100, so all of its images here, also those to
train on, are test images.

    make study-spread
    python -m benchmarks.studies.spread --learners networks  # an hour on one core a dataset

Neither the scale nor the origin of scores matters once T is chosen by the spread, so "zscore" has
the weights of "minmax", and "per_dimension" those of "none"; these two stand for all four. The
strength is chosen by the NLL of 1,000 other images. All files are in runs/study-spread,
where a study that was stopped resumes; the tables are also written to files there.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.evidence.tables import write_rows
from benchmarks.evidence.training.comparison import Measure
from benchmarks.real_data import shared_folder, skipped
from benchmarks.studies.ablations import paired
from benchmarks.studies.cifar10 import run_difficulty
from benchmarks.studies.losses import NETWORK
from benchmarks.studies.tables import seed_metrics, validation_nll
from benchmarks.studies.trials import Study, Trial, run_trials
from difficulty_service.base.files import replacing
from difficulty_service.base.threads import num_workers
from trainer.config import Normalise
from trainer.weights.formula import sample_weights

SPLITS = {"train": (0, 1, 2, 3, 4), "validation": (5,), "test": (6, 7, 8, 9)}
"""Last digits of the row numbers, among 10,000, of the images of each split."""

IMAGES = 10_000
SOURCES = {"cifar10": "cifar10_train_*.parquet", "cifar100": "cifar100_test.parquet"}
"""Tables of the images, which are evenly spaced."""

STRENGTHS = (0.03, 0.1, 0.3)
"""Values of alpha times the mean weight."""

COLUMNS: dict[str, tuple[str, Normalise, float]] = {
    "min-max": ("rmd", "minmax", 0.001),
    "raw": ("rmd", "none", 0.0),
    "rank": ("rank", "minmax", 0.0),
}
"""Column, `normalise` and `winsorise` of each family of weights."""

SPREADS = {"min-max": (0.05, 0.3, 1.0, 2.0), "raw": (1.0, 2.0), "rank": (1.0, 2.0)}
"""Coefficients of variation of the weights of each family; small ones are nearly alike in all."""


@dataclass(frozen=True)
class Learner:
    """What learns with the weights.

    Attributes:
        recipe: Name of the recipe.
        settings: Changes to it.
        spreads: Coefficients of variation of the weights of each family.
        suffix: What it learns of a split, by the end of the name of its file.
        runs: Name of the folder for its runs.
        table: Name of the file for its results.
    """

    recipe: str
    settings: tuple[str, ...]
    spreads: Mapping[str, Sequence[float]]
    suffix: str
    runs: str
    table: str


LEARNERS = {
    "probes": Learner(
        "probe_quick",
        (
            "model.hidden=[256]",
            "training.batch_size=250",
            "training.epochs=15",
            "optimiser.learning_rate=3e-3",
        ),
        SPREADS,
        ".features",
        "runs",
        "spread.csv",
    ),
    "networks": Learner(
        "cifar10_small_resnet",
        ("data.label_column=label", "training.epochs=20", *NETWORK),
        {"min-max": (0.3, 2.0)},
        ".parquet",
        "network-runs",
        "spread_networks.csv",
    ),
}

MEASURES = (
    Measure("accuracy (%)", "raw", "accuracy", larger_is_better=True, scale=100, digits=2),
    *(
        Measure(
            name + title,
            stage,
            metric,
            larger_is_better=metric.endswith("msp"),
            scale=scale,
            digits=4 if scale == 1 else 2,
        )
        for stage, title in (("raw", ""), ("temperature_nll", ", scaled"))
        for name, metric, scale in (
            ("NLL", "nll", 1),
            ("ECE (%)", "ece", 100),
            ("adaptive ECE (%)", "adaptive_ece", 100),
            ("AUROC of errors (%)", "misclassification_auroc_msp", 100),
        )
    ),
)

Values = Mapping[str, Sequence[float]]
"""Test metrics of a method by the name of the measure, one for each seed."""


@dataclass(frozen=True)
class Weights:
    """Weights of a spread.

    Attributes:
        family: A key of COLUMNS.
        spread: Coefficient of variation.
        temperature: T that gives it.
        mean: Mean weight.
    """

    family: str
    spread: float
    temperature: float
    mean: float

    def trial(self, scores: Path, strength: float, *, permuted: int | None = None) -> Trial:
        """Entropy with these weights, or with a permutation of them, by its number."""
        column, normalise, winsorise = COLUMNS[self.family]
        name = f"{self.family}, spread {self.spread:g}, strength {strength:g}"
        if permuted is not None:
            column, name = permuted_column(column, permuted), f"{name}, permuted {permuted}"
        settings = {
            "weights": "scores",
            "scores": scores,
            "column": column,
            "normalise": normalise,
            "score_temperature": f"{self.temperature:.8g}",
            "alpha": f"{strength / self.mean:.6g}",
        }
        if normalise == "minmax":
            settings["winsorise"] = f"{winsorise:g}"
        return Trial(name, tuple(f"regulariser.{key}={value}" for key, value in settings.items()))


@dataclass(frozen=True)
class Splits:
    """The data that is learned.

    Attributes:
        train: Training images, or their features.
        validation: Other training images.
        test: Test images.
        scores: Score file of the training images, with the columns of COLUMNS and their
            permutations.
    """

    train: Path
    validation: Path
    test: Path
    scores: Path


def constant(strength: float) -> Trial:
    """Entropy that is the same for all samples."""
    return Trial(f"constant, strength {strength:g}", (f"regulariser.alpha={strength:g}",))


def permuted_column(column: str, number: int) -> str:
    """Name of a permutation of a column."""
    return f"{column}_permuted_{number}"


def weights_of(family: str, scores: NDArray[np.float64], spread: float) -> Weights:
    """The weights of a family with a coefficient of variation, which falls with T."""
    _, normalise, winsorise = COLUMNS[family]

    def weights(temperature: float) -> NDArray[np.float64]:
        return sample_weights(
            torch.from_numpy(scores),
            normalise=normalise,
            score_temperature=temperature,
            winsorise=winsorise,
        ).numpy()

    low, high = 1e-3 * float(np.ptp(scores)), 1e3 * float(np.ptp(scores))
    if normalise == "minmax":
        low, high = 1e-3, 1e3
    for _ in range(100):
        middle = math.sqrt(low * high)
        found = weights(middle)
        low, high = (middle, high) if found.std() > spread * found.mean() else (low, middle)
    return Weights(family, spread, middle, float(found.mean()))


def prepare(dataset: str, folder: Path, seeds: Sequence[int], learner: Learner) -> Splits | None:
    """Extracts and scores what is missing; None where the dataset is not available."""
    files = sorted((shared_folder() / "data").glob(SOURCES[dataset]))
    if not files:
        return None
    places = {}
    for split, digits in SPLITS.items():
        table, places[split] = folder / f"{split}.parquet", folder / f"{split}{learner.suffix}"
        if not table.exists():
            select(files, digits, table)
        if places[split] != table and not (places[split] / "errors.parquet").exists():
            options = ("--label-column", "label", "--backbone", "builtin")
            run_difficulty("extract", table, *options, "--out", places[split])
    scores = folder / "scores.parquet"
    if not scores.exists():
        weights = shared_folder() / "weights/mobilenetv2_100.imagenet1k.safetensors"
        plain = folder / "rmd.parquet"
        run_difficulty(
            *("score", folder / "train.parquet", "--label-column", "label"),
            *("--backbone", "timm:mobilenetv2_100", "--weights", weights, "--out", plain),
        )
        add_columns(plain, scores, seeds)
    return Splits(**places, scores=scores)


def select(files: Sequence[Path], digits: Sequence[int], target: Path) -> None:
    """Writes a table of the images of a split."""
    images: Any = ds.dataset(files)
    rows = np.linspace(0, images.count_rows() - 1, IMAGES).round().astype(np.int64)
    chosen = rows[np.isin(np.arange(IMAGES) % 10, digits)]
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as temporary:
        pq.write_table(images.take(pa.array(chosen), columns=["image", "label"]), temporary)


def add_columns(source: Path, target: Path, permutations: Sequence[int]) -> None:
    """Copies a score file with ranks of RMD, and with permutations of both, each by its seed."""
    table = pq.read_table(source)
    rmd = table["rmd"].to_numpy().astype(np.float64)
    columns = {"rmd": rmd, "rank": rankdata(rmd)}
    table = table.append_column("rank", pa.array(columns["rank"]))
    for seed in permutations:
        order = np.random.default_rng(seed).permutation(len(rmd))
        for name, values in columns.items():
            table = table.append_column(permuted_column(name, seed), pa.array(values[order]))
    with replacing(target) as temporary:
        pq.write_table(table, temporary)


def run_study(
    dataset: str, learner: Learner, arguments: argparse.Namespace
) -> list[dict[str, str]]:
    """Trains what is missing on one dataset; the rows of its table."""
    seeds = range(arguments.seeds)
    data = prepare(dataset, arguments.folder / dataset, seeds, learner)
    if data is None:
        sys.exit(skipped(dataset))
    locations = (
        f"data.train={data.train}",
        f"data.validation={data.validation}",
        f"data.test={data.test}",
    )
    folder = arguments.folder / dataset / learner.runs
    study = Study(learner.recipe, (*locations, *learner.settings), folder, arguments.jobs)
    table = pq.read_table(data.scores, columns=["rmd", "rank"])
    families = [
        weights_of(family, table[column].to_numpy().astype(np.float64), spread)
        for family, (column, *_) in COLUMNS.items()
        for spread in learner.spreads.get(family, ())
    ]
    own = [weights.trial(data.scores, each) for weights in families for each in STRENGTHS]
    run_trials(study, [*map(constant, STRENGTHS), *own, Trial("cross-entropy", ())], seeds)
    for seed in seeds:
        control = [
            weights.trial(data.scores, each, permuted=seed)
            for weights in families
            for each in STRENGTHS
        ]
        run_trials(study, control, [seed])
    return [{"dataset": dataset, **row} for row in rows_of(study, families, data.scores, seeds)]


def rows_of(
    study: Study, families: Sequence[Weights], scores: Path, seeds: Sequence[int]
) -> Iterator[dict[str, str]]:
    """Rows of constant entropy and of all weights, beside constant and permuted ones."""
    best = chosen(study, {strength: constant(strength) for strength in STRENGTHS}, seeds)
    constants = {strength: values(study, [constant(strength)], seeds) for strength in STRENGTHS}
    yield row_of({"weights": "none"}, values(study, [Trial("cross-entropy", ())], seeds), {})
    for strength, found in constants.items():
        about = {"weights": "constant", "strength": f"{strength:g}", "alpha": f"{strength:g}"}
        yield row_of({**about, "chosen": _mark(strength == best)}, found, {})
    for weights in families:
        own = {strength: weights.trial(scores, strength) for strength in STRENGTHS}
        best_own = chosen(study, own, seeds)
        for strength, trial in own.items():
            control = [weights.trial(scores, strength, permuted=seed) for seed in seeds]
            others = {
                "permuted": values(study, control, seeds),
                "constant": constants[strength],
            }
            if strength == best_own:
                others["constant at its best"] = constants[best]
            about = {
                "weights": weights.family,
                "spread": f"{weights.spread:g}",
                "strength": f"{strength:g}",
                "T": f"{weights.temperature:.4g}",
                "mean weight": f"{weights.mean:.3g}",
                "alpha": f"{strength / weights.mean:.3g}",
                "chosen": _mark(strength == best_own),
            }
            yield row_of(about, values(study, [trial], seeds), others)


def chosen(study: Study, trials: Mapping[float, Trial], seeds: Sequence[int]) -> float:
    """The strength with the least NLL of the validation images over all seeds."""
    return min(trials, key=lambda strength: validation_nll(study, trials[strength], seeds))


def values(study: Study, trials: Sequence[Trial], seeds: Sequence[int]) -> Values:
    """Test metrics by seed, of one trial or of one for each seed."""
    each = trials if len(trials) > 1 else [*trials] * len(seeds)
    records: list[Any] = [
        seed_metrics(study, trial, [seed])[seed]["metrics"]
        for trial, seed in zip(each, seeds, strict=True)
    ]
    return {
        measure.name: [measure.scale * found[measure.stage][measure.metric] for found in records]
        for measure in MEASURES
    }


def row_of(about: Mapping[str, str], own: Values, others: Mapping[str, Values]) -> dict[str, str]:
    """Means over the seeds, and differences from other methods with their 95 % intervals."""
    row = {
        **dict.fromkeys(("weights", "spread", "strength", "T", "mean weight", "alpha"), ""),
        "chosen": "",
        **about,
    }
    for measure in MEASURES:
        digits, name = measure.digits, measure.name
        row[name] = f"{np.mean(own[name]):.{digits}f}"
        for other in ("permuted", "constant", "constant at its best"):
            mean, error = paired(own[name], others[other][name]) if other in others else (0, 0)
            row[f"{name} minus {other}"] = f"{mean:+.{digits}f}" if other in others else ""
            row[f"{name} minus {other}: interval"] = (
                f"{error:.{digits}f}" if other in others else ""
            )
    return row


def _mark(is_best: bool) -> str:  # noqa: FBT001 - it is all that there is
    return "yes" if is_best else ""


def main() -> None:
    """Runs what is unfinished, then writes and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=["probes"])
    parser.add_argument("--seeds", type=int, default=3, help="runs of every method")
    parser.add_argument("--jobs", type=int, default=num_workers(), help="number of parallel runs")
    parser.add_argument("--folder", type=Path, default=Path("runs/study-spread"))
    arguments = parser.parse_args()
    for learner in (LEARNERS[name] for name in arguments.learners):
        rows = [row for name in arguments.datasets for row in run_study(name, learner, arguments)]
        write_rows(arguments.folder / learner.table, list(rows[0]), rows)
        for row in rows:
            print(" | ".join(row.values()))


if __name__ == "__main__":
    main()
