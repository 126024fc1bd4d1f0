"""Paths that cannot become a file are refused with one that can."""

from pathlib import Path

import pytest

from difficulty_service.base.errors import ScoreFileError
from difficulty_service.base.files import require_output_file

ENDINGS = (".parquet", ".csv")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "scores.txt",
            r"ends in '\.txt', expected is \.parquet, \.csv; use out='.*scores\.parquet'",
        ),
        ("scores", r"has no ending, .*use out='.*scores\.parquet'"),
        ("folder", "is a folder; name a file in it: out='.*/folder/NAME.parquet'"),
        ("file.txt/deep/scores.csv", r"file\.txt is a file, so .* use another out"),
    ],
)
def test_a_path_that_cannot_be_written_is_named_with_a_remedy(
    tmp_path: Path, name: str, problem: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.txt").touch()

    with pytest.raises(ScoreFileError, match=problem) as raised:
        require_output_file(tmp_path / name, ENDINGS, ScoreFileError)

    assert raised.value.parameter == "out"


@pytest.mark.parametrize("name", ["scores.csv", "SCORES.CSV", "new/deep/scores.parquet"])
def test_a_path_that_can_be_written_is_accepted(tmp_path: Path, name: str) -> None:
    require_output_file(tmp_path / name, ENDINGS, ScoreFileError)


def test_no_ending_is_accepted_where_it_is_among_the_endings(tmp_path: Path) -> None:
    require_output_file(tmp_path / "gaussians", (".safetensors", ""), ScoreFileError)

    with pytest.raises(ScoreFileError, match=r"expected is \.safetensors;"):
        require_output_file(tmp_path / "gaussians.npz", (".safetensors", ""), ScoreFileError)
