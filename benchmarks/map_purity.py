"""How well a map keeps images of one class together: t-SNE beside two discriminants.

    python -m benchmarks.map_purity DATASET [--id-column COLUMN] [--scores FILE]

The dataset is scored with the built-in network, or the score file is taken, with its features
beside it. The purity is the mean share of the 15 nearest neighbours of a point that are of its
class. Up to 20,000 images, as on the map.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

import difficulty_service as ds
from benchmarks.machine import machine
from difficulty_service.features.store import open_store
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.reports.map import draw_map, place_samples, placed_map, tsne_input
from difficulty_service.reports.similar import map_vectors, write_vectors
from difficulty_service.reports.tsne import embed
from difficulty_service.scores.file import read_scores
from difficulty_service.scores.samples import to_samples
from difficulty_service.scoring.fit_store import fit_store

NEIGHBOURS = 15


def purity(positions: NDArray[np.floating], labels: NDArray[np.int64]) -> float:
    """Mean share of the nearest neighbours that have the label of their point."""
    _, nearest = cKDTree(positions).query(positions, NEIGHBOURS + 1)
    return float((labels[nearest[:, 1:]] == labels[:, None]).mean())


def measure(scores: Path, folder: Path) -> None:
    """Prints the purity of each map, and what it takes."""
    samples = to_samples(read_scores(scores))
    store = open_store(scores.with_suffix(".features"))
    gaussians = fit_store(store, FitOptions("auto", "auto")).gaussians
    placed = place_samples(store, gaussians)
    if placed is None:
        raise SystemExit("no map can be drawn: it needs three classes and ten images")
    plane = placed_map(placed, samples)
    print(f"two discriminants: {purity(plane.positions, samples.labels[plane.rows]):.3f}")
    path = folder / "vectors.npy"
    write_vectors(path, store, gaussians, len(samples), samples.ids)
    given = tsne_input(map_vectors(path), len(np.unique(samples.labels)))
    if given is None:
        raise SystemExit("no t-SNE can be made")
    rows, places = given
    labels = samples.labels[rows]
    print(f"all {places.shape[1]} directions between classes: {purity(places, labels):.3f}")
    start = time.process_time()
    embedded = embed(places)
    spent = time.process_time() - start
    print(f"t-SNE of the explorer: {purity(embedded, labels):.3f}, {spent:.0f} core-seconds")
    reported = draw_map(samples, store)
    if reported is not None:
        mixed = purity(reported.positions, samples.labels[reported.rows])
        print(f"map of the report ({reported.method}): {mixed:.3f}")


def main() -> None:
    """Measures the maps of a dataset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", nargs="?")
    parser.add_argument("--id-column")
    parser.add_argument("--scores", type=Path)
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as place:
        scores = options.scores
        if scores is None:
            scores = Path(place, "scores.parquet")
            column = options.id_column
            ds.score_dataset(
                options.dataset, out=scores, id_column=column, backbone="builtin", progress=False
            )
        measure(scores, Path(place))


if __name__ == "__main__":
    main()
