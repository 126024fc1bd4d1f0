"""How well wrong labels of texts are found by `suspicion`, beside cleanlab on the same features.

    python -m benchmarks.studies.newsgroups NEWSGROUPS.parquet VERIFIED.parquet [BACKBONE]

The first file has the texts of 20 Newsgroups with the columns split, label, text and
cleanlab_test_index; the second the labels of its test set that five people checked, which cleanlab
published: dataset, test_index and verified_error. One label in ten of the training texts is made
wrong at random; the labels of the test texts are as published.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from cleanlab.rank import get_label_quality_scores
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

import difficulty_service as ds
from benchmarks.evidence.probes import cross_validated, standardise
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.plan import Plan
from difficulty_service.features.store import open_store
from difficulty_service.scoring.pipeline import execute

PLANTED, SEED = 0.1, 0


def encode(table: str, split: str, backbone: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features and labels of the texts of a split, in the order of the table."""
    with tempfile.TemporaryDirectory() as folder:
        reading = DatasetOptions(split=split, text_column="text", label_column="label")
        execute(Plan(table, Path(folder, "features"), backbone, reading))
        store = open_store(Path(folder, "features"))
        shards = [store.open_shard(each) for each in range(store.num_shards)]
        return (
            np.concatenate([each.features().numpy() for each in shards]),
            np.concatenate([each.labels.numpy() for each in shards]),
        )


def report(
    what: str, features: NDArray[np.float32], labels: NDArray[np.int64], wrong: NDArray[np.bool_]
) -> None:
    """Prints a line for each score: its AUROC and average precision for the wrong labels."""
    scores = ds.score(features, labels, scorers=["rmd", "suspicion"]).table
    found = {name: scores[name].to_numpy() for name in ("suspicion", "label_margin", "rmd")}
    given = torch.from_numpy(labels)
    probabilities, penalty = cross_validated(standardise(features), given, int(labels.max()) + 1)
    accuracy = (probabilities.argmax(dim=1) == given).double().mean()
    for method in ("self_confidence", "normalized_margin"):
        quality = get_label_quality_scores(labels, probabilities.numpy(), method=method)
        found[f"cleanlab {method}"] = -quality
    print(f"{what}: {wrong.sum():,} of {len(wrong):,}; probe {accuracy:.3f}, penalty {penalty:g}")
    for name, values in found.items():
        auroc, precision = roc_auc_score(wrong, values), average_precision_score(wrong, values)
        print(f"  {name:28} AUROC {auroc:.4f}  average precision {precision:.4f}", flush=True)


def plant(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The labels with some of them moved to another class at random."""
    random = np.random.default_rng(SEED)
    chosen = random.choice(len(labels), round(PLANTED * len(labels)), replace=False)
    planted = labels.copy()
    classes = int(labels.max()) + 1
    planted[chosen] = (labels[chosen] + random.integers(1, classes, len(chosen))) % classes
    return planted


def main(table: str, verified: str, backbone: str = "builtin-text") -> None:
    """Prints how well the planted and the published wrong labels are found."""
    rows = pq.read_table(table, columns=["split", "cleanlab_test_index"])
    places = rows.filter(pc.equal(rows["split"], "test"))["cleanlab_test_index"]
    checked = pq.read_table(verified)
    known = checked.filter(
        pc.and_(pc.equal(checked["dataset"], "20news"), checked["verified_error"])
    )["test_index"]
    wrong = pc.is_in(places.cast(pa.int64()), value_set=known.cast(pa.int64()).combine_chunks())
    features, labels = encode(table, "test", backbone)
    report("known", features, labels, np.asarray(wrong))
    features, labels = encode(table, "train", backbone)
    planted = plant(labels)
    report("planted", features, planted, planted != labels)


if __name__ == "__main__":
    main(*sys.argv[1:])
