"""What `difficulty score` says of a dataset before it reads an image."""

from pathlib import Path

import pytest

from difficulty_service.cli.score_report import report_dataset
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from tests.factories import write_image_folder


def test_a_single_folder_is_one_class_or_with_the_option_that_is_named_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(write_image_folder(tmp_path / "photos", ("2024",), 3))

    report_dataset(open_dataset(folder, DatasetOptions()))
    as_class = " ".join(capsys.readouterr().err.split())
    report_dataset(open_dataset(folder, DatasetOptions(unlabelled=True)))
    as_none = capsys.readouterr().err

    assert "warning: all images have one class, '2024'" in as_class
    assert "if it is no class, --unlabelled ignores it" in as_class
    assert as_none == "found 3 images without labels\n"
