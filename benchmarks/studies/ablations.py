"""Which part of a method counts? Reduced forms of the papers' ablations, on two cores.

Small residual networks, trained from scratch on 5,000 images of CIFAR-10 and of CIFAR-100 with
three seeds, answer six questions, each by differences that are paired by the seed:

- is a weight better on the gradient than on the loss (BSCE-GRA: focal, dual focal, Brier)?
- is entropy by difficulty better than constant entropy, at equal alpha?
- does the temperature T of min-max weights count?
- is RMD a better difficulty than K-means, the Mahalanobis distance, or the loss of a network?
- does it help where images are of no class, or corrupted?
- does it make temperature scaling needless?

    make study-ablations

All files are in runs/study-ablations, where a study that was stopped resumes; the tables are also
written to ablations.csv, shift.csv and needless_temperature.csv there.
"""

import argparse
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from benchmarks.evidence.tables import write_rows
from benchmarks.evidence.training.comparison import (
    MEASURES,
    Difference,
    difference,
    mean_and_deviation,
    paired_difference,
)
from benchmarks.real_data import shared_folder, skipped
from benchmarks.studies.cifar10 import run_difficulty
from benchmarks.studies.losses import HELD_OUT, ID_COLUMNS, NETWORK, Subset, prepare
from benchmarks.studies.tables import seed_metrics
from benchmarks.studies.trials import Study, Trial, run_trials
from difficulty_service.base.files import replacing
from difficulty_service.base.threads import num_workers
from difficulty_service.images.corruptions import corrupt
from trainer.metrics.bootstrap import Resampling
from trainer.run_folder import read_json, write_json
from trainer.runs.evaluate import (
    DatasetChoice,
    OodChoice,
    TrainedModel,
    evaluate_on_dataset,
    evaluate_ood_dataset,
    load_model,
)

PLAIN = Trial("cross-entropy", ())
ALPHAS = (0.1, 0.3, 1.0)
ALPHA = 1.0
"""Strength at which measures and temperatures are compared: the best of ALPHAS by held-out NLL in
the study of all losses, on both datasets."""

ALPHA_OF_CONSTANT = 0.3
"""The same of constant entropy."""

TEMPERATURE = 0.7
TEMPERATURES = (0.2, 2.0)

ON_THE_LOSS_AND_ON_THE_GRADIENT = tuple(
    (Trial(name, (f"loss.name={loss}",)), Trial(f"{name}, gradient", (f"loss.name={loss}_gra",)))
    for name, loss in (("focal", "focal"), ("dual focal", "dual_focal"), ("Brier", "bsce"))
)

CORRUPTED = ("gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")
SEVERITIES = (1, 3, 5)
NUM_CORRUPTED = 1000
FAR = {"cifar10": "cifar100", "cifar100": "cifar10"}


@dataclass(frozen=True)
class Pair:
    """A method and what it is compared with.

    Attributes:
        question: What the comparison is about.
        method: The method.
        reference: The method it is compared with.
    """

    question: str
    method: Trial
    reference: Trial


def constant(alpha: float) -> Trial:
    """Entropy that is the same for all samples."""
    return Trial(f"constant entropy, alpha {alpha:g}", (f"regulariser.alpha={alpha:g}",))


def weighted(
    scores: Path, alpha: float = ALPHA, column: str = "rmd", temperature: float = TEMPERATURE
) -> Trial:
    """Entropy that is weighted by a column of a score file."""
    name = {"rmd": "difficulty"}.get(column, f"by {column}") + f", alpha {alpha:g}"
    return Trial(
        name if temperature == TEMPERATURE else f"{name}, T {temperature:g}",
        (
            "regulariser.weights=scores",
            f"regulariser.scores={scores}",
            f"regulariser.column={column}",
            f"regulariser.alpha={alpha:g}",
            f"regulariser.score_temperature={temperature:g}",
        ),
    )


def pairs(measures: Path, losses: Path) -> tuple[Pair, ...]:
    """All comparisons, given a score file of RMD, MD and K-means, and one of the loss."""
    by_rmd = weighted(measures)
    others = [weighted(measures, column=column) for column in ("md", "kmeans")]
    others.append(weighted(losses, column="loss"))
    return (
        *(
            Pair("weights on the gradient", gradient, loss)
            for loss, gradient in ON_THE_LOSS_AND_ON_THE_GRADIENT
        ),
        *(Pair("entropy over alpha", weighted(measures, each), constant(each)) for each in ALPHAS),
        Pair("entropy, each at its alpha", by_rmd, constant(ALPHA_OF_CONSTANT)),
        *(
            Pair("T of min-max weights", weighted(measures, temperature=each), by_rmd)
            for each in TEMPERATURES
        ),
        *(Pair("measures of difficulty", by_rmd, each) for each in others),
        Pair("beside cross-entropy", by_rmd, PLAIN),
        Pair("beside cross-entropy", constant(ALPHA), PLAIN),
    )


def measured(data: Subset, study: Study, seeds: Sequence[int]) -> tuple[Path, Path]:
    """Score files of the training images, by Gaussians and clusters, and by the loss of networks.

    The networks are those of cross-entropy, as in the paper, where the same images trained them.
    """
    measures = data.scores.with_name(f"{data.scores.stem}-measures.parquet")
    if not measures.exists():
        features = data.scores.with_suffix(".features")
        run_difficulty("score", features, "--scorers", "rmd,kmeans", "--out", measures)
    run_trials(study, [PLAIN], seeds)
    losses = study.folder / "losses.parquet"
    if not losses.exists():
        run = study.run_folder(PLAIN)
        run_difficulty("evaluate", run, "--data", data.train, "--write-scores", losses)
    return measures, losses


def run_study(name: str, arguments: argparse.Namespace) -> dict[str, list[dict[str, str]]]:
    """Trains what is missing on one dataset; the rows of the tables, by the names of the files."""
    folder, seeds = arguments.folder, range(arguments.seeds)
    data = prepare(name, folder)
    if data is None:
        sys.exit(skipped(name))
    settings = (
        f"data.train={data.train}",
        f"data.test={data.test}",
        "data.label_column=label",
        *((f"data.id_column={data.id_column}",) if data.id_column else ()),
        f"training.epochs={arguments.epochs}",
        "training.precision=fp32",
        *NETWORK,
        HELD_OUT,
    )
    study = Study("cifar10_small_resnet", settings, folder / name, arguments.jobs)
    compared = pairs(*measured(data, study, seeds))
    trials = dict.fromkeys(trial for pair in compared for trial in (pair.reference, pair.method))
    run_trials(study, list(trials), seeds)
    shifted = [pair for pair in compared if pair.reference in (PLAIN, constant(ALPHA))]
    return {
        "ablations": [_row(name, pair, study, seeds) for pair in compared],
        "needless_temperature": [_scaling_row(name, trial, study, seeds) for trial in trials],
        "shift": list(shift_rows(name, data, shifted, study, seeds)),
    }


def _row(dataset: str, pair: Pair, study: Study, seeds: Sequence[int]) -> dict[str, str]:
    ours, theirs = (seed_metrics(study, each, seeds) for each in (pair.method, pair.reference))
    row = {
        "dataset": dataset,
        "question": pair.question,
        "method": pair.method.method,
        "minus": pair.reference.method,
    }
    for measure in MEASURES:
        found = difference(ours, theirs, measure)
        mean, _ = mean_and_deviation(ours, measure)
        row[measure.name] = f"{measure.scale * mean:.{measure.digits + 1}f}"
        if found is not None:
            row[f"{measure.name}: difference"] = _signed(found)
            row[f"{measure.name}: interval"] = _width(found)
    return row


def _scaling_row(dataset: str, trial: Trial, study: Study, seeds: Sequence[int]) -> dict[str, str]:
    """What a temperature still gains, adaptive ECE in percent, paired by the seed."""
    runs = seed_metrics(study, trial, seeds)
    raw, scaled = (
        [100 * run["metrics"][stage]["adaptive_ece"] for run in runs.values()]
        for stage in ("raw", "temperature_nll")
    )
    temperatures = [run["metrics"]["temperature_nll"]["temperature"] for run in runs.values()]
    mean, error = paired(scaled, raw)
    return {
        "dataset": dataset,
        "method": trial.method,
        "adaptive ECE (%)": f"{np.mean(raw):.2f}",
        "scaled (%)": f"{np.mean(scaled):.2f}",
        "difference": f"{mean:+.2f}",
        "interval": f"{error:.2f}",
        "temperature": f"{np.mean(temperatures):.3f}",
    }


def shift_rows(
    dataset: str, data: Subset, compared: Sequence[Pair], study: Study, seeds: Sequence[int]
) -> Iterator[dict[str, str]]:
    """What methods gain where images are of no class or corrupted, paired by the seed."""
    trials = dict.fromkeys(trial for pair in compared for trial in (pair.method, pair.reference))
    tables = corrupted_tables(data.test, study.folder / "corrupted")
    found = {
        trial: [
            shifted(study.run_folder(trial) / f"seed-{seed}", dataset, tables) for seed in seeds
        ]
        for trial in trials
    }
    for pair in compared:
        ours, theirs = found[pair.method], found[pair.reference]
        for name in ours[0]:
            values = [100 * each[name] for each in ours]
            mean, error = paired(values, [100 * each[name] for each in theirs])
            yield {
                "dataset": dataset,
                "measure": f"{name} (%)",
                "method": pair.method.method,
                "minus": pair.reference.method,
                "value": f"{np.mean(values):.2f}",
                "difference": f"{mean:+.2f}",
                "interval": f"{error:.2f}",
            }


def shifted(folder: Path, dataset: str, tables: Mapping[int, Sequence[Path]]) -> dict[str, float]:
    """AUROC against other images, and mean adaptive ECE over kinds of corruption, of one seed."""
    stored = folder / "shift.json"
    if not stored.exists():
        trained = load_model(folder, "cpu")
        write_json(stored, {**_detection(trained, dataset), **_corrupted_ece(trained, tables)})
    return read_json(stored)


def _detection(trained: TrainedModel, dataset: str) -> dict[str, float]:
    shared = shared_folder() / "data"
    others = {
        FAR[dataset]: OodChoice(f"{shared / FAR[dataset]}_test.parquet", column="image"),
        "MNIST": OodChoice(f"{shared / 'mnist_ood2000.parquet'}", column="image"),
    }
    return {
        f"AUROC of {name} by {by}": evaluate_ood_dataset(trained, choice)[0][by]["auroc"]
        for name, choice in others.items()
        for by in ("max_logit", "entropy")
    }


def _corrupted_ece(trained: TrainedModel, tables: Mapping[int, Sequence[Path]]) -> dict[str, float]:
    once = Resampling(1)
    found = {}
    for severity, paths in tables.items():
        records = [
            evaluate_on_dataset(trained, DatasetChoice(str(path)), once)[0] for path in paths
        ]
        for stage, title in (("raw", ""), ("temperature_nll", ", scaled")):
            errors = np.array([record[stage]["adaptive_ece"] for record in records], float)
            found[f"adaptive ECE{title}, severity {severity}"] = float(errors.mean())
    return found


def corrupted_tables(test: Path, folder: Path) -> dict[int, list[Path]]:
    """Tables of the first test images under each of CORRUPTED, by severity."""
    folder.mkdir(parents=True, exist_ok=True)
    tables: dict[int, list[Path]] = {}
    # Without names of classes, of which so few images may lack some, labels are indices.
    images = pq.read_table(test, columns=["image", "label"]).slice(0, NUM_CORRUPTED)
    pixels = torch.stack([_pixels(encoded) for encoded in images["image"].to_pylist()])
    for severity in SEVERITIES:
        for name in CORRUPTED:
            path = folder / f"{name}-{severity}.parquet"
            tables.setdefault(severity, []).append(path)
            if not path.exists():
                changed = corrupt(pixels, name, severity, seed=0)
                column = pa.array([_png(image) for image in changed])
                position = images.column_names.index("image")
                with replacing(path) as temporary:
                    pq.write_table(images.set_column(position, "image", column), temporary)
    return tables


def _pixels(encoded: bytes) -> torch.Tensor:
    image = Image.open(io.BytesIO(encoded)).convert("RGB")
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def _png(image: torch.Tensor) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(buffer, "png")
    return buffer.getvalue()


def paired(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """As `paired_difference`; the interval of one pair is 0."""
    if len(ours) == 1:
        return float(np.subtract(ours, theirs)[0]), 0.0
    return paired_difference(ours, theirs)


def _signed(found: Difference) -> str:
    return f"{found.measure.scale * found.mean:+.{found.measure.digits + 1}f}"


def _width(found: Difference) -> str:
    return f"{found.measure.scale * found.error:.{found.measure.digits + 1}f}"


def main() -> None:
    """Runs what is unfinished, then writes and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", choices=ID_COLUMNS, default=list(ID_COLUMNS))
    parser.add_argument("--seeds", type=int, default=3, help="runs of every method")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=num_workers(), help="number of parallel runs")
    parser.add_argument("--folder", type=Path, default=Path("runs/study-ablations"))
    arguments = parser.parse_args()
    studies = [run_study(name, arguments) for name in arguments.datasets]
    for file in studies[0]:
        rows = [row for study in studies for row in study[file]]
        write_rows(arguments.folder / f"{file}.csv", list(rows[0]), rows)
        for row in rows:
            print(" | ".join(row.values()))


if __name__ == "__main__":
    main()
