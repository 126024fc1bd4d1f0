"""`difficulty missing`: objects without a box, from the command line."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.boxed_images import WRITERS, Scene, many_scenes, write_image

pytestmark = pytest.mark.analysis("missing_boxes")

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def scores(difficulty: Command, tmp_path: Path) -> Path:
    """The score file of boxes; an object of the fourth scene has none."""
    scenes = many_scenes(30)
    without = Scene(scenes[3].name, scenes[3].boxes[1:])
    folder = WRITERS["coco"](tmp_path / "fruit", [*scenes[:3], without, *scenes[4:]])
    write_image(next(folder.rglob("scene003.png")), scenes[3])
    out = tmp_path / "scores.parquet"
    scored = difficulty("score", folder, "--out", out, "--backbone", "builtin")
    assert scored.returncode == 0, scored.stderr
    return out


@pytest.mark.slow
def test_an_object_without_a_box_is_listed_first(
    difficulty: Command, scores: Path, tmp_path: Path
) -> None:
    out = tmp_path / "missing.jsonl"

    done = difficulty("missing", scores, "--out", out, "--count", 5)

    assert done.returncode == 0, done.stderr
    first, *others = map(json.loads, out.read_text().splitlines())
    assert first["image"] == "scene003.png"
    assert first["label"] == many_scenes(30)[3].boxes[0][0]
    assert len(others) == 4
    assert "in 30 of 30 images" in done.stdout
    assert "is no probability" in done.stdout


@pytest.mark.slow
def test_a_page_shows_each_region_and_programs_get_numbers(
    difficulty: Command, scores: Path, tmp_path: Path
) -> None:
    page = tmp_path / "missing.html"

    done = difficulty(
        *("missing", scores, "--out", tmp_path / "missing.csv", "--report", page),
        *("--count", 5, "--json"),
    )
    other = difficulty("missing", scores, "--out", tmp_path / "m.csv", "--report", "page.txt")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["regions"] == 5
    assert json.loads(done.stdout)["images"] == 30
    text = page.read_text()
    assert text.count("data:image/") == 5
    assert text.index("scene003.png") == text.index("scene0")
    assert other.returncode == 1
    assert ".html" in other.stderr


@pytest.mark.slow
def test_a_table_is_not_written_over_the_scores(difficulty: Command, scores: Path) -> None:
    before = scores.read_bytes()

    done = difficulty("missing", scores, "--out", scores)

    assert done.returncode == 2
    assert "would be overwritten" in done.stderr
    assert scores.read_bytes() == before


@pytest.mark.slow
def test_scores_without_features_are_refused(
    difficulty: Command, scores: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(scores.read_bytes())

    done = difficulty("missing", copy, "--out", tmp_path / "missing.csv")

    assert done.returncode == 1
    assert "no features beside it" in done.stderr
    assert not (tmp_path / "missing.csv").exists()
