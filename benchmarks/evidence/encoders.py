"""Whether the likelihood of the given labels chooses the encoder that finds most wrong ones.

    python -m benchmarks.evidence.encoders [--folder runs/evidence] [--size 2000]

Writes two tables of the evidence, and its page anew. `encoders.csv` has, for each set of labels and
each encoder, what `difficulty backbones --try` says of it, nats per label and how many fewer these
are than with the likeliest encoder, beside the AUROC of `rmd` for wrong labels. `scalings.csv` has
the same for four lengths of the features: as they are, that of their distance from the mean to the
power of a half, and unit length around the mean or the origin. A ridge is added where `difficulty
score` adds one. What was computed is kept in the folder.
"""

import argparse
import csv
import subprocess
import sys
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

import difficulty_service as ds
from benchmarks.evidence import data
from benchmarks.evidence.cells import Cell, Result, fill, read_arrays, read_result
from benchmarks.evidence.data import Images, Study, read_images, require_data
from benchmarks.evidence.label_sets import LabelSet, label_samples
from benchmarks.evidence.measures import auroc_with_error
from benchmarks.evidence.page import DOCS, TABLES, write_page
from benchmarks.evidence.page_of_encoders import AS_THEY_ARE, UNIT
from benchmarks.evidence.tables import Row, write_rows
from benchmarks.real_data import shared_folder
from difficulty_service.analyses.backbones.label_likelihood import (
    log_probabilities,
    paired_difference,
)
from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.weights_files import BUILTIN_WEIGHTS
from difficulty_service.base.files import replacing
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.plan import Plan
from difficulty_service.features.store import open_store
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.gaussian import fit_gaussians
from difficulty_service.gaussians.moments import compute_moments
from difficulty_service.gaussians.ridge import LabelledRows, likeliest_ridge, needs_ridge
from difficulty_service.scorers.mahalanobis import relative_mahalanobis
from difficulty_service.scoring.pipeline import execute

SIZE = 2_000
MOST_SAMPLES = 5_000
"""Samples by which the likelihood is measured."""

NOISE_ON_WEIGHTS = {"builtin, noise 0.5": 0.5, "builtin, noise 1": 1.0}
"""Encoders that were made worse: noise on each weight, in standard deviations of its tensor."""

ENCODERS = ("builtin", *NOISE_ON_WEIGHTS, "MobileNetV2", data.LARGE_MOBILENET, "builtin-photos")
PHOTOS = "photographs"
MOVED = LabelSet(PHOTOS, "moved")
WHOLE = LabelSet("cifar10-train", "worst"), LabelSet("cifar10-train", "aggre")
"""Labels of all 50,000 images, which need no ridge; encoded by the built-in encoder alone."""

SETS = {
    LabelSet("cifar10-train", "aggre"): ("CIFAR-10N", "aggre"),
    LabelSet("cifar10-train", "worst"): ("CIFAR-10N", "worst"),
    LabelSet("cifar100-test", "symmetric", 0.1): ("CIFAR-100", "symmetric 10 %"),
    LabelSet("cifar100-test", "class-dependent", 0.1): ("CIFAR-100", "class-dependent 10 %"),
    LabelSet("tiny-imagenet", "symmetric", 0.1): ("Tiny ImageNet", "symmetric 10 %"),
    MOVED: ("folder of photographs", "40 moved"),
}
"""Names of datasets and labels."""

HALF, ORIGIN = "half a power", "unit length around the origin"
SCALINGS = (AS_THEY_ARE, HALF, UNIT, ORIGIN)
ENCODER_COLUMNS = (
    *("dataset", "labels", "features", "samples", "wrong", "nats", "below_best", "below_best_95"),
    *("rmd_auroc", "rmd_auroc_95", "machine"),
)
SCALING_COLUMNS = ("dataset", "labels", "features", "samples", "scaling", "nats", "rmd_auroc")


def noisy_weights(folder: Path, strength: float) -> Path:
    """A file with the weights of the built-in encoder, and noise on them."""
    file = folder / f"builtin-noise-{strength:g}.safetensors"
    if not file.exists():
        generator = torch.Generator().manual_seed(0)
        tensors = {
            name: each + strength * each.std() * torch.randn(each.shape, generator=generator)
            if each.ndim > 1
            else each
            for name, each in load_file(BUILTIN_WEIGHTS).items()
        }
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(file) as temporary:
            save_file(tensors, temporary)
    return file


def photographs(study: Study) -> Path:
    """A folder of photographs with moved labels, as the real data make it."""
    folder = study.folder / "messy"
    if not (folder / "moved.csv").exists():
        tool = study.shared / "tools/messy_folder.py"
        command = [sys.executable, str(tool), str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - its own tool
    return folder


def place_of(study: Study, source: str) -> tuple[str, DatasetOptions]:
    """Where the images of a source are, and how they are read."""
    if source == PHOTOS:
        return str(photographs(study) / "photos"), DatasetOptions()
    tables = data.SOURCES[source]
    reading = DatasetOptions(id_column=tables.id_column, label_column="label", limit=study.limit)
    return str(study.shared / "data" / tables.tables), reading


def moved_photographs(study: Study) -> dict[str, str]:
    """The class that each photograph had before it was moved, by its id."""
    with (photographs(study) / "moved.csv").open(newline="", encoding="utf-8") as lines:
        return {row["path"]: row["true"] for row in csv.DictReader(lines)}


def read_photographs(folder: Path) -> tuple[list[str], Tensor, Tensor]:
    """Ids, features (samples, dim) and labels (samples,) of photographs, of a feature store."""
    store = open_store(folder)
    shards = [store.read_shard(shard) for shard in range(store.num_shards)]
    ids = [sample_id for each in shards for sample_id in each.sample_ids]
    features, labels = (
        torch.cat([getattr(each, name) for each in shards]) for name in ("features", "labels")
    )
    return ids, features.float(), labels.long()


def extract(study: Study, source: str, encoder: str) -> None:
    """Extracts the features that are missing."""
    strength = NOISE_ON_WEIGHTS.get(encoder)
    if source != PHOTOS and strength is None:
        data.extract(study, source, encoder)
        return
    location, reading = place_of(study, source)
    weights = str(study.weights) if encoder.startswith("MobileNet") else None
    if strength is not None:
        weights = str(noisy_weights(study.folder, strength))
    plan = Plan(
        location,
        study.store(source, encoder),
        data.NAMES.get(encoder, "builtin"),
        reading,
        BackboneOptions(weights),
    )
    load = data.load_mobilenet if encoder == "MobileNetV2" else load_backbone
    print(f"features of {source} by {encoder}", flush=True)
    execute(plan, dataset=open_dataset(location, reading), load=load)


@dataclass(frozen=True)
class Labelled:
    """Samples with given labels.

    Attributes:
        features: float32. Shape (samples, dim).
        labels: Shape (samples,).
        wrong: Whether the given label is known to be wrong. Shape (samples,).
    """

    features: Tensor
    labels: Tensor
    wrong: NDArray[np.bool_]


def read(study: Study, labels: LabelSet, encoder: str) -> Labelled:
    """Features of the samples of a set of labels."""
    if labels == MOVED:
        ids, features, given = read_photographs(study.store(PHOTOS, encoder))
        moved = moved_photographs(study)
        return Labelled(features, given, np.array([sample_id in moved for sample_id in ids]))
    images: Images = read_images(study, labels.source, encoder)
    samples, targets = label_samples(study, images, labels)
    return Labelled(
        torch.from_numpy(samples.features), torch.from_numpy(samples.labels), targets.wrong
    )


def scaled(features: Tensor, scaling: str) -> Tensor:
    """Features around their mean after a scaling. Shape (samples, dim), float64."""
    rows = features.double()
    if scaling == ORIGIN:
        rows = rows / rows.norm(dim=1, keepdim=True)
    offsets = rows - rows.mean(dim=0)
    power = {UNIT: 1.0, HALF: 0.5}.get(scaling, 0.0)
    return offsets / offsets.norm(dim=1, keepdim=True).pow(power)


def of_scaling(samples: Labelled, scaling: str) -> dict[str, float]:
    """Likelihood of the labels and AUROC of `rmd` with scaled features."""
    rows, labels = scaled(samples.features, scaling), samples.labels
    classes = int(labels.max()) + 1
    moments = compute_moments(
        rows, labels, rows.new_zeros(rows.shape[1]), classes, matmul_dtype=torch.float64
    )
    step = max(1, len(rows) // MOST_SAMPLES)
    choice = likeliest_ridge(LabelledRows(rows[::step], labels[::step]), moments)
    options = FitOptions(matmul_dtype="float64")
    ridge = choice.ridge if needs_ridge(moments, options) else 0.0
    scorer = relative_mahalanobis(fit_gaussians(moments, options, ridge=ridge))
    return {"nats": choice.likelihood, "auroc": auroc(scorer.rmd(rows, labels), samples)[0]}


def auroc(scores: Tensor, samples: Labelled) -> tuple[float, float]:
    """AUROC for the wrong labels with its half-width; what has no score is not suspected."""
    values = scores.numpy().astype(np.float64)
    return auroc_with_error(np.nan_to_num(values, nan=np.nanmin(values)), samples.wrong)


def encoder_cell(study: Study, labels: LabelSet, encoder: str) -> Result:
    """What an encoder makes of a set of labels."""
    samples = read(study, labels, encoder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what a reader of a file should know
        scores = ds.score(samples.features, samples.labels, scorers=("rmd",))
    found, half_width = auroc(torch.from_numpy(scores["rmd"].to_numpy()), samples)
    return Result(
        {
            "samples": len(samples.labels),
            "wrong": int(samples.wrong.sum()),
            "auroc": found,
            "auroc_95": half_width,
            "scalings": {each: of_scaling(samples, each) for each in SCALINGS},
        },
        {"log_probabilities": log_probabilities(samples.features, samples.labels).numpy()},
    )


def whole_cell(study: Study, labels: LabelSet) -> Result:
    """What scaling makes of all images of a set of labels."""
    samples = read(study, labels, "builtin")
    scalings = {each: of_scaling(samples, each) for each in SCALINGS}
    return Result({"samples": len(samples.labels), "scalings": scalings})


def cell_name(labels: LabelSet, encoder: str) -> str:
    """Name of the cell of an encoder."""
    return f"encoders/{labels.name}/{encoder}"


def encoder_rows(folder: Path) -> list[Row]:
    """Rows of `encoders.csv`: the encoders of each set, the likeliest first."""
    rows: list[Row] = []
    for labels, (dataset, name) in SETS.items():
        values = {each: read_result(folder, cell_name(labels, each)) for each in ENCODERS}
        found = {
            each: torch.from_numpy(
                read_arrays(folder, cell_name(labels, each))["log_probabilities"]
            )
            for each in ENCODERS
        }
        known = ~torch.stack(list(found.values())).isnan().any(dim=0)
        found = {each: value[known] for each, value in found.items()}
        order = sorted(ENCODERS, key=lambda each: float(found[each].mean()), reverse=True)
        for encoder in order:
            below = paired_difference(found[order[0]], found[encoder])
            cell = values[encoder] or {}
            rows.append(
                {
                    "dataset": dataset,
                    "labels": name,
                    "features": encoder,
                    "samples": str(cell["samples"]),
                    "wrong": str(cell["wrong"]),
                    "nats": f"{float(found[encoder].mean()):.3f}",
                    "below_best": f"{below.mean:.3f}",
                    "below_best_95": f"{below.half_width:.3f}",
                    "rmd_auroc": f"{cell['auroc']:.4f}",
                    "rmd_auroc_95": f"{cell['auroc_95']:.4f}",
                    "machine": cell["machine"],
                }
            )
    return rows


def scaling_rows(folder: Path, whole: Path) -> list[Row]:
    """Rows of `scalings.csv`."""
    cells = [
        (SETS[labels], encoder, read_result(folder, cell_name(labels, encoder)))
        for labels in SETS
        for encoder in ENCODERS
    ]
    cells += [(SETS[each], "builtin", read_result(whole, cell_name(each, "all"))) for each in WHOLE]
    return [
        {
            "dataset": dataset,
            "labels": name,
            "features": encoder,
            "scaling": scaling,
            "samples": str(cell["samples"]),
            "nats": f"{found['nats']:.4f}",
            "rmd_auroc": f"{found['auroc']:.4f}",
        }
        for (dataset, name), encoder, cell in cells
        if cell is not None
        for scaling, found in cell["scalings"].items()
    ]


def run(study: Study, whole: Study, jobs: int) -> list[str]:
    """Extracts what is missing and fills all cells; the names of those that failed."""
    for encoder in ENCODERS:
        for source in dict.fromkeys(labels.source for labels in SETS):
            extract(study, source, encoder)
    cells = [
        Cell(cell_name(labels, each), partial(encoder_cell, study, labels, each))
        for labels in SETS
        for each in ENCODERS
    ]
    failed = fill(study.folder, cells, jobs)
    data.extract(whole, WHOLE[0].source, "builtin")
    cells = [Cell(cell_name(each, "all"), partial(whole_cell, whole, each)) for each in WHOLE]
    return failed + fill(whole.folder, cells, jobs)


def main() -> None:
    """Fills the missing cells, then writes the tables and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--size", type=int, default=SIZE, help="images of each set")
    parser.add_argument("--jobs", type=int, default=1, help="parallel processes; 0 for a debugger")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the page")
    arguments = parser.parse_args()
    shared = shared_folder()
    study = Study(arguments.folder / f"encoders-{arguments.size}", shared, arguments.size)
    require_data(study)
    whole = Study(arguments.folder, shared)
    if failed := run(study, whole, arguments.jobs):
        sys.exit(f"{len(failed)} cells failed: {', '.join(failed)}")
    tables = arguments.docs / TABLES
    write_rows(tables / "encoders.csv", ENCODER_COLUMNS, encoder_rows(study.folder))
    write_rows(tables / "scalings.csv", SCALING_COLUMNS, scaling_rows(study.folder, whole.folder))
    write_page(arguments.docs)


if __name__ == "__main__":
    main()
