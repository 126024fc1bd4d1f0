"""From photographs to scores, by the commands that a person types."""

import platform
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray

from difficulty_service.backbones import BACKBONES
from difficulty_service.backbones.weights_files import BUILTIN_WEIGHTS
from difficulty_service.scores.file import SCHEMA, read_scores

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]
Scored = tuple[Path, Done]


def numbers(scores: Path, column: str) -> NDArray[np.float64]:
    """A column of a score file, nulls as NaN."""
    return read_scores(scores, [column]).table[column].cast(pa.float64()).to_numpy()


def by_id(scores: Path, column: str) -> dict[str, float]:
    table = read_scores(scores, ["sample_id", column]).table.to_pydict()
    return dict(zip(table["sample_id"], table[column], strict=True))


@pytest.mark.slow
def test_a_dataset_becomes_a_score_file_with_the_columns_of_the_schema(scored: Scored) -> None:
    folder, _ = scored

    table = pq.read_table(folder / "scores.parquet")

    optional = {
        *(
            "rmd_std",
            "near_duplicate_of",
            "kmeans",
            "knn",
            "agree",
            "ambiguity",
            "name_margin",
            "mark",
        ),
        *("loss", "doubt", "aum", "el2n", "forgetting", "incorrectness"),
    }
    computed = pa.schema([field for field in SCHEMA if field.name not in optional])
    assert table.schema.remove_metadata() == computed
    assert len(set(table["sample_id"].to_pylist())) == 600
    assert table["sample_id"][0].as_py() == "bird/000.png"
    assert table.filter(table["rmd"].is_valid())["rmd_loo"].null_count == 0
    assert min(table["percentile"].to_pylist()) == 0.0
    assert max(table["percentile"].to_pylist()) == 1.0


def test_the_summary_is_printed_and_no_progress_bar_where_there_is_no_terminal(
    scored: Scored,
) -> None:
    folder, done = scored

    assert "found 600 images of 3 classes, 200 in each" in done.stderr
    assert "hardest" in done.stdout
    assert "of 600 labels are probably wrong (p_wrong above 1/2)" in done.stdout
    assert f"difficulty audit {folder / 'scores.parquet'}" in done.stdout
    assert f"600 of 600 images are scored in {folder / 'scores.parquet'}" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stdout + done.stderr
    assert "━" not in done.stderr


@pytest.mark.long
def test_the_installed_command_gives_the_same_scores(
    photos: Path, scored: Scored, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    command, scores = Path(sys.executable).with_name("difficulty"), tmp_path / "scores.parquet"
    words = ("score", photos, "--out", scores, *builtin, "--shard-size", 250)

    done = subprocess.run(  # noqa: S603 - our own command
        [str(word) for word in (command, *words)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    expected, found = (read_scores(file).table for file in (scored[0] / "scores.parquet", scores))
    assert found["sample_id"].equals(expected["sample_id"])
    np.testing.assert_allclose(found["rmd"], expected["rmd"], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_extract_fit_and_score_give_what_score_gives_alone(
    difficulty: Command, photos: Path, scored: Scored, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    names = ("store", "gaussians.safetensors", "scores.parquet")
    store, gaussians, scores = (tmp_path / name for name in names)

    extracted = difficulty("extract", photos, "--out", store, *builtin, "--shard-size", 250)
    fitted = difficulty("fit", store, "--out", gaussians)
    done = difficulty("score", store, "--out", scores, "--gaussians", gaussians)

    assert [run.returncode for run in (extracted, fitted, done)] == [0, 0, 0]
    assert "600 of 600 images have features" in extracted.stdout
    assert "fitted to 600 images of 3 classes" in fitted.stdout
    alone = scored[0] / "scores.parquet"
    for column in ("md", "md_agnostic", "rmd", "rmd_loo"):
        np.testing.assert_allclose(numbers(scores, column), numbers(alone, column), rtol=1e-6)


@pytest.mark.slow
def test_parts_that_are_merged_score_as_one_run_does(
    difficulty: Command, photos: Path, scored: Scored, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    stores = [tmp_path / "share0", tmp_path / "share1"]
    merged, scores = tmp_path / "merged", tmp_path / "scores.parquet"

    shares = [
        difficulty(
            "extract",
            photos,
            "--out",
            store,
            *builtin,
            "--shard",
            f"{index}/2",
            "--shard-size",
            100,
        )
        for index, store in enumerate(stores)
    ]
    joined = difficulty("merge", *stores, "--out", merged)
    done = difficulty("score", merged, "--out", scores)

    assert [run.returncode for run in (*shares, joined, done)] == [0, 0, 0, 0]
    assert "300 of 300 images have features" in shares[0].stdout
    assert "part 0 of 2" in shares[0].stdout
    assert "6 shards of 2 stores" in joined.stdout
    alone = scored[0] / "scores.parquet"
    np.testing.assert_allclose(numbers(scores, "rmd"), numbers(alone, "rmd"), rtol=1e-6)


@pytest.mark.parametrize("share", ["2/2", "1", "a/b", "-1/2", "0/0"])
def test_a_part_that_does_not_exist_is_a_wrong_call(
    difficulty: Command, photos: Path, tmp_path: Path, share: str
) -> None:
    done = difficulty("extract", photos, "--out", tmp_path / "store", f"--shard={share}")

    assert done.returncode == 2
    assert "I/N" in done.stderr


@pytest.mark.slow
def test_gaussians_of_two_datasets_are_merged(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    fitted, merged = tmp_path / "one", tmp_path / "both"
    difficulty("fit", scored[0] / "scores.features", "--out", fitted)

    done = difficulty("merge", fitted, fitted, "--out", merged)

    assert done.returncode == 0
    assert "fitted to 1,200 images of 3 classes" in done.stdout


@pytest.mark.slow
def test_other_data_are_scored_against_the_classes_of_the_same_name(
    difficulty: Command, photos: Path, scored: Scored, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    known, other = scored[0] / "scores.parquet", tmp_path / "other"
    for source, name in (("dog", "dog"), ("bird", "ant"), ("cat", "cat")):
        (other / name).mkdir(parents=True)
        for photo in sorted((photos / source).iterdir())[:5]:
            (other / name / photo.name).write_bytes(photo.read_bytes())
    difficulty("fit", scored[0] / "scores.features", "--out", tmp_path / "gaussians")

    done = difficulty(
        *("score", other, "--out", tmp_path / "new.parquet", *builtin),
        *("--gaussians", tmp_path / "gaussians"),
    )

    assert done.returncode == 0
    assert "warning: no score for 5 of 15 images" in done.stderr
    assert "fewer than two images of their class: ant" in done.stderr
    new, old = by_id(tmp_path / "new.parquet", "rmd"), by_id(known, "rmd")
    names = by_id(tmp_path / "new.parquet", "label_name")
    assert {name: key.partition("/")[0] for key, name in names.items()} == {
        name: name for name in ("ant", "cat", "dog")
    }
    for sample_id, rmd in new.items():
        if sample_id.startswith("ant"):
            assert rmd is None
        else:
            assert rmd == pytest.approx(old[sample_id], rel=1e-3)
    assert "rmd_loo" not in read_scores(tmp_path / "new.parquet").table.column_names


def test_rival_scorers_fill_their_columns_and_only_when_asked_for(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    store, scores = scored[0] / "scores.features", tmp_path / "scores.parquet"

    done = difficulty("score", store, "--out", scores, "--scorers", "rmd,kmeans,knn")

    assert done.returncode == 0
    for column in ("kmeans", "knn"):
        assert (numbers(scores, column) >= 0).all()
        assert column not in read_scores(scored[0] / "scores.parquet").table.column_names


def test_unshrunk_scores_have_a_mean_of_zero(difficulty: Command, tmp_path: Path) -> None:
    vectors, scores = tmp_path / "vectors.npz", tmp_path / "scores.parquet"
    generator, labels = np.random.default_rng(0), np.arange(600) % 3
    features = generator.standard_normal((600, 16)) + labels[:, None]
    np.savez(vectors, features=features, labels=labels)

    difficulty(
        *("score", vectors, "--out", scores, "--matmul-dtype", "float64", "--shrinkage", "none"),
    )

    assert abs(numbers(scores, "rmd").mean()) < 1e-9
    assert numbers(scores, "rmd").std() > 1e-3


@pytest.mark.analysis("audit")
def test_audit_says_how_well_the_hardest_samples_are_the_flagged_ones(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    scores = scored[0] / "scores.parquet"
    rmd = by_id(scores, "rmd")
    median = np.median(list(rmd.values()))
    flags = pa.table({"id": list(rmd), "wrong": [value > median for value in rmd.values()]})
    pq.write_table(flags, tmp_path / "flags.parquet")

    done = difficulty(
        *("audit", scores, "--against", tmp_path / "flags.parquet"),
        *("--join", "id", "--column", "wrong"),
    )

    assert done.returncode == 0
    assert done.stdout.startswith("rmd against wrong (")
    assert "flag" in done.stdout.splitlines()[0]
    assert "AUROC 1.0" in done.stdout


@pytest.mark.analysis("audit")
def test_audit_refuses_bins_where_there_is_no_error_rate(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    rmd = by_id(scored[0] / "scores.parquet", "rmd")
    pq.write_table(
        pa.table({"id": list(rmd), "votes": [*rmd.values()]}), tmp_path / "votes.parquet"
    )
    call = ("audit", scored[0] / "scores.parquet", "--against", tmp_path / "votes.parquet")

    done = difficulty(*call, "--join", "id", "--column", "votes", "--bins", "5")

    assert done.returncode == 2
    assert "--bins changes nothing for --kind rank" in done.stderr
    assert not done.stdout


@pytest.mark.slow
def test_numbers_for_statisticians_are_printed_on_request_only(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    store = scored[0] / "scores.features"
    fitted, scores = tmp_path / "fitted", tmp_path / "scores.csv"
    commands = (
        ("fit", store, "--out", fitted),
        ("score", store, "--out", scores),
        ("merge", fitted, fitted, "--out", tmp_path / "merged"),
    )

    for command in commands:
        plain, verbose = difficulty(*command), difficulty(*command, "--verbose")

        assert "fitted to" in plain.stdout
        for term in ("condition number", "rank", "shrinkage", "dimensions"):
            assert term not in plain.stdout
            assert term in verbose.stdout


def test_every_backbone_is_listed(difficulty: Command) -> None:
    done = difficulty("backbones")

    assert done.returncode == 0
    assert all(name in done.stdout for name in (*BACKBONES, "run:FOLDER"))


def test_the_version_is_that_of_the_package_with_those_of_others_and_the_devices(
    difficulty: Command,
) -> None:
    first, python, *lines = difficulty("--version").stdout.splitlines()

    assert first == f"difficulty {version('difficulty-service')}"
    assert python.startswith(f"Python {platform.python_version()} on ")
    assert {f"{name} {version(name)}" for name in ("torch", "numpy", "pyarrow")} <= set(lines)
    assert sum(line.startswith(f"cpu: {platform.machine()}, ") for line in lines) == 1
    assert sum(line.startswith("cuda:") for line in lines) == torch.cuda.device_count()


@pytest.mark.slow
@pytest.mark.skipif(
    not BUILTIN_WEIGHTS.is_file(), reason="the encoder's weights are not trained yet"
)
def test_the_demo_scores_the_digits_and_draws_them(
    difficulty_process: Command, tmp_path: Path
) -> None:
    done = difficulty_process("demo", "--out", tmp_path / "demo")

    assert done.returncode == 0, done.stderr
    assert "hardest" in done.stdout
    assert len(read_scores(tmp_path / "demo" / "scores.parquet").table) == 1797
    assert len(list((tmp_path / "demo").glob("*.png"))) == 2
    assert "No label is likely to be wrong." in (tmp_path / "demo" / "report.html").read_text()
    assert f"the report is in {tmp_path / 'demo' / 'report.html'}" in done.stdout


@pytest.mark.slow
def test_profile_shows_how_busy_each_stage_was_and_the_slowest(
    difficulty: Command, photos: Path, tmp_path: Path
) -> None:
    ended = difficulty(
        "extract", photos, "--backbone", "builtin", "--out", tmp_path / "features", "--profile"
    )

    assert ended.returncode == 0, ended.stderr
    for stage in ("read", "decode and resize", "normalise and forward", "append"):
        assert re.search(rf"^{stage} +\d+ +\d+\.\d\d +\d+% *$", ended.stdout, re.MULTILINE), stage
    assert re.search(r"the bottleneck is [a-z ]+: \d+% of its threads' time", ended.stdout)


def test_options_of_a_cluster_without_a_cluster_are_refused(
    difficulty: Command, photos: Path, tmp_path: Path
) -> None:
    ended = difficulty("extract", photos, "--out", tmp_path / "x", "--ray-actors", "2")

    assert ended.returncode == 2
    assert "--engine ray" in ended.stderr
