"""What the command says of calls and data that cannot work, and what its help promises."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from difficulty_service.base.errors import DatasetError, StatisticsError
from difficulty_service.scores.file import read_scores

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]
Scored = tuple[Path, Done]

FIT_OPTIONS = ("--shrinkage", "--matmul-dtype")
EXTRACT_OPTIONS = (
    *("--backbone", "--weights", "--features", "--split", "--image-column", "--label-column"),
    *("--id-column", "--limit", "--augment-runs", "--seed", "--batch-size", "--device"),
    *("--precision", "--preprocess", "--workers", "--shard-size", "--on-error", "--max-pixels"),
    *("--flip", "--corrupt", "--no-resume"),
)
OPTIONS = {
    "demo": ("--out", "--open", "--no-open"),
    "report": ("--out", "--images", "--compare", "--columns", "--max-mb", "--map", "--id-column"),
    "backbones": (
        "--benchmark",
        "--only",
        "--images",
        "--device",
        "--precision",
        "--try",
        "--sample",
    ),
    "extract": ("--out", *EXTRACT_OPTIONS),
    "fit": ("--out", *FIT_OPTIONS),
    "score": ("--out", "--report", "--gaussians", "--scorers", *FIT_OPTIONS, *EXTRACT_OPTIONS),
    "audit": ("--against", "--join", "--column", "--kind", "--bins"),
}


def only_line(text: str) -> str:
    """The one line that says what the error is."""
    lines = [line for line in text.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, text
    assert "Traceback" not in text
    return lines[0]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.analysis("audit")) if name == "audit" else name
        for name in OPTIONS
    ],
)
def test_the_help_of_a_command_names_its_options(
    difficulty: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    done = difficulty(name, "--help")

    assert done.returncode == 0
    assert [option for option in OPTIONS[name] if option not in done.stdout] == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("score", "photos"), "--out"),
        (("score", "photos", "--out", "s", "--scorers", "rmd,nearest"), "nearest"),
        (("score", "photos", "--out", "s", "--shrinkage", "lots"), "lots"),
        (("score", "photos", "--out", "s", "--shrinkage", "1.5"), "1.5"),
        (("score", "photos", "--out", "s", "--limit", "0"), "--limit"),
        (("score", "photos", "--out", "s", "--no-such-option"), "--no-such-option"),
        (("extract", "photos", "--out", "s", "--on-error", "shrug"), "shrug"),
        (("fit", "store", "--out", "g", "--shrinkage", "-1"), "-1"),
        (("enhance",), "enhance"),
    ],
)
def test_a_wrong_call_ends_with_2_and_names_what_is_wrong(
    difficulty: Command, arguments: tuple[str, ...], complaint: str
) -> None:
    done = difficulty(*arguments)

    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_options_of_extraction_are_refused_for_features_that_exist(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    store, scores = scored[0] / "scores.features", tmp_path / "scores.parquet"

    done = difficulty("score", store, "--out", scores, "--limit", 5, "--backbone", "builtin")

    assert done.returncode == 2
    assert "--limit" in done.stderr
    assert "--backbone" in done.stderr
    assert not scores.exists()


@pytest.mark.slow
def test_options_of_the_fit_are_refused_for_gaussians_that_are_given(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    store, fitted = scored[0] / "scores.features", tmp_path / "g.safetensors"
    difficulty("fit", store, "--out", fitted)
    arguments = ("score", store, "--out", tmp_path / "scores.parquet", "--gaussians", fitted)

    refused = difficulty(*arguments, "--shrinkage", "none")

    assert refused.returncode == 2
    assert "--shrinkage would change nothing" in only_line(refused.stderr)
    assert difficulty(*arguments).returncode == 0


def test_a_missing_dataset_is_one_line_on_standard_error(
    difficulty_process: Command, tmp_path: Path, network: tuple[str, ...]
) -> None:
    missing = tmp_path / "photos"

    done = difficulty_process("score", missing, "--out", tmp_path / "scores.parquet", *network)

    assert done.returncode == 1
    assert str(missing) in only_line(done.stderr)
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [(), ("--tags", "auto")])
def test_a_folder_as_the_score_file_is_refused_before_anything_is_read(
    difficulty: Command, tmp_path: Path, options: tuple[str, ...]
) -> None:
    for folder in (tmp_path, "."):
        done = difficulty("score", tmp_path / "nowhere.parquet", "--out", folder, *options)

        assert done.returncode == 1
        assert f"{folder} is a folder; name a file in it" in done.stderr


def test_debug_shows_the_error_itself(
    difficulty: Command, tmp_path: Path, network: tuple[str, ...]
) -> None:
    arguments = ("--debug", "extract", tmp_path / "photos", "--out", tmp_path / "store", *network)

    with pytest.raises(DatasetError, match="photos"):
        difficulty(*arguments)


def test_an_unknown_backbone_brings_the_closest_name(
    difficulty: Command, few_photos: Path, tmp_path: Path
) -> None:
    done = difficulty(
        *("extract", few_photos, "--out", tmp_path / "store", "--backbone", "clip-vit-b61")
    )

    assert done.returncode == 1
    assert "clip-vit-b16" in only_line(done.stderr)


def test_twenty_pictures_are_enough_for_scores(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    scores = tmp_path / "scores.parquet"

    done = difficulty("score", few_photos, "--out", scores, *network, "--verbose")

    table, provenance = read_scores(scores).table, read_scores(scores).provenance
    assert done.returncode == 0, done.stderr
    assert "unreliable" not in done.stderr
    assert "ridge" in done.stdout
    assert provenance.reliable is True
    assert provenance.unit_length is True
    assert provenance.within_ridge > 0
    assert table["rmd"].null_count == table["label_margin"].null_count == 0


@pytest.mark.slow
def test_twenty_pictures_without_shrinkage_are_scored_and_marked_as_unreliable(
    difficulty: Command, few_photos: Path, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    scores = tmp_path / "scores.parquet"

    done = difficulty("score", few_photos, "--out", scores, *builtin, "--shrinkage", "none")

    assert done.returncode == 0
    assert "warning: these scores are unreliable: there are fewer samples than" in done.stderr
    assert read_scores(scores).provenance.reliable is False


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("fog", "'fog' is not a name and a level from 1 to 5"),
        ("rain:3", "no corruption 'rain'; choose one of gaussian_noise"),
        ("fog:6", "'fog:6' is not a name and a level from 1 to 5"),
    ],
)
def test_a_corruption_that_there_is_not_is_refused(
    difficulty: Command, few_photos: Path, tmp_path: Path, text: str, problem: str
) -> None:
    refused = difficulty("extract", few_photos, "--out", tmp_path / "store", "--corrupt", text)

    assert refused.returncode == 2
    assert problem in only_line(refused.stderr)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        (("--augment-runs", 2), "augment_runs: 0 then, 2 now"),
        (("--flip",), "flip: false then, true now"),
        (("--corrupt", "fog:2"), 'corruption: none then, "fog:2" now'),
    ],
)
def test_features_of_other_settings_are_replaced_on_request_only(
    difficulty: Command,
    few_photos: Path,
    tmp_path: Path,
    network: tuple[str, ...],
    changed: tuple[object, ...],
    difference: str,
) -> None:
    arguments = ("extract", few_photos, "--out", tmp_path / "store", *network)
    difficulty(*arguments)

    refused = difficulty(*arguments, *changed)
    replaced = difficulty(*arguments, *changed, "--no-resume")
    back = difficulty(*arguments)

    assert refused.returncode == back.returncode == 1
    assert "--no-resume" in only_line(refused.stderr)
    assert difference in refused.stderr
    assert "20 of 20 images have features" in replaced.stdout


def test_files_of_others_in_the_output_folder_stay(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    foreign = tmp_path / "tables" / "part-00000.arrow"
    foreign.parent.mkdir()
    foreign.write_bytes(b"somebody's table")

    done = difficulty("extract", few_photos, "--out", foreign.parent, *network)

    assert done.returncode == 1
    assert "part-00000.arrow" in only_line(done.stderr)
    assert foreign.read_bytes() == b"somebody's table"


def test_missing_gaussians_are_noticed_before_any_image_is_read(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    done = difficulty(
        *("score", few_photos, "--out", tmp_path / "scores.parquet", *network),
        *("--gaussians", tmp_path / "missing.safetensors"),
    )

    assert done.returncode == 1
    assert "missing.safetensors" in only_line(done.stderr)
    assert not (tmp_path / "scores.features").exists()


@pytest.mark.slow
def test_gaussians_of_other_features_are_refused(
    difficulty: Command, scored: Scored, few_photos: Path, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    gaussians = tmp_path / "gaussians.safetensors"
    difficulty("fit", scored[0] / "scores.features", "--out", gaussians)
    arguments = (
        *("score", few_photos, "--out", tmp_path / "scores.parquet", *builtin),
        *("--gaussians", gaussians, "--preprocess", "exact"),
    )

    done = difficulty(*arguments)

    assert done.returncode == 1
    assert 'mode: "exact" in the features, "fast" in the Gaussians' in only_line(done.stderr)
    with pytest.raises(StatisticsError):
        difficulty("--debug", *arguments)


def test_an_incomplete_store_says_what_completes_it(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    store = tmp_path / "store"
    difficulty("extract", few_photos, "--out", store, *network, "--shard-size", 5)
    (store / "part-00002.arrow").unlink()

    done = difficulty("score", store, "--out", tmp_path / "scores.parquet")

    assert done.returncode == 1
    assert "lacks 1 of 4 shards" in only_line(done.stderr)
    assert "difficulty extract" in done.stderr
