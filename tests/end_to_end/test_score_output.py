"""What `difficulty score` writes and says: formats, doubtful labels, copies and odd datasets."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.csv as pa_csv
import pytest
from PIL import Image

from difficulty_service.scores.file import read_scores

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]
Scored = tuple[Path, Done]

RIDGE = ("--shrinkage", "leave-one-out")


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_the_ending_chooses_the_format_of_the_same_scores(
    difficulty: Command, scored: Scored, tmp_path: Path, ending: str
) -> None:
    folder, _ = scored
    scores = tmp_path / f"scores.{ending}"

    done = difficulty("score", folder / "scores.features", "--out", scores)

    assert done.returncode == 0, done.stderr
    assert scores.read_text().startswith({"csv": '"sample_id",', "jsonl": '{"sample_id"'}[ending])
    parquet, text = (read_scores(path) for path in (folder / "scores.parquet", scores))
    names = ["sample_id", "label_name", "nearest_label_name"]
    assert text.table.select(names).to_pylist() == parquet.table.select(names).to_pylist()
    np.testing.assert_allclose(text.table["rmd"], parquet.table["rmd"], rtol=1e-6)
    assert text.provenance.model_fields_set == parquet.provenance.model_fields_set


@pytest.mark.slow
@pytest.mark.analysis("audit")
def test_a_csv_file_of_scores_can_be_audited(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    scores = tmp_path / "scores.csv"
    difficulty("score", scored[0] / "scores.features", "--out", scores)
    table = read_scores(scores, ["sample_id", "rmd"]).table
    pa_csv.write_csv(table.rename_columns(["id", "hardness"]), tmp_path / "known.csv")

    done = difficulty(
        *("audit", scores, "--against", tmp_path / "known.csv"),
        *("--join", "id", "--column", "hardness"),
    )

    assert done.returncode == 0, done.stderr
    assert "rank" in done.stdout


def test_that_features_hardly_tell_the_classes_apart_stands_before_everything_else(
    difficulty: Command, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    vectors, scores = tmp_path / "vectors.npz", tmp_path / "scores.parquet"
    np.savez(vectors, features=generator.standard_normal((400, 8)), labels=np.arange(400) % 4)

    done = difficulty("score", vectors, "--out", scores)
    asked = difficulty("score", vectors, "--out", scores, "--json")

    (caution,) = [each for each in read_scores(scores).provenance.warnings if "uncertain" in each]
    said = " ".join(done.stdout.split())
    assert -1 < said.find(caution) < said.find("probably wrong")
    assert caution not in " ".join(done.stderr.split())
    assert json.loads(asked.stdout)["warnings"][0] == caution


@pytest.mark.parametrize("name", ["scores.txt", "scores", "folder"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_read(
    difficulty: Command, tmp_path: Path, name: str
) -> None:
    (tmp_path / "folder").mkdir()

    done = difficulty("score", tmp_path / "no photos", "--out", tmp_path / name)

    assert done.returncode == 1
    assert str(tmp_path / "no photos") not in done.stderr
    assert "--out " in done.stderr
    assert ".parquet" in done.stderr


def test_images_with_another_label_are_named_with_the_class_they_look_like(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    (few_photos / "bird" / "003.png").rename(few_photos / "cat" / "wrong.png")
    shutil.copy(few_photos / "bird" / "004.png", few_photos / "cat" / "copy.png")
    scores = tmp_path / "scores.parquet"

    done = difficulty("score", few_photos, "--scorers", "rmd", "--out", scores, *network, *RIDGE)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    heading = next(line for line in lines if "look more like another class than their own" in line)
    number = int(heading.split()[0])
    rows = lines[lines.index(heading) + 2 :][:number]
    assert any(row.startswith("cat/wrong.png  cat → bird") for row in rows), done.stdout
    margins = [float(row.split()[-1]) for row in rows]
    assert margins == sorted(margins, reverse=True)
    assert min(margins) >= 0
    assert "1 of them is an exact copy of others (column duplicate_of)" in done.stdout
    assert "warning: 2 images have an exact copy with another label, the first are" in done.stderr
    provenance = read_scores(scores).provenance
    assert (provenance.num_doubtful, provenance.num_duplicates) == (number, 1)


@pytest.mark.slow
def test_the_images_to_check_are_the_most_suspicious(
    difficulty: Command, few_photos: Path, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    (few_photos / "bird" / "003.png").rename(few_photos / "cat" / "wrong.png")
    scores = tmp_path / "scores.parquet"

    done = difficulty("score", few_photos, "--out", scores, *builtin, *RIDGE)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    heading = next(line for line in lines if "probably wrong (p_wrong above 1/2)" in line)
    table = read_scores(scores, ["sample_id", "suspicion"]).table
    suspicion = dict(zip(*(column.to_pylist() for column in table.columns), strict=True))
    above = sorted((value for value in suspicion.values() if value > 0), reverse=True)
    assert int(heading.split()[0]) == len(above) > 0
    assert " wrong" in heading.rpartition("fit. ")[2]
    first = next(row for row, line in enumerate(lines) if "given → looks like" in line) + 1
    rows = lines[first:][: min(10, len(above))]
    assert [suspicion[row.split()[0]] for row in rows] == above[:10]
    assert "--drop" not in done.stdout, "few images are worth a look each"
    assert "--marks marks.csv" in done.stdout


def test_near_copies_are_found_where_they_are_asked_for(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    with Image.open(few_photos / "bird" / "004.png") as image:
        image.resize((160, 160)).save(few_photos / "cat" / "larger.png")
    scores = tmp_path / "scores.parquet"
    words = ("score", few_photos, "--out", scores, *network, *RIDGE)

    plain = difficulty(*words)
    done = difficulty(*words, "--near-duplicates", "0.97")

    assert plain.returncode == done.returncode == 0, plain.stderr + done.stderr
    assert "near_duplicate_of" not in plain.stdout
    table = read_scores(scores, ["sample_id", "duplicate_of", "near_duplicate_of"]).table
    found = {row["sample_id"]: row["near_duplicate_of"] for row in table.to_pylist()}
    assert found["cat/larger.png"] == "bird/004.png"
    assert found["bird/004.png"] is None
    assert table["duplicate_of"].null_count == len(table)
    number = len(table) - table["near_duplicate_of"].null_count
    assert f"{number} of them" in done.stdout
    assert "(column near_duplicate_of)" in " ".join(done.stdout.split())
    assert "have a near copy with another label, the first are" in done.stderr


@pytest.mark.parametrize("cosine", ["0", "1.5", "nan"])
def test_a_number_that_is_no_cosine_of_near_copies_is_a_wrong_call(
    difficulty: Command, few_photos: Path, tmp_path: Path, cosine: str
) -> None:
    out = tmp_path / "scores.parquet"

    done = difficulty("score", few_photos, "--out", out, "--near-duplicates", cosine)

    assert done.returncode == 2
    assert f"error: --near-duplicates {cosine} should be" in done.stderr


def test_small_classes_are_named_before_the_first_image_is_read(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    (few_photos / "owl").mkdir()
    (few_photos / "bird" / "003.png").rename(few_photos / "owl" / "only.png")
    scores = tmp_path / "scores.parquet"

    done = difficulty("score", few_photos, "--out", scores, *network, *RIDGE)

    before, _, after = done.stderr.partition("features go to ")
    assert "found 20 images of 3 classes, 1 to 10 in each" in before
    assert "warning: classes with a single image, which gets no score: owl" in before
    assert "no score for 1 of 20 images" in after
    assert "19 of 20 images are scored" in done.stdout
    assert any("of their class: owl" in text for text in read_scores(scores).provenance.warnings)


def test_a_single_class_is_explained_in_place_of_an_empty_ranking(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    shutil.rmtree(few_photos / "cat")
    scores = tmp_path / "scores.parquet"

    done = difficulty("score", few_photos, "--out", scores, *network, "--shrinkage", "oas")

    assert done.returncode == 0, done.stderr
    assert "all images have one class, 'bird'" in done.stderr
    assert "there is no second class to compare with" in done.stderr
    assert "hardest" not in done.stdout
    assert "another class" not in done.stdout


@pytest.mark.slow
def test_images_without_labels_get_classes_by_the_command_that_is_printed(
    difficulty: Command, tmp_path: Path
) -> None:
    tmp_path = tmp_path / "a {folder}"
    tmp_path.mkdir()
    for number in range(12):
        Image.new("RGB", (32, 32), (250 * (number % 2), number, 90)).save(
            tmp_path / f"{number}.png"
        )
    done = difficulty("score", tmp_path, "--out", tmp_path / "s.parquet", "--backbone", "builtin")
    (step,) = [line for line in done.stdout.splitlines() if "--clusters" in line]

    again = difficulty(*shlex.split(step)[1:])

    assert done.returncode == again.returncode == 0, again.stderr
    assert "no labels to compare with" in done.stderr
    assert set(read_scores(tmp_path / "s.parquet").provenance.class_names) >= {"cluster 1"}
    assert (tmp_path / "s.html").exists()


@pytest.mark.slow
def test_verbose_also_prints_the_easiest_images(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    command = ("score", scored[0] / "scores.features", "--out", tmp_path / "scores.parquet")

    plain, verbose = difficulty(*command), difficulty(*command, "--verbose")

    assert "easiest" not in plain.stdout
    assert "easiest images:" in verbose.stdout


@pytest.mark.slow
def test_scores_against_given_gaussians_name_the_classes_of_the_gaussians(
    difficulty: Command, few_photos: Path, scored: Scored, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    gaussians = tmp_path / "gaussians.safetensors"
    difficulty("fit", scored[0] / "scores.features", "--out", gaussians)
    (few_photos / "cat").rename(few_photos / "zebra")
    scores = tmp_path / "scores.parquet"

    done = difficulty("score", few_photos, "--out", scores, *builtin, "--gaussians", gaussians)

    assert done.returncode == 0, done.stderr
    assert "no score for 10 of 20 images" in done.stderr
    assert "10 of 20 images are scored" in done.stdout
    columns = ["label_name", "nearest_label", "nearest_label_name"]
    rows = read_scores(scores, columns).table.to_pylist()
    assert {row["label_name"] for row in rows} == {"bird", "zebra"}
    names = ("bird", "cat", "dog")
    assert all(row["nearest_label_name"] == names[row["nearest_label"]] for row in rows)


def test_parts_of_features_without_their_description_are_no_dataset(
    difficulty: Command, scored: Scored, tmp_path: Path
) -> None:
    parts = tmp_path / "parts"
    shutil.copytree(scored[0] / "scores.features", parts)
    (parts / "store.json").unlink()

    done = difficulty("score", parts, "--out", tmp_path / "scores.parquet")

    assert done.returncode == 1
    assert "has no store.json, which says how the features were made" in done.stderr
    assert "difficulty extract" in done.stderr
