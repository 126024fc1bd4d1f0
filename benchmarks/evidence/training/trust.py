"""Training that weighs or softens each label by how far it is trusted, told in several ways.

    python -m benchmarks.evidence.training.trust [--folder runs/evidence] [--seeds 3]

Writes `trust.csv`: accuracy, adaptive ECE, NLL and AUROC of errors on test images with official
labels, as means and standard deviations over seeds, of the networks of the study, trained on
9,000 images of CIFAR-10 under labels that people gave, 9 % and 40 % of them wrong. Only the trust
differs, as the weight of a sample and as the share of its label in a soft target: the same for all
labels, 1 - `p_wrong`, the probability of the label by the features alone, and the mean of both,
which the trainer takes.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.evidence.data import Study, extract, require_data
from benchmarks.evidence.label_sets import TEST_SET
from benchmarks.evidence.page import DOCS, TABLES
from benchmarks.evidence.tables import Row, write_rows
from benchmarks.evidence.training.answers import NETWORKS
from benchmarks.evidence.training.cells import train_once
from benchmarks.evidence.training.comparison import MEASURES, mean_and_deviation
from benchmarks.evidence.training.data import SOURCE, Splits, prepare_splits, scores_file
from benchmarks.evidence.training.methods import BY_POSTERIOR, BY_PROBABILITY, PLAIN, Method
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder
from difficulty_service.scores.file import read_scores, write_scores
from difficulty_service.scores.score_columns import LIKELIEST_CLASSES
from trainer.weights.label_trust import probability_of_label

KINDS = ("aggre", "worst")
NUM_CLASSES = 10
RAW = [measure for measure in MEASURES if measure.stage == "raw"]
COLUMNS = (
    *("network", "labels", "use", "trust", "seeds"),
    *(f"{measure.metric}{ending}" for measure in RAW for ending in ("", "_sd")),
    "machine",
)

Wrong = Callable[[pa.Table], NDArray[np.float64]]


def by_p_wrong(table: pa.Table) -> NDArray[np.float64]:
    """What the noise of the labels says."""
    return np.asarray(table["p_wrong"].to_numpy(), np.float64)


def by_features(table: pa.Table) -> NDArray[np.float64]:
    """What the features alone say."""
    return 1 - probability_of_label(table, NUM_CLASSES)


USES = {"weights": BY_PROBABILITY, "soft targets": BY_POSTERIOR}
"""What is done with the trust, by the settings that ask for it."""

EQUAL = "equal"
TRUST: dict[str, Wrong] = {
    "1 - p_wrong": by_p_wrong,
    "features alone": by_features,
    "mean of both": lambda table: (by_p_wrong(table) + by_features(table)) / 2,
}


def with_wrong(wrong: Wrong, scores: Path, out: Path) -> None:
    """Scores whose `p_wrong` is another one, and which say nothing else of the classes."""
    known = read_scores(scores)
    names = [*LIKELIEST_CLASSES, *LIKELIEST_CLASSES.values()]
    values = pa.array(wrong(known.table), known.table["p_wrong"].type)
    place = known.table.column_names.index("p_wrong")
    table = known.table.set_column(place, "p_wrong", values).drop_columns(names)
    write_scores(out, table, known.provenance)


def rows(study: Study, seeds: int) -> Iterator[Row]:
    """A row for each network, set of labels, use of the trust and way to tell it."""
    told = [(use, trust) for use in USES for trust in TRUST]
    for network, name in NETWORKS.items():
        for kind in KINDS:
            for use, trust in [("", EQUAL), *told]:
                with TemporaryDirectory() as folder:
                    method = PLAIN
                    if use:
                        changed = Path(folder) / "scores.parquet"
                        with_wrong(TRUST[trust], scores_file(study, kind), changed)
                        method = Method(trust, USES[use], change=_with_scores(changed))
                    runs = {
                        seed: dict(train_once(study, network, kind, method, None, seed).values)
                        for seed in range(seeds)
                    }
                row = {"network": name, "labels": kind, "use": use, "trust": trust}
                row["seeds"] = str(seeds)
                for measure in RAW:
                    mean, deviation = mean_and_deviation(runs, measure)
                    row[measure.metric] = f"{mean:.4f}"
                    row[f"{measure.metric}_sd"] = f"{deviation:.4f}"
                print(row, flush=True)
                yield row | {"machine": machine()}


def _with_scores(path: Path) -> Callable[[Splits], Splits]:
    return lambda splits: replace(splits, scores=path)


def main() -> None:
    """Trains the networks and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    study = Study(arguments.folder, shared_folder())
    require_data(study)
    for source in (SOURCE, TEST_SET.source):
        extract(study, source, "builtin")
    prepare_splits(study)
    table = list(rows(study, arguments.seeds))
    write_rows(DOCS / TABLES / "trust.csv", COLUMNS, table)


if __name__ == "__main__":
    main()
