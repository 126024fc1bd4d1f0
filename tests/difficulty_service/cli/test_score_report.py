"""What `difficulty score` says of a dataset before it reads an image, and what to do at the end."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from difficulty_service.cli.score_report import print_next_steps, report_dataset
from tests.dataset_files import dataset_of
from tests.factories import write_image_folder


def test_a_single_folder_is_one_class_or_with_the_option_that_is_named_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(write_image_folder(tmp_path / "photos", ("2024",), 3))

    report_dataset(dataset_of(folder))
    as_class = " ".join(capsys.readouterr().err.split())
    report_dataset(dataset_of(folder, unlabelled=True))
    as_none = capsys.readouterr().err

    assert "warning: all images have one class, '2024'" in as_class
    assert "if it is no class, --unlabelled ignores it" in as_class
    assert as_none == "found 3 images without labels\n"


def test_files_that_are_no_images_by_their_names_are_counted_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_image_folder(tmp_path / "photos", ("cat", "dog"), 3)
    for name in ("cat/notes.txt", "dog/notes.txt", "dog/list"):
        (folder / name).write_text("of the images")

    report_dataset(dataset_of(folder))

    said = " ".join(capsys.readouterr().err.split())
    assert said == (
        "found 6 images of 2 classes, 3 in each, and 3 files that are no images by their names"
    )


@pytest.mark.parametrize("number", [9_999, 10_000])
def test_of_many_samples_too_it_is_said_how_marks_come_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    summary: Any = SimpleNamespace(
        evidence="label_margin",
        doubtful=pa.table({"label_margin": [3.0, 2.0]}),
        labels=None,
        noun="image",
        num_compared=number,
        num_samples=number,
    )

    print_next_steps(summary, tmp_path / "scores.parquet")

    said = " ".join(capsys.readouterr().out.split())
    assert "--marks marks.csv --out cleaned.parquet" in said
    assert ("--drop 'label_margin > 2'" in said) == (number == 10_000)
