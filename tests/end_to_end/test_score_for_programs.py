"""`difficulty score` in scripts: one JSON object, silence, and limits that end in an error."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
import torch
from PIL import Image

from difficulty_service.cli.score_result import KINDS, Limit, ScoreResult
from difficulty_service.cli.wrong_call import WrongCall
from difficulty_service.scores.file import read_scores
from docs.score_result import PAGE, page
from tests.factories import store_of

pytestmark = pytest.mark.analysis("leaks", "versions", "selection", "missing_boxes", "backbones")

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]
Scored = tuple[Path, Done]


def test_the_keys_on_the_page_are_those_of_the_models() -> None:
    assert PAGE.read_text() == page(), "run: python docs/score_result.py"


def test_standard_output_is_one_object_that_says_what_the_file_says(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    (few_photos / "cat" / "broken.png").write_bytes(b"no image")
    shutil.copy(next((few_photos / "bird").iterdir()), few_photos / "bird" / "copy.png")
    scores, report = tmp_path / "scores.parquet", tmp_path / "page.html"

    done = difficulty(
        *("score", few_photos, "--out", scores, *network, "--shrinkage", "oas"),
        *("--report", report, "--json"),
    )

    assert done.returncode == 0, done.stderr
    assert "found " in done.stderr  # what goes on is still said
    found = ScoreResult.model_validate_json(done.stdout)
    assert json.loads(done.stdout)["version"] == 1
    table = read_scores(scores, ["rmd", "p_wrong", "suspicion", "label_margin"]).table
    assert (found.scores, found.report) == (str(scores), str(report))
    assert report.is_file()
    assert (found.samples, found.scored) == (len(table), len(table) - table["rmd"].null_count)
    assert (found.skipped, found.exact_copies, found.near_copies) == (1, 1, None)
    assert found.skipped_file is not None
    assert Path(found.skipped_file).is_file()
    assert found.labels is not None
    assert found.labels.probably_wrong == pc.sum(pc.greater(table["p_wrong"], 0.5)).as_py()
    assert [row["rmd"] for row in found.hardest][:1] == [pc.max(table["rmd"]).as_py()]
    labels = found.labels
    assert labels.probably_wrong + labels.between_two_classes + labels.fit == found.scored


def test_a_quiet_command_prints_warnings_and_nothing_else(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    (few_photos / "cat" / "broken.png").write_bytes(b"no image")

    done = difficulty(
        *("score", few_photos, "--out", tmp_path / "scores.parquet", *network, "--quiet"),
        *("--shrinkage", "oas"),
    )

    assert (done.returncode, done.stdout) == (0, "")
    assert "1 image could not be read" in done.stderr
    assert "listing" not in done.stderr
    assert "features" not in done.stderr.replace("scores.features", "")


@pytest.mark.slow
def test_the_next_command_of_the_process_prints_again(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    command = ("score", scored[0] / "scores.features", "--out", tmp_path / "scores.parquet")

    quiet, usual = difficulty(*command, "--quiet"), difficulty(*command)

    assert quiet.stdout == ""
    assert "are scored in" in usual.stdout


def test_more_than_the_limit_ends_with_a_code_of_its_own_after_all_is_written(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    shutil.copy(next((few_photos / "bird").iterdir()), few_photos / "bird" / "copy.png")
    scores = tmp_path / "scores.parquet"
    command = ("score", few_photos, "--out", scores, *network, "--shrinkage", "oas", "--json")

    above = difficulty(
        *(*command, "--fail-above", "exact copies: 0", "--fail-above", "exact copies:0.001 %"),
    )
    below = difficulty(*command, "--fail-above", "exact copies: 1", "--fail-above", "skipped: 0")

    assert above.returncode == 3
    assert (
        "error: exact copies: 1 image, above the limit of 0; "
        "exact copies: 1 image, above the limit of 0.001 %"
    ) in above.stderr
    assert ScoreResult.model_validate_json(above.stdout).exact_copies == 1
    assert scores.is_file()
    assert below.returncode == 0, below.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fail-above", "wrong: 1"), "no kind 'wrong'"),
        (("--fail-above", "exact copy: 1"), "did you mean 'exact copies'?"),
        (("--fail-above", "skipped"), "'' is neither a whole number"),
        (("--fail-above", "skipped: -1"), "'-1' is neither a whole number"),
        (("--fail-above", "skipped: 101%"), "'101%' is neither a whole number"),
        (("--fail-above", "skipped: 1"), "needs a dataset instead of its features"),
        (("--fail-above", "near copies: 1"), "needs --near-duplicates"),
        (
            ("--fail-above", "between two classes: 1", "--scorers", "rmd"),
            "needs suspicion among --scorers",
        ),
        (("--verbose", "--json"), "--verbose prints more"),
        (("--verbose", "--quiet"), "--verbose prints more"),
    ],
)
def test_an_option_that_could_have_no_effect_is_refused_before_anything_is_scored(
    difficulty: Command, scored: Scored, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    scores = tmp_path / "scores.parquet"

    done = difficulty("score", scored[0] / "scores.features", "--out", scores, *options)

    assert done.returncode == 2
    assert message in done.stderr
    assert not scores.exists()


def test_faults_of_images_have_limits_of_their_own_and_one_in_all(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    for name in ("cat/003.png", "bird/001.png"):
        Image.new("RGB", (30, 24), "red" if name[0] == "b" else "blue").save(few_photos / name)

    above = difficulty(
        *("score", few_photos, "--out", tmp_path / "scores.parquet", *network, "--json"),
        *("--shrinkage", "oas", "--fail-above", "image faults: 1", "--fail-above", "one colour: 1"),
    )
    faults = ScoreResult.model_validate_json(above.stdout).image_faults or {}
    total = sum(faults.values())
    below = difficulty(
        *("score", tmp_path / "scores.features", "--out", tmp_path / "again.parquet", "--quiet"),
        *("--fail-above", f"image faults: {total}", "--fail-above", "overexposed: 0"),
    )

    assert above.returncode == 3
    assert faults["one colour"] == 2
    assert (
        f"image faults: {total} images, above the limit of 1; "
        "one colour: 2 images, above the limit of 1"
    ) in above.stderr
    assert below.returncode == 0, below.stderr


@pytest.mark.parametrize("kind", ["image faults", "blurred"])
def test_a_limit_on_faults_where_they_cannot_be_found_says_why(
    difficulty: Command, tmp_path: Path, kind: str
) -> None:
    features = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    store_of(tmp_path / "features", features, torch.arange(60) % 3)
    np.save(tmp_path / "features.npy", features.numpy())
    np.save(tmp_path / "labels.npy", np.arange(60) % 3)
    scores, limit = tmp_path / "scores.parquet", ("--fail-above", f"{kind}: 0")

    texts = difficulty("score", tmp_path, "--out", scores, "--modality", "text", *limit)
    store = difficulty("score", tmp_path / "features", "--out", scores, *limit)
    array = difficulty("score", tmp_path / "features.npy", "--out", scores, *limit)

    assert (texts.returncode, store.returncode, array.returncode) == (2, 2, 2)
    assert f"--fail-above '{kind}' needs images, and these are texts" in texts.stderr
    for refused in (store, array):
        assert f"--fail-above '{kind}': the features do not tell how images look" in refused.stderr
    assert not scores.exists()


@pytest.mark.slow
def test_given_gaussians_know_no_wrong_labels(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    features, gaussians = scored[0] / "scores.features", tmp_path / "gaussians.safetensors"
    difficulty("fit", features, "--out", gaussians)

    done = difficulty(
        *("score", features, "--out", tmp_path / "scores.parquet", "--gaussians", gaussians),
        *("--fail-above", "probably wrong: 0"),
    )

    assert done.returncode == 2
    assert "needs a fit to the labels, so no --gaussians" in done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_is_a_number_or_a_percentage_of_the_samples(kind: str) -> None:
    assert Limit.parse(f"{kind}: 12") == Limit(kind, 12, is_percentage=False)
    assert Limit.parse(f" {kind} :2.5%") == Limit(kind, 2.5, is_percentage=True)
    with pytest.raises(WrongCall, match="neither a whole number"):
        Limit.parse(f"{kind}: 2.5")


def test_the_commands_for_continuous_integration_on_the_page_run(
    difficulty: Command,
    few_photos: Path,
    tmp_path: Path,
    network: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few_photos.rename(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    folded = re.findall(r">-\n((?: +(?:difficulty|--).*\n)+)", PAGE.read_text())
    assert len(folded) == 2

    for text in folded:
        words = shlex.split(" ".join(text.partition(" > ")[0].split()))[1:]
        done = difficulty(*words, *network, "--shrinkage", "oas")

        assert done.returncode == 0, done.stderr
