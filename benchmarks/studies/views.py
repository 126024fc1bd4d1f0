"""What several views of the same images say together about what people disagree on.

    python -m benchmarks.studies.views

A view is a backbone, the size of its images, and whether mirror images are averaged. Every view,
every pair and all three score the 10,000 test images of CIFAR-10, to which they are fitted, and
what people think is the entropy of about fifty votes for each. Beside them is EL2N, the peer that
agrees best with people in the evidence study; its scores of several views are averaged by rank,
since they are no densities. All files are in runs/evidence.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import entropy

from benchmarks.evidence.data import Study, extract, read_images, require_data
from benchmarks.evidence.measures import mean_of_ranks, rank_agreement
from benchmarks.evidence.peers import training_dynamics
from benchmarks.evidence.samples import Samples
from benchmarks.evidence.views import SEVERAL, SINGLE, View, name_of
from benchmarks.studies.cifar10 import shared_folder
from benchmarks.studies.consensus import columns_of, numbers, score_file
from difficulty_service.score_file import read_scores
from difficulty_service.scoring.consensus import consensus_of

SOURCE = "cifar10-test"
SCORES = ("rmd", "label_margin", "suspicion", "agree")

Numbers = NDArray[np.float64]


def el2n(study: Study, view: View, ids: Sequence[object]) -> Numbers:
    """EL2N of a linear probe on the features of a view, in the order of the ids."""
    images = read_images(study, SOURCE, view.backbone, flip=view.flip)
    samples = Samples(images.features, images.labels, int(images.labels.max()) + 1)
    scores = np.empty(len(ids))
    scores[images.positions] = training_dynamics(samples).scores["EL2N"]
    return scores


def print_row(name: str, columns: Sequence[Numbers], votes: Numbers) -> None:
    """Prints the rank correlation of each column with the votes, and its 95 % interval."""
    found = [rank_agreement(column, votes) for column in columns]
    cells = [f"{each['spearman']:.4f} ({each['low']:.3f} to {each['high']:.3f})" for each in found]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Extracts what is missing and prints a row for every view and every combination."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/evidence"))
    study = Study(parser.parse_args().folder, shared_folder())
    require_data(study)
    table = columns_of("test", ["human_counts"])
    ids, votes = table["index"], entropy(np.array(table["human_counts"]), axis=1)
    print(f"| views | {' | '.join(SCORES)} | EL2N |\n{'| --- ' * (len(SCORES) + 2)}|", flush=True)
    peers: dict[View, Numbers] = {}
    for view in SINGLE:
        extract(study, SOURCE, view.backbone, flip=view.flip)
        peers[view] = el2n(study, view, ids)
        store = study.store(SOURCE, view.backbone, flip=view.flip)
        file = read_scores(score_file(store, ["suspicion", "agree"]))
        columns = [numbers(file, score, ids) for score in SCORES]
        print_row(view.name, [*columns, peers[view]], votes)
    for views in SEVERAL:
        stores = [study.store(SOURCE, view.backbone, flip=view.flip) for view in views]
        file = consensus_of(stores)
        columns = [numbers(file, score, ids) for score in SCORES]
        columns.append(mean_of_ranks([peers[view] for view in views]))
        print_row(name_of(views), columns, votes)


if __name__ == "__main__":
    main()
