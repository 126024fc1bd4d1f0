"""How many labels are wrong, by the command that a person types."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]
Scored = tuple[Path, Done]


@pytest.mark.slow
def test_without_marks_only_the_share_of_flips_that_are_found_is_told(
    difficulty: Command, scored: Scored
) -> None:
    done = difficulty("estimate", scored[0] / "scores.features")

    assert done.returncode == 0, done.stderr
    assert re.search(r"of labels flipped at random, \d+% have a margin above 0", done.stdout)
    assert "only a person can tell" in done.stdout
    assert "labels are wrong (95 %)" not in done.stdout


def test_with_marks_the_number_of_wrong_labels_is_told(difficulty: Command, tmp_path: Path) -> None:
    generator, labels = np.random.default_rng(0), np.arange(600) % 3
    features = generator.standard_normal((600, 16)) + 4 * np.eye(3, 16)[labels]
    ids = np.array([f"photo {row}" for row in range(600)])
    given = np.where(np.arange(600) % 10, labels, (labels + 1) % 3)
    np.savez(tmp_path / "vectors.npz", features=features, labels=given, ids=ids)
    lines = [f"photo {row},{'keep' if row % 10 else 'relabel'},0" for row in range(200)]
    (tmp_path / "marks.csv").write_text("\n".join(["sample_id,mark,label", *lines, "x,keep,"]))

    done = difficulty(
        *("estimate", tmp_path / "vectors.npz", "--marks", tmp_path / "marks.csv"),
        *("--repeats", 1, "--shrinkage", "ledoit-wolf"),
    )

    assert done.returncode == 0, done.stderr
    assert re.search(r"at least [\d,]+ labels are wrong, if the marked ones", done.stdout)
    assert "1 marked samples have no features or no margin" in done.stderr
