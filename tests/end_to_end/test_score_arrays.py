"""`difficulty score` takes features that other programs saved."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import difficulty_service as ds
from difficulty_service.scores.file import read_scores

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    labels = np.arange(300) % 3
    features = np.random.default_rng(0).standard_normal((300, 6)) + 2 * np.eye(3, 6)[labels]
    features[7] = np.nan
    np.savez(tmp_path / "features.npz", features=features, labels=labels)
    return tmp_path / "features.npz"


def test_the_command_gives_the_scores_of_python(difficulty: Command, saved: Path) -> None:
    out = saved.with_name("scores.parquet")

    done = difficulty("score", saved, "--out", out)

    assert done.returncode == 0
    assert "their features hold NaN or infinity: 1 of 300" in done.stderr
    assert "299 of 299 samples are scored" in done.stdout
    with np.load(saved) as arrays, pytest.warns(UserWarning, match="1 of 300"):
        scores = ds.score(arrays["features"], arrays["labels"])
    assert ds.open_scores(out).table == scores.table


def test_what_is_said_of_features_is_said_of_samples(difficulty: Command, saved: Path) -> None:
    page = saved.with_name("report.html")

    done = difficulty("score", saved, "--out", saved.with_name("s.parquet"), "--report", page)

    said = re.sub(r"(?s)<(style|script)\b.*?</\1>|<[^>]+>", " ", page.read_text())
    assert not re.findall(r"\bimages?\b(?! DATASET|=DATASET)", done.stdout + done.stderr + said)
    assert "299 samples" in said
    assert "1 unreadable" in said
    assert "Odd samples, whatever their class." in said


def test_options_without_effect_are_refused(
    difficulty: Command, saved: Path, few_photos: Path
) -> None:
    out = saved.with_name("scores.parquet")

    extraction = difficulty("score", saved, "--out", out, "--backbone", "builtin")
    labels = difficulty("score", few_photos, "--out", out, "--labels", saved)

    assert extraction.returncode == labels.returncode == 2
    assert "--backbone would change nothing" in extraction.stderr
    assert "--labels needs a file of features" in " ".join(labels.stderr.split())


def test_a_device_for_features_that_are_there_is_used_or_refused(
    difficulty: Command, saved: Path
) -> None:
    usual, other = saved.with_name("usual.parquet"), saved.with_name("other.parquet")

    assert difficulty("score", saved, "--out", usual).returncode == 0
    assert difficulty("score", saved, "--out", other, "--device", "cpu").returncode == 0
    refused = difficulty("score", saved, "--out", other, "--device", "cuda:99")

    assert read_scores(usual).table.equals(read_scores(other).table)
    assert refused.returncode == 1
    assert "device 'cuda:99' cannot be used here" in " ".join(refused.stderr.split())


def test_missing_labels_name_the_option(difficulty: Command, saved: Path) -> None:
    np.save(saved.with_name("alone.npy"), np.zeros((3, 2)))

    done = difficulty("score", saved.with_name("alone.npy"), "--out", saved.with_name("s.parquet"))

    assert done.returncode == 1
    assert "name their file as --labels" in done.stderr


@pytest.mark.parametrize("command", ["fit", "estimate"])
def test_features_in_a_file_are_fitted_and_estimated_like_a_folder_of_them(
    difficulty: Command, tmp_path: Path, command: str
) -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 300)
    features = generator.standard_normal((300, 8)) + 3 * np.eye(3, 8)[labels]
    np.savez(tmp_path / "arrays.npz", features=features, labels=labels)
    options = ("--out", tmp_path / "gaussians.safetensors") if command == "fit" else ()

    done = difficulty(command, tmp_path / "arrays.npz", *options)

    assert done.returncode == 0, done.stderr


def test_another_file_is_refused_by_name(difficulty: Command, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no features")

    done = difficulty("fit", tmp_path / "notes.txt", "--out", tmp_path / "gaussians.safetensors")

    assert done.returncode == 1
    assert "notes.txt is not a feature store" in done.stderr


def test_a_file_of_arrays_of_images_names_the_line_that_scores_them(
    tmp_path: Path, difficulty: Command
) -> None:
    np.savez(tmp_path / "d.npz", images=np.zeros((4, 4, 4, 3), np.uint8), labels=np.arange(4))

    done = difficulty("score", tmp_path / "d.npz", "--out", tmp_path / "scores.parquet")

    assert done.returncode == 1
    assert "`difficulty_service.score_dataset(images, labels)`" in done.stderr
