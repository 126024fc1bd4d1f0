"""Writes the table of docs/imagenet.md about disk and hours, from measured rates.

Run: python docs/imagenet.py
"""

from pathlib import Path

from benchmarks.billion import CORES, ENCODERS, HOUR, Cluster, score_core_seconds
from docs.marked_parts import with_parts

PAGE = Path(__file__).with_name("imagenet.md")

IMAGES, CLASSES, GPUS = 1_281_167, 1000, 8
TRAIN_GIGABYTES, VALIDATION_GIGABYTES = 138, 6.3
"""Sizes of the archives as published, and of what is unpacked from them."""

RUNS = 5
"""Augmentation runs of the paper."""

SHARE, EPOCHS, SEEDS = 0.98, 90, 5
"""Of the recipe `sample_difficulty_imagenet`."""


def table() -> str:
    """What each step takes, in Markdown."""
    clip, cluster = ENCODERS[0], Cluster()
    rows = IMAGES * RUNS
    features = rows * (4 * clip.dim + cluster.row_bytes) / 1e9
    scored = score_core_seconds(rows, clip.dim, CLASSES) / CORES
    unpacked = f"{TRAIN_GIGABYTES + VALIDATION_GIGABYTES:.0f} GB"
    decoded = IMAGES * SHARE * EPOCHS / clip.extraction / GPUS / HOUR
    lines = [
        ("step", "how many", "disk", "time"),
        ("---",) * 4,
        ("archives", "", unpacked, ""),
        ("images", f"{IMAGES:,} and 50,000", unpacked, ""),
        (
            f"features of {clip.name}",
            f"{IMAGES:,} images, {RUNS} runs",
            f"{features:.0f} GB",
            f"{rows / clip.extraction / GPUS / 60:.0f} min",
        ),
        (
            "scores",
            f"{rows:,} rows of {clip.dim} numbers, {CLASSES:,} classes",
            f"{IMAGES * cluster.score_bytes / 1e9:.1f} GB",
            f"{scored / 60:.1f} min on {CORES} cores",
        ),
        ("a seed of training", f"{EPOCHS} epochs", "", f"at least {decoded:.1f} h"),
        ("both runs", f"{2 * SEEDS} seeds", "", f"at least {2 * SEEDS * decoded:.0f} h"),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page() -> str:
    """The page with the present numbers."""
    return with_parts(PAGE, "imagenet.py", {"imagenet": table()})


if __name__ == "__main__":
    PAGE.write_text(page())
