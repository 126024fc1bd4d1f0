"""`difficulty score` without --backbone does the best it can, and its next steps can be taken."""

import shlex
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import difficulty_service as ds
from difficulty_service.scores.file import read_scores

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No weights are cached, and none can be downloaded."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_without_network_the_defaults_score_with_the_built_in_network_and_say_so(
    difficulty: Command, few_photos: Path, tmp_path: Path
) -> None:
    done = difficulty("score", few_photos, "--out", tmp_path / "scores.parquet")

    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: the wei")]
    assert len(warnings) == 1
    assert "clip-vit-b16" in warnings[0]
    provenance = read_scores(tmp_path / "scores.parquet").provenance
    assert provenance.backbone == "builtin"
    assert provenance.image_sizes is not None
    assert provenance.image_sizes.num_images == 20
    median = f"is {provenance.image_sizes.median_side:g}"
    assert f"less than 64 pixels: the median shorter side of 20 images {median}" in warnings[0]


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_without_network_python_scores_as_the_command_does_and_warns(
    difficulty: Command, few_photos: Path, tmp_path: Path
) -> None:
    done = difficulty("score", few_photos, "--out", tmp_path / "scores.parquet")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores = ds.score_dataset(few_photos, progress=False)

    assert done.returncode == 0, done.stderr
    why = [str(each.message) for each in caught if "of clip-vit-b16 are miss" in str(each.message)]
    assert ["using the bundled builtin instead" in sentence for sentence in why] == [True]
    assert scores.to_arrow()["rmd"] == read_scores(tmp_path / "scores.parquet").table["rmd"]


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    "named", [("--backbone", "clip-vit-b16"), ("--features", "projected")], ids=" ".join
)
def test_without_network_a_choice_that_needs_weights_is_an_error(
    difficulty: Command, few_photos: Path, tmp_path: Path, named: tuple[str, str]
) -> None:
    done = difficulty("score", few_photos, "--out", tmp_path / "scores.parquet", *named)

    assert done.returncode == 1
    assert "--backbone builtin" in done.stderr


@pytest.mark.usefixtures("offline")
def test_without_network_names_of_classes_lead_to_no_network_that_knows_none(
    difficulty: Command, few_photos: Path, tmp_path: Path
) -> None:
    command = ("score", few_photos, "--unlabelled", "--out", tmp_path / "scores.parquet")

    done = difficulty(*command, "--classes", "cat,dog")

    assert done.returncode == 1
    assert "the weights of clip-vit-b16 are missing" in done.stderr
    assert "--backbone builtin" not in done.stderr
    assert done.stderr.endswith("as --weights, or have classes found by --clusters auto\n")


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_the_default_backbone_is_that_of_the_given_gaussians(
    difficulty: Command,
    scored: tuple[Path, subprocess.CompletedProcess[str]],
    photos: Path,
    tmp_path: Path,
    builtin: tuple[str, ...],
) -> None:
    difficulty("fit", scored[0] / "scores.features", "--out", tmp_path / "gaussians.safetensors")
    options = dict(zip(builtin[::2], builtin[1::2], strict=True))
    del options["--backbone"]

    done = difficulty(
        *("score", photos, "--out", tmp_path / "scores.parquet", "--limit", 20),
        *("--gaussians", tmp_path / "gaussians.safetensors"),
        *(word for option in options.items() for word in option),
    )

    assert done.returncode == 0, done.stderr
    assert "warning: the weights" not in done.stderr


def test_the_marks_of_few_images_are_applied_by_the_step_that_is_printed(
    difficulty: Command, scored: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    folder, done = scored
    command = next(line for line in done.stdout.splitlines() if "difficulty clean" in line)
    names = read_scores(folder / "scores.parquet").table["sample_id"].to_pylist()
    (tmp_path / "marks.csv").write_text(f"sample_id,mark,label\n{names[0]},drop,\n")
    words = [
        str(tmp_path / word) if word in {"marks.csv", "cleaned.parquet"} else word
        for word in shlex.split(command)
    ]

    applied = difficulty(*words[1:])

    assert applied.returncode == 0, applied.stderr
    assert "1 is dropped" in applied.stdout
    assert pq.read_metadata(tmp_path / "cleaned.parquet").num_rows == len(names) - 1
