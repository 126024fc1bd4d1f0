"""What a probe gains where wrong labels are dropped, relabelled, softened or count for less.

    python -m benchmarks.studies.doubted_labels

One hidden layer on the built-in encoder's features of CIFAR-10, trained with two sets of human
labels (CIFAR-10N: 9 % and 40 % of them wrong) and evaluated on the clean test images. Nothing is
tuned.
All files are in runs/study-doubted, and a study that was stopped resumes.
"""

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import torch
from torch import Tensor

from benchmarks.studies.cifar10 import LABELS, Cifar10, prepare, relabelled
from benchmarks.studies.tables import print_test_table
from benchmarks.studies.trials import Study, Trial, run_trials
from difficulty_service.feature_store.part import Part
from difficulty_service.feature_store.store import create_store, open_store
from difficulty_service.score_file import read_scores

ALPHA = 0.2
"""Strength of the entropy term."""


def suspicion_of(store: Path, column: str) -> Path:
    """The score file of a store with suspicion, which is written where it is missing."""
    out = store.with_name(f"{column}.parquet")
    if not out.exists():
        command = Path(sys.executable).with_name("difficulty")
        words = [command, "score", store, "--scorers", "suspicion", "--out", out]
        subprocess.run(words, check=True)  # noqa: S603 - our own command
    return out


def clean(source: Path, scores: Path, target: Path, *, drop: bool) -> Path:
    """A copy of a store where suspicion above 0 is dropped, or gets the suspected label."""
    if target.exists():
        return target
    store = open_store(source)
    table = read_scores(scores, ["sample_id", "suspicion", "suspected_label"]).table
    doubted = table.filter(pc.greater(table["suspicion"], 0))
    suspected = dict(
        zip(doubted["sample_id"].to_pylist(), doubted["suspected_label"].to_pylist(), strict=True)
    )
    copy = create_store(target, store.description)
    for shard in copy.missing_parts():
        part = store.read_part(shard)
        kept = torch.tensor([each not in suspected for each in part.sample_ids])
        labels = torch.tensor(
            [
                suspected.get(each, label)
                for each, label in zip(part.sample_ids, part.labels.tolist(), strict=True)
            ]
        )
        part = _rows(part, kept) if drop else replace(part, labels=labels)
        copy.write_part(shard, part, [])
    return target


def _rows(part: Part, kept: Tensor) -> Part:
    """Some rows of a part."""
    ids = [each for each, keep in zip(part.sample_ids, kept.tolist(), strict=True) if keep]
    return Part(ids, part.labels[kept], part.runs[kept], part.features[kept])


def trials_of(column: str, data: Cifar10) -> list[Trial]:
    """Every way to act on suspicion, for a column of labels."""
    store = relabelled(data, column)[0]["builtin"]
    scores = suspicion_of(store, column)
    given, by = f"data.train={store}", f"loss.scores={scores}"
    weighted = (given, "loss.weights=label_probability", by)
    entropy = ("regulariser.weights=scores", f"regulariser.scores={scores}")
    dropped, corrected = (
        clean(store, scores, store.with_name(f"{name}-{column}.features"), drop=name == "dropped")
        for name in ("dropped", "relabelled")
    )
    return [
        Trial("as given", (given,)),
        Trial("dropped", (f"data.train={dropped}",)),
        Trial("relabelled", (f"data.train={corrected}",)),
        Trial("two labels", (given, "loss.targets=posterior", by)),
        Trial("weighted", weighted),
        Trial("weighted, entropy", (*weighted, *entropy, f"regulariser.alpha={ALPHA}")),
    ]


def main() -> None:
    """Runs the unfinished trials, then prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="runs of every method")
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel runs")
    parser.add_argument("--folder", type=Path, default=Path("runs/study-doubted"))
    arguments = parser.parse_args()
    data = prepare(Path("runs/cifar10"), ["builtin"])
    if data is None:
        sys.exit("skipped: CIFAR-10 is not in DIFFICULTY_SHARED (default ../shared)")
    settings = (
        f"data.test={data.test_features}",
        "training.batch_size=512",
        "optimiser.learning_rate=2e-3",
    )
    study = Study("probe_quick", settings, arguments.folder, arguments.jobs)
    official = Trial("official labels", (f"data.train={data.features['builtin']}",))
    for column in ("noisy_worst", "noisy_aggre"):
        trials = [*trials_of(column, data), official]
        run_trials(study, trials, range(arguments.seeds))
        print(f"## Trained with {LABELS[column]}\n")
        print_test_table(study, trials)


if __name__ == "__main__":
    main()
