"""ResNet-34 on all 50,000 training images of CIFAR-10, on one GPU: the papers' network and data.

    python -m benchmarks.studies.resnet34 [--epochs 20] [--jobs 6]

Cross-entropy, entropy regularisation with the same weight for every sample, regularisation weighted
by difficulty (Cui et al. 2023), correctness ranking, BSCE-GRA and AdaFocal, by the recipe
`cifar10_resnet34_gpu`: one cycle of the learning rate in bfloat16, a tenth of the images held out
for the temperature. The papers train for 200 to 350 epochs. Runs share the GPU, `--jobs` at a time.
Difficulty is that of the bundled encoder. All files are in runs/study-resnet34, and a study that
was stopped resumes.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.real_data import shared_folder, skipped
from benchmarks.studies.cifar10 import run_difficulty
from benchmarks.studies.losses import DIFFICULTY, print_differences
from benchmarks.studies.tables import print_test_table
from benchmarks.studies.trials import Study, Trial, run_trials

PLAIN = ("regulariser.weights=constant", "regulariser.alpha=0")


def trials(scores: Path) -> tuple[Trial, ...]:
    """The methods of the comparison, each with the constants of its paper."""
    return (
        Trial("cross-entropy", PLAIN),
        Trial("constant entropy", ("regulariser.weights=constant",)),
        Trial(DIFFICULTY, (f"regulariser.scores={scores}",)),
        Trial("CRL", (*PLAIN, "loss.name=correctness_ranking")),
        Trial("BSCE-GRA", (*PLAIN, "loss.name=bsce_gra")),
        Trial("AdaFocal", (*PLAIN, "loss.name=adafocal")),
    )


def main() -> None:
    """Runs what is unfinished, then prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="runs of every method")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=6, help="number of parallel runs")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folder", type=Path, default=Path("runs/study-resnet34"))
    arguments = parser.parse_args()
    train = str(shared_folder() / "data/cifar10_train_*.parquet")
    test = shared_folder() / "data/cifar10_test.parquet"
    if not test.exists():
        sys.exit(skipped("CIFAR-10"))
    scores = arguments.folder / "scores.parquet"
    if not scores.exists():
        columns = ("--id-column", "index", "--label-column", "label")
        run_difficulty("score", train, *columns, "--backbone", "builtin", "--out", scores)
    settings = (
        f"data.train={train}",
        f"data.test={test}",
        "data.label_column=label",
        "data.id_column=index",
        f"training.epochs={arguments.epochs}",
        f"training.checkpoint_every={arguments.epochs}",
    )
    runs = arguments.folder / "runs"
    study = Study("cifar10_resnet34_gpu", settings, runs, arguments.jobs, arguments.device)
    chosen = trials(scores.resolve())
    run_trials(study, chosen, range(arguments.seeds))
    print_test_table(study, chosen)
    print_differences(study, chosen, range(arguments.seeds))


if __name__ == "__main__":
    main()
