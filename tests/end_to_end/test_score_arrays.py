"""`difficulty score` takes features that other programs saved."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import difficulty_service as ds

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    labels = np.arange(300) % 3
    features = np.random.default_rng(0).standard_normal((300, 6)) + np.eye(3, 6)[labels]
    features[7] = np.nan
    np.savez(tmp_path / "features.npz", features=features, labels=labels)
    return tmp_path / "features.npz"


def test_the_command_gives_the_scores_of_python(difficulty: Command, saved: Path) -> None:
    out = saved.with_name("scores.parquet")

    done = difficulty("score", saved, "--out", out)

    assert done.returncode == 0
    assert "their features hold NaN or infinity: 1 of 300" in done.stderr
    assert "299 of 299 images are scored" in done.stdout
    with np.load(saved) as arrays, pytest.warns(UserWarning, match="1 of 300"):
        scores = ds.score(arrays["features"], arrays["labels"])
    assert ds.open_scores(out).table == scores.table


def test_options_without_effect_are_refused(
    difficulty: Command, saved: Path, few_photos: Path
) -> None:
    out = saved.with_name("scores.parquet")

    extraction = difficulty("score", saved, "--out", out, "--backbone", "builtin")
    labels = difficulty("score", few_photos, "--out", out, "--labels", saved)

    assert extraction.returncode == labels.returncode == 2
    assert "--backbone would change nothing" in extraction.stderr
    assert "--labels needs a file of features" in " ".join(labels.stderr.split())


def test_missing_labels_name_the_option(difficulty: Command, saved: Path) -> None:
    np.save(saved.with_name("alone.npy"), np.zeros((3, 2)))

    done = difficulty("score", saved.with_name("alone.npy"), "--out", saved.with_name("s.parquet"))

    assert done.returncode == 1
    assert "name their file as --labels" in done.stderr
