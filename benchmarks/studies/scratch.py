"""Does knowing the difficulty help a network that is trained from scratch on CIFAR-10?

A small residual network, 30 epochs, with difficulty from the built-in encoder and from
MobileNetV2. Every constant is chosen by the NLL of 5,000 held-out training images, with the first
seed; the table shows the test images. All files are in runs/study-scratch, and a study that was
stopped resumes.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.real_data import skipped
from benchmarks.studies.cifar10 import Cifar10, prepare
from benchmarks.studies.tables import print_searches, print_test_table, validation_nll
from benchmarks.studies.trials import Search, Study, Trial, run_trials, search_all
from difficulty_service.base.threads import num_workers

WIDTHS = ("model.widths=[32, 64, 128, 256]", "model.blocks=[1, 1, 1, 2]")
"""2.4 million parameters, most of them where the image is 2x2 and costs least."""

CONSTANT = (0.032, 0.1, 0.32)
WEIGHTED = (0.1, 0.32, 1.0)


def fixed_trials() -> list[Trial]:
    """Methods with the constants of their papers."""
    return [
        Trial("cross-entropy", ()),
        Trial("FLSD-53", ("loss.name=flsd_53",)),
        Trial("BSCE-GRA", ("loss.name=bsce_gra",)),
        Trial("AdaFocal", ("loss.name=adafocal",)),
    ]


def searches(data: Cifar10) -> list[Search]:
    """Methods whose alpha is searched."""
    alpha = "regulariser.alpha"
    return [
        Search("constant entropy", (), alpha, CONSTANT, refine=False),
        *(
            Search(
                f"difficulty-weighted, {name}",
                ("regulariser.weights=scores", f"regulariser.scores={scores}"),
                alpha,
                WEIGHTED,
                refine=False,
            )
            for name, scores in data.scores.items()
        ),
    ]


def main() -> None:
    """Runs the unfinished trials, then prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2, help="runs of every method")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=num_workers(), help="number of parallel runs")
    parser.add_argument("--folder", type=Path, default=Path("runs/study-scratch"))
    arguments = parser.parse_args()
    data = prepare(Path("runs/cifar10"))
    if data is None:
        sys.exit(skipped("CIFAR-10"))
    settings = (
        f"data.train={data.train}",
        f"data.test={data.test}",
        "data.id_column=index",
        "data.label_column=label",
        f"training.epochs={arguments.epochs}",
        *WIDTHS,
    )
    study = Study("cifar10_small_resnet", settings, arguments.folder, arguments.jobs)
    seeds = range(arguments.seeds)
    results = search_all(study, searches(data), seeds[:1], validation_nll)
    trials = [*fixed_trials(), *(each.best for each in results)]
    run_trials(study, trials, seeds)
    print_test_table(study, trials)
    print_searches(results)


if __name__ == "__main__":
    main()
