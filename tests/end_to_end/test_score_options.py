"""Options of `difficulty score`: statistics, augmentation, and which samples are scored."""

import csv
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from numpy.typing import NDArray

from difficulty_service.scores.file import read_scores

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]

LEDOIT_WOLF = ("--shrinkage", "ledoit-wolf")


def numbers(scores: Path, column: str) -> NDArray[np.float64]:
    """A column of a score file, nulls as NaN."""
    return read_scores(scores, [column]).table[column].cast(pa.float64()).to_numpy()


def by_id(scores: Path, column: str) -> dict[str, float]:
    table = read_scores(scores, ["sample_id", column]).table.to_pydict()
    return dict(zip(table["sample_id"], table[column], strict=True))


def test_a_second_run_with_other_statistics_keeps_the_features(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    scores = tmp_path / "scores.parquet"
    arguments = ("score", few_photos, "--out", scores, *network, "--shrinkage")
    difficulty(*arguments, "0.5")
    first = numbers(scores, "rmd")
    shards = sorted((tmp_path / "scores.features").glob("part-*.arrow"))
    written = [shard.stat().st_mtime_ns for shard in shards]

    done = difficulty(*arguments, "ledoit-wolf")

    assert done.returncode == 0
    assert "20 of 20 images" in done.stdout
    assert (numbers(scores, "rmd") != first).all()
    assert shards
    assert [shard.stat().st_mtime_ns for shard in shards] == written


@pytest.mark.slow
def test_augmentation_runs_give_a_deviation_that_the_seed_determines(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    files = [tmp_path / f"{name}.parquet" for name in ("first", "again", "other")]

    for scores, seed in zip(files, (5, 5, 6), strict=True):
        difficulty(
            *("score", few_photos, "--out", scores, *network, *LEDOIT_WOLF),
            *("--augment-runs", 3, "--seed", seed),
        )

    first, again, other = (read_scores(path).table for path in files)
    assert (numbers(files[0], "rmd_std") > 0).all()
    assert len(first) == 20
    assert first.equals(again)
    assert not first["rmd"].equals(other["rmd"])


@pytest.mark.slow
def test_plain_images_are_scored_against_augmented_ones_and_the_other_way_round(
    difficulty: Command, few_photos: Path, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    for runs in (0, 3):
        store = tmp_path / f"{runs}"
        difficulty("extract", few_photos, "--out", store, *builtin, "--augment-runs", runs)
        difficulty("fit", store, "--out", tmp_path / f"{runs}.safetensors", *LEDOIT_WOLF)

    for runs, others in ((0, 3), (3, 0)):
        scores = tmp_path / f"{runs}.parquet"
        gaussians = tmp_path / f"{others}.safetensors"
        done = difficulty("score", tmp_path / f"{runs}", "--out", scores, "--gaussians", gaussians)

        assert done.returncode == 0
        assert np.isfinite(numbers(scores, "rmd")).all()
        assert "rmd_loo" not in read_scores(scores).table.column_names


def test_a_limit_keeps_every_class(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    scores = tmp_path / "scores.parquet"

    done = difficulty(*("score", few_photos, "--out", scores, *network, *LEDOIT_WOLF, "--limit", 6))

    assert done.returncode == 0
    assert sorted(by_id(scores, "label_name").values()) == ["bird"] * 3 + ["cat"] * 3


def test_a_split_is_the_only_folder_that_is_scored(
    difficulty: Command, few_photos: Path, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    (tmp_path / "all" / "test").mkdir(parents=True)
    few_photos.rename(tmp_path / "all" / "train")
    scores = tmp_path / "scores.parquet"

    done = difficulty(
        *("score", tmp_path / "all", "--out", scores, *builtin, *LEDOIT_WOLF, "--split", "train")
    )

    assert done.returncode == 0
    assert len(read_scores(scores).table) == 20


def test_a_table_names_its_own_ids(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    photos = sorted(few_photos.rglob("*.png"))
    table = pa.table(
        {
            "path": [str(photo) for photo in photos],
            "kind": [photo.parent.name for photo in photos],
            "key": [f"photo {number}" for number in range(len(photos))],
        }
    )
    pa_csv.write_csv(table, tmp_path / "table.csv")
    scores = tmp_path / "scores.parquet"

    done = difficulty(
        *("score", tmp_path / "table.csv", "--out", scores, *network, *LEDOIT_WOLF),
        *("--image-column", "path", "--label-column", "kind", "--id-column", "key"),
    )

    assert done.returncode == 0
    assert list(by_id(scores, "rmd")) == [f"photo {number}" for number in range(20)]


@pytest.mark.slow
def test_images_are_scored_against_gaussians_of_mirror_images_with_flip_only(
    difficulty: Command, few_photos: Path, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    store, gaussians = tmp_path / "store", tmp_path / "flip.safetensors"
    difficulty("extract", few_photos, "--out", store, *builtin, "--flip")
    difficulty("fit", store, "--out", gaussians, *LEDOIT_WOLF)
    arguments = ("score", few_photos, *builtin, "--gaussians", gaussians, "--out")

    refused = difficulty(*arguments, tmp_path / "plain.parquet")
    done = difficulty(*arguments, tmp_path / "flip.parquet", "--flip")
    from_store = difficulty("score", store, "--gaussians", gaussians, "--out", tmp_path / "s.csv")

    assert refused.returncode == 1
    assert "flip: false in the features, true in the Gaussians" in refused.stderr
    assert not (tmp_path / "plain.features").exists()
    assert done.returncode == from_store.returncode == 0
    assert read_scores(tmp_path / "flip.parquet").provenance.flip is True
    expected = pa_csv.read_csv(tmp_path / "s.csv")["rmd"].to_numpy()
    np.testing.assert_allclose(numbers(tmp_path / "flip.parquet", "rmd"), expected)


@pytest.mark.slow
def test_corrupted_images_are_harder_for_the_gaussians_of_clean_ones(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    gaussians = tmp_path / "clean.safetensors"
    difficulty("extract", few_photos, "--out", tmp_path / "clean", *network)
    difficulty("fit", tmp_path / "clean", "--out", gaussians, *LEDOIT_WOLF)
    arguments = ("score", few_photos, *network, "--gaussians", gaussians, "--out")

    difficulty(*arguments, tmp_path / "clean.parquet")
    for severity in (1, 5):
        name = f"gaussian_noise:{severity}"
        difficulty(*arguments, tmp_path / f"{severity}.parquet", "--corrupt", name)

    clean, mild, strong = (
        numbers(tmp_path / f"{name}.parquet", "md").mean() for name in ("clean", "1", "5")
    )
    assert clean < mild < strong
    assert read_scores(tmp_path / "5.parquet").provenance.corruption == "gaussian_noise:5"
    assert read_scores(tmp_path / "clean.parquet").provenance.corruption is None
    files = [tmp_path / f"{name}.parquet" for name in ("1", "clean", "5")]
    done = difficulty("figures", *files, "--out", tmp_path / "figures", "--score-column", "md")
    assert done.returncode == 0, done.stderr
    assert "left out of reliability, " in done.stdout
    assert ": no run is given" in done.stdout
    with (tmp_path / "figures" / "difficulty-over-severity.csv").open(newline="") as file:
        drawn = [(row["severity"], float(row["mean"])) for row in csv.DictReader(file)]
    assert drawn == [("0", clean), ("1", mild), ("5", strong)]
    assert (tmp_path / "figures" / "hardest-and-easiest.svg").stat().st_size > 10_000
