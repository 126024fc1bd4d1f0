"""Does knowing the difficulty help a probe on cached features, with clean and with wrong labels?

One hidden layer on the built-in encoder's features of CIFAR-10, trained with the official labels
and with two sets of human labels (CIFAR-10N: 9 % and 40 % of them wrong), evaluated on the clean
test images. Every free constant is chosen by the NLL of 5,000 held-out training images with their
official labels, which stand in for a small set of verified labels. All files are in
runs/study-quick, among them probes.csv with the tables, and a study that was stopped resumes.
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.real_data import skipped
from benchmarks.studies.cifar10 import LABELS, Cifar10, official_labels, prepare, relabelled
from benchmarks.studies.tables import (
    print_searches,
    print_test_table,
    table_rows,
    validation_nll_with,
)
from benchmarks.studies.trials import Search, Study, Trial, run_trials, search_all
from difficulty_service.base.files import replacing
from difficulty_service.base.threads import num_workers

FIXED = [
    Trial("cross-entropy", ()),
    Trial("FL-3", ("loss.name=focal", "loss.gamma=3.0")),
    Trial("FLSD-53", ("loss.name=flsd_53",)),
    Trial("AdaFocal", ("loss.name=adafocal",)),
]

KINDS = {"label": "official", "noisy_aggre": "aggregated", "noisy_worst": "worst"}
"""Names of the labels in the CSV file."""

ALPHA = "regulariser.alpha"
ALPHAS = (0.032, 0.1, 0.32, 1.0)
LEAST_ALPHA = 0.003

LOSSES = [
    Search(
        "label smoothing",
        ("loss.name=label_smoothing",),
        "loss.smoothing",
        (0.025, 0.05, 0.1, 0.2),
        least=0.003,
        most=0.8,
        factor=2,
    ),
    Search(
        "dual focal",
        ("loss.name=dual_focal",),
        "loss.gamma",
        (1.25, 2.5, 5.0),
        least=0.01,
        factor=2,
    ),
    Search(
        "BSCE-GRA", ("loss.name=bsce_gra",), "loss.gamma", (1.0, 2.0, 4.0), least=0.01, factor=2
    ),
    Search(
        "MMCE, weighted",
        ("loss.name=mmce_weighted", "loss.normalisation=paper"),
        "loss.coefficient",
        (0.32, 1.0, 3.2),
        least=0.003,
    ),
    Search(
        "CRL",
        ("loss.name=correctness_ranking",),
        "loss.coefficient",
        (0.1, 0.32, 1.0),
        least=0.003,
    ),
    Search(
        "L1 of logits",
        ("loss.name=logit_l1",),
        "loss.coefficient",
        (0.001, 0.0032, 0.01),
        least=1e-5,
    ),
    Search("constant entropy", (), ALPHA, ALPHAS, least=LEAST_ALPHA),
]

FORMS = {
    "min-max": ("regulariser.normalise=minmax",),
    "min-max, T 0.2": ("regulariser.normalise=minmax", "regulariser.score_temperature=0.2"),
    "per dimension": ("regulariser.normalise=per_dimension",),
    "z-score": ("regulariser.normalise=zscore",),
    "z-score, T 5": ("regulariser.normalise=zscore", "regulariser.score_temperature=5.0"),
    "none": ("regulariser.normalise=none",),
}
"""Ways from scores to weights."""


def weighted(scores: Path, backbone: str, forms: Sequence[str]) -> list[Search]:
    """The difficulty-weighted entropy term in several forms."""
    return [
        Search(
            f"difficulty ({backbone}, {form})",
            ("regulariser.weights=scores", f"regulariser.scores={scores}", *FORMS[form]),
            ALPHA,
            ALPHAS,
            least=LEAST_ALPHA,
            most=1000,
        )
        for form in forms
    ]


def study_labels(column: str, data: Cifar10, arguments: argparse.Namespace) -> list[dict[str, str]]:
    """Runs the study for one set of labels, prints its tables and returns their rows."""
    stores, scores = relabelled(data, column)
    settings = (
        f"data.train={stores['builtin']}",
        f"data.test={data.test_features}",
        "model.hidden=[256]",
        f"training.epochs={arguments.epochs}",
        "training.batch_size=512",
        "optimiser.learning_rate=2e-3",
    )
    study = Study("probe_quick", settings, arguments.folder / column, arguments.jobs)
    seeds, criterion = range(arguments.seeds), validation_nll_with(official_labels(data))
    searches = [
        *LOSSES,
        *weighted(scores["builtin"], "builtin", list(FORMS)),
        *weighted(scores["MobileNetV2"], "MobileNetV2", ["min-max", "per dimension"]),
    ]
    results = search_all(study, searches, seeds[:1], criterion)
    trials = [*FIXED, *(each.best for each in results)]
    run_trials(study, trials, seeds)
    print(f"## Trained with {LABELS[column]}\n")
    print_test_table(study, trials)
    print_searches(results)
    return [{"labels": KINDS[column], **row} for row in table_rows(study, trials, results)]


def main() -> None:
    """Runs the unfinished trials, then prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="runs of every method")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=num_workers(), help="number of parallel runs")
    parser.add_argument("--folder", type=Path, default=Path("runs/study-quick"))
    parser.add_argument("--labels", choices=LABELS, nargs="+", default=list(LABELS))
    arguments = parser.parse_args()
    data = prepare(Path("runs/cifar10"))
    if data is None:
        sys.exit(skipped("CIFAR-10"))
    rows = [row for column in arguments.labels for row in study_labels(column, data, arguments)]
    with (
        replacing(arguments.folder / "probes.csv") as temporary,
        temporary.open("w", newline="") as file,
    ):
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
