"""Faults of images from the pixels to the commands that read the score file."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
import torch
from PIL import Image

from difficulty_service.scores.file import read_scores
from tests.factories import store_of

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("options", [("--preprocess", "exact"), ("--augment-runs", 2)])
def test_faults_are_counted_written_and_dropped(
    difficulty: Command,
    few_photos: Path,
    tmp_path: Path,
    network: tuple[str, ...],
    options: tuple[object, ...],
) -> None:
    generator = np.random.default_rng(0)
    for path in few_photos.glob("*/*.png"):
        Image.fromarray(generator.integers(0, 255, (24, 30, 3), np.uint8)).save(path)
    dark, plain = few_photos / "cat" / "003.png", few_photos / "bird" / "001.png"
    Image.fromarray(generator.integers(0, 60, (24, 30, 3), np.uint8)).save(dark)
    Image.new("RGB", (30, 24), "red").save(plain)
    scores, cleaned = tmp_path / "scores.parquet", tmp_path / "cleaned.csv"

    done = difficulty(
        "score", few_photos, "--out", scores, *network, "--shrinkage", "oas", *options
    )
    report = difficulty("report", scores, "--out", tmp_path / "page.html")
    dropped = difficulty(
        "clean", scores, "--drop", "image_fault in ('dark', 'blurred')", "--out", cleaned
    )

    assert done.returncode == 0, done.stderr
    assert "2 of them have a fault: one colour 1, dark 1 (column image_fault)" in done.stdout
    table = read_scores(scores, ["sample_id", "image_fault"]).table.to_pylist()
    found = {row["sample_id"]: row["image_fault"] for row in table if row["image_fault"]}
    assert found == {"cat/003.png": "dark", "bird/001.png": "one colour"}
    assert report.returncode == 0, report.stderr
    page = (tmp_path / "page.html").read_text()
    assert "dark 1, one colour 1" in page
    assert dropped.returncode == 0, dropped.stderr
    left = pyarrow.csv.read_csv(tmp_path / "cleaned.dropped.csv")
    assert left["sample_id"].to_pylist() == ["cat/003.png"]


def test_scores_without_faults_say_how_to_have_them(difficulty: Command, tmp_path: Path) -> None:
    features = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    store_of(tmp_path / "features", features, torch.arange(60) % 3)
    scores = tmp_path / "scores.parquet"

    done = difficulty("score", tmp_path / "features", "--out", scores)
    refused = difficulty(
        "clean", scores, "--drop", "image_fault == 'dark'", "--out", tmp_path / "c.csv"
    )

    assert done.returncode == 0, done.stderr
    assert "a fault" not in done.stdout
    assert refused.returncode == 1
    assert "extract the features of images again with --no-resume" in refused.stderr
