"""Score files in the formats of other tools, by the command that a person types."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]
Scored = tuple[Path, Done]


@pytest.mark.parametrize("name", ["csv", "jsonl", "cleanlab"])
def test_scores_become_a_file(
    difficulty: Command, scored: Scored, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "out.csv"

    done = difficulty("export", scored[0] / "scores.parquet", "--to", name, "--out", out)

    assert done.returncode == 0, done.stderr
    assert len(out.read_text().splitlines()) == 600 + (name != "jsonl")


@pytest.mark.slow
def test_scores_and_images_become_a_dataset_that_is_scored_again(
    difficulty: Command, scored: Scored, builtin: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip("datasets")
    out = tmp_path / "out"

    done = difficulty("export", scored[0] / "scores.parquet", "--to", "huggingface", "--out", out)
    again = difficulty(
        *("score", out, "--id-column", "sample_id", "--out", tmp_path / "again.parquet", *builtin)
    )

    assert done.returncode == 0, done.stderr
    assert "600 of 600 images are scored" in again.stdout


def test_the_command_says_how_label_studio_is_started(
    difficulty: Command, scored: Scored, photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"

    done = difficulty("export", scored[0] / "scores.parquet", "--to", "labelstudio", "--out", out)

    assert done.stderr == ""
    assert f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={photos.parent}\n" in done.stdout
    assert f"Local Files with the absolute local path {photos}: under Settings" in done.stdout
    assert len(json.loads((out / "tasks.json").read_text())) == 600


def test_what_is_tagged_in_cvat_is_dropped_and_relabelled(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    scores, out = scored[0] / "scores.parquet", tmp_path / "out"
    exported = difficulty("export", scores, "--to", "cvat", "--out", out)
    tasks = ET.parse(out / "annotations.xml")  # noqa: S314 - our own
    dropped, relabelled, *others = tasks.iter("image")
    dropped[0].set("label", "drop")
    relabelled[0].set("label", "new")
    for image in others:
        image.remove(image[0])
    tasks.write(tmp_path / "annotations.xml")

    done = difficulty(
        *("clean", scores, "--marks", tmp_path / "annotations.xml", "--new-classes"),
        *("--out", tmp_path / "cleaned.csv"),
    )

    assert f"the images of {out / 'images.zip'}" in exported.stdout
    assert done.returncode == 0, done.stderr
    assert "599 of 600 samples are kept, 1 of them with another label; 1 is dropped" in done.stdout
    assert "598 samples without a mark, because nobody annotated them" in done.stderr
    assert (tmp_path / "cleaned.csv").read_text().count('"new"') == 1


def test_options_of_images_are_refused_for_a_format_without_images(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    scores, out = scored[0] / "scores.parquet", tmp_path / "out.csv"

    done = difficulty("export", scores, "--to", "csv", "--out", out, "--id-column", "x")

    assert done.returncode == 2
    assert "csv has no images" in done.stderr


def test_an_upload_is_refused_for_a_format_that_is_not_of_the_hub(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    scores, out = scored[0] / "scores.parquet", tmp_path / "out"

    done = difficulty("export", scores, "--to", "fiftyone", "--out", out, "--push", "me/photos")

    assert done.returncode == 2
    assert "fiftyone is not uploaded, so --push would change nothing" in done.stderr
    assert not out.exists()


def test_an_export_replaces_neither_the_scores_nor_a_folder_in_use(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    scores = scored[0] / "scores.parquet"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()

    over = difficulty("export", scores, "--to", "cleanlab", "--out", scores)
    full = difficulty("export", scores, "--to", "fiftyone", "--out", tmp_path / "full")

    assert "would be overwritten" in over.stderr
    assert "exists and is not empty" in full.stderr
