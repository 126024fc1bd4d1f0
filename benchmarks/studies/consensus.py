"""What two backbones find together, compared with what each finds alone.

    python -m benchmarks.studies.consensus

The backbones are the built-in encoder and MobileNetV2 with ImageNet weights, for images of 128
pixels. Wrong labels are those of CIFAR-10N among the 50,000 training images; what people disagree
on is the entropy of the votes for the 10,000 test images. All files are in runs/evidence.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
from numpy.typing import NDArray
from scipy.stats import entropy

from benchmarks.evidence.data import BACKBONES, SOURCES, Study, extract, require_data
from benchmarks.studies.cifar10 import shared_folder, with_labels
from difficulty_service.audit.agreement import flag_agreement, rank_agreement
from difficulty_service.feature_store.store import open_store
from difficulty_service.pipeline import ScoreRequest, score_features
from difficulty_service.score_file import ScoreFile, read_scores
from difficulty_service.scoring.consensus import consensus_of


def columns_of(split: str, names: Sequence[str]) -> dict[str, list[object]]:
    """Columns of the tables of a split, and its ids as text under "index"."""
    files = sorted((shared_folder() / "data").glob(SOURCES[f"cifar10-{split}"].tables))
    columns: dict[str, list[object]] = (
        ds.dataset(files).to_table(columns=["index", *names]).to_pydict()
    )
    return columns | {"index": [str(each) for each in columns["index"]]}


def score_file(store: Path, scorers: Sequence[str]) -> Path:
    """The file of the scores of a store, which is made where it is missing."""
    out = store.with_name(f"{store.name}-{'-'.join(scorers)}.parquet")
    if not out.exists():
        score_features(open_store(store), ScoreRequest(out, scorers))
    return out


def judged(stores: Sequence[Path], scorers: Sequence[str]) -> Mapping[str, ScoreFile]:
    """Every backbone alone, and both ways to combine them."""
    files = [score_file(store, scorers) for store in stores]
    return {
        **{name: read_scores(file) for name, file in zip(BACKBONES, files, strict=True)},
        "mean ranks": consensus_of(files),
        "mean log-densities": consensus_of(stores),
    }


def numbers(file: ScoreFile, column: str, ids: Sequence[object]) -> NDArray[np.float64]:
    """A column in the order of some ids."""
    values = dict(zip(file.table["sample_id"].to_pylist(), file.table[column], strict=True))
    return np.array([values[each].as_py() for each in ids])


def wrong_labels(folder: Path, stores: Sequence[Path], column: str) -> None:
    """Prints the AUROC of the wrong labels of one column."""
    table = columns_of("train", ["label", column])
    ids, labels = table["index"], table[column]
    given = dict(zip(ids, labels, strict=True))
    wrong = np.array(labels) != np.array(table["label"])
    noisy = [
        with_labels(store, given, column, folder / f"{column}-{store.name}") for store in stores
    ]
    for name, file in judged(noisy, ["suspicion"]).items():
        found = [
            flag_agreement(numbers(file, score, ids), wrong).auroc
            for score in ("rmd", "label_margin", "suspicion")
        ]
        print(f"| {column} | {name} | {' | '.join(f'{each:.4f}' for each in found)} |", flush=True)


def people(stores: Sequence[Path]) -> None:
    """Prints the rank correlation with the entropy of the votes of people."""
    table = columns_of("test", ["human_counts"])
    votes = entropy(np.array(table["human_counts"]), axis=1)
    for name, file in judged(stores, ["agree"]).items():
        found = [
            rank_agreement(numbers(file, score, table["index"]), votes).spearman
            for score in ("rmd", "label_margin", "agree")
        ]
        print(f"| people | {name} | {' | '.join(f'{each:.4f}' for each in found)} |", flush=True)


def main() -> None:
    """Extracts what is missing and prints a row for each set of labels and each way to score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/evidence"))
    study = Study(parser.parse_args().folder, shared_folder())
    require_data(study)
    stores = {}
    for source in ("cifar10-test", "cifar10-train"):
        for backbone in BACKBONES:
            extract(study, source, backbone)
        stores[source] = [study.store(source, backbone) for backbone in BACKBONES]
    people(stores["cifar10-test"])
    for column in ("noisy_worst", "noisy_aggre", "noisy_rand1"):
        wrong_labels(study.folder, stores["cifar10-train"], column)


if __name__ == "__main__":
    main()
