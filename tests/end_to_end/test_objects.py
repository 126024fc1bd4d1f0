"""Boxes of objects from a dataset to scores, and from marks back to the format of the dataset."""

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import difficulty_service as ds
from difficulty_service.scores.file import read_scores
from tests.boxed_images import (
    CATEGORIES,
    SCENES,
    WITH_IDS,
    WRITERS,
    Scene,
    many_scenes,
    write_image,
)
from tests.small_network import SMALL

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    """Forty scenes, the same for all tests."""
    return many_scenes(40)


def with_wrong_label(scenes: list[Scene]) -> list[Scene]:
    """The scenes with another category for the first box of the third one."""
    (category, *sides), *others = scenes[2].boxes
    wrong = {"apple": "leaf", "leaf": "plum", "plum": "apple"}[category]
    return [*scenes[:2], Scene(scenes[2].name, [(wrong, *sides), *others]), *scenes[3:]]


def _labels(path: Path) -> Mapping[str, str]:
    table = read_scores(path, ["sample_id", "label_name"]).table
    return dict(zip(*table.to_pydict().values(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("form", list(WRITERS))
def test_a_wrong_box_is_found_and_corrected_in_the_format_of_its_dataset(
    form: str,
    difficulty: Command,
    network: tuple[str, ...],
    tmp_path: Path,
    scenes: list[Scene],
) -> None:
    folder, marks = WRITERS[form](tmp_path / "fruit", with_wrong_label(scenes)), tmp_path / "marks"
    write_image(next(folder.rglob("scene002.png")), scenes[2])
    scores, again = tmp_path / "scores.parquet", tmp_path / "again.parquet"

    scored = difficulty("score", folder, "--out", scores, *network)

    assert scored.returncode == 0, scored.stderr
    assert "objects of 3 classes" in scored.stderr
    assert "objects are scored in" in scored.stdout
    table = read_scores(scores, ["sample_id", "suspicion", "suggested_label_name"]).table
    first = table.sort_by([("suspicion", "descending")]).slice(0, 1).to_pylist()[0]
    assert scenes[2].name in first["sample_id"]
    ids = table["sample_id"].to_pylist()
    dropped, misplaced = [name for name in ids if name != first["sample_id"]][::117]
    marks.write_text(
        "sample_id,mark,label\n"
        f"{first['sample_id']},relabel,{first['suggested_label_name']}\n{dropped},drop,\n"
        f"{misplaced},misplaced,\n"
    )

    out = tmp_path / "cleaned"
    cleaned = difficulty("clean", scores, "--marks", marks, "--out", out, "--link")
    rescored = difficulty("score", out, "--out", again, *network)

    assert cleaned.returncode == 0, cleaned.stderr
    assert rescored.returncode == 0, rescored.stderr
    expected_labels = _labels(scores)
    expected = {**expected_labels, first["sample_id"]: first["suggested_label_name"]}
    del expected[dropped]
    after = _labels(again)
    if form not in WITH_IDS:  # the boxes of an image are counted again
        image = dropped.partition("#")[0]
        expected, after = (
            {key: value for key, value in each.items() if not key.startswith(f"{image}#")}
            for each in (expected, after)
        )
    assert after == expected
    assert next(out.rglob("scene005.png")).is_symlink()
    assert dropped in (out / "dropped.csv").read_text()
    image, _, box = misplaced.rpartition("#")
    assert (out / "misplaced.csv").read_text().splitlines() == [
        '"sample_id","image","box","label","round"',
        f'"{misplaced}","{image}","{box}","{expected_labels[misplaced]}",1',
    ]
    assert f"1 box is misplaced, and listed in {out / 'misplaced.csv'}" in " ".join(
        cleaned.stdout.split()
    )


@pytest.mark.slow
def test_python_scores_and_shows_boxes_as_it_does_images(
    tmp_path: Path,
    scenes: list[Scene],
    small_networks: None,  # noqa: ARG001 - it is known
) -> None:
    folder = WRITERS["yolo"](tmp_path / "fruit", scenes)

    scores = ds.score_dataset(
        folder, out=tmp_path / "scores.parquet", backbone=SMALL, progress=False
    )

    assert len(scores) == 120
    assert {*scores["label_name"].to_pylist()} == {*CATEGORIES}
    ds.report(tmp_path / "scores.parquet", tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().count("data:image/webp") > 100


@pytest.mark.slow
def test_a_limit_and_a_trial_of_networks_count_objects(
    difficulty: Command, builtin: tuple[str, ...], tmp_path: Path, scenes: list[Scene]
) -> None:
    folder = WRITERS["coco"](tmp_path / "fruit", scenes)

    limited = difficulty(
        *("score", folder, "--out", tmp_path / "scores.parquet", *builtin, "--json"),
        *("--fail-above", "exact copies: 0"),
    )
    tried = ds.try_backbones(folder, backbones=["builtin"], sample=40, progress=False)

    assert json.loads(limited.stdout)["noun"] == "object"
    assert " objects, above the limit of 0" in limited.stderr
    assert tried.noun == "object"
    assert "40 objects" in tried.sentence


@pytest.mark.slow
def test_a_json_is_written_beside_that_of_the_dataset(
    difficulty: Command, builtin: tuple[str, ...], tmp_path: Path, scenes: list[Scene]
) -> None:
    annotations = WRITERS["coco"](tmp_path / "fruit", scenes) / "annotations"
    path, out = annotations / "instances_val.json", annotations / "instances_cleaned.json"
    scores, marks = tmp_path / "scores.parquet", tmp_path / "marks.csv"
    marks.write_text("sample_id,mark\nscene000.png#100,drop\n")
    difficulty("score", path, "--out", scores, *builtin)

    cleaned = difficulty("clean", scores, "--marks", marks, "--out", out)

    assert cleaned.returncode == 0, cleaned.stderr
    before, after = (json.loads(each.read_text()) for each in (path, out))
    assert after == before | {"annotations": before["annotations"][1:]}
    listed = annotations / "instances_cleaned.dropped.csv"
    assert "scene000.png#100" in listed.read_text()


@pytest.mark.slow
def test_a_json_is_for_boxes_of_coco_alone(
    difficulty: Command, builtin: tuple[str, ...], tmp_path: Path
) -> None:
    folder, marks = WRITERS["yolo"](tmp_path / "fruit", SCENES), tmp_path / "marks.csv"
    scores = tmp_path / "scores.parquet"
    marks.write_text("sample_id,mark\nimages/train/a.png#1,drop\n")
    scored = difficulty("score", folder, "--out", scores, *builtin)
    assert scored.returncode == 0, scored.stderr

    inside = difficulty("clean", scores, "--marks", marks, "--out", folder / "cleaned")
    single = difficulty("clean", scores, "--marks", marks, "--out", tmp_path / "cleaned.json")
    linked = difficulty("clean", scores, "--marks", marks, "--out", "cleaned.json", "--link")

    assert (inside.returncode, single.returncode) == (1, 1)
    assert "is inside the dataset" in inside.stderr
    assert "is one file, but the dataset keeps its boxes in several; name a folder" in single.stderr
    assert "--link and --copy need a folder" in linked.stderr


@pytest.mark.slow
def test_boxes_can_be_written_as_a_list_of_their_crops(
    difficulty: Command, builtin: tuple[str, ...], tmp_path: Path, scenes: list[Scene]
) -> None:
    scores, out = tmp_path / "scores.parquet", tmp_path / "crops.parquet"
    difficulty("score", WRITERS["voc"](tmp_path / "fruit", scenes), "--out", scores, *builtin)

    cleaned = difficulty("clean", scores, "--drop", "percentile > 0.9", "--out", out)
    again = difficulty(
        "score", out, "--id-column", "sample_id", "--out", tmp_path / "again.parquet", *builtin
    )

    assert cleaned.returncode == 0, cleaned.stderr
    assert again.returncode == 0, again.stderr
    assert len(_labels(tmp_path / "again.parquet")) == 108


@pytest.mark.slow
def test_boxes_without_a_crop_are_listed_among_the_images_that_cannot_be_read(
    difficulty: Command, builtin: tuple[str, ...], tmp_path: Path, scenes: list[Scene]
) -> None:
    folder = WRITERS["coco"](tmp_path / "fruit", scenes)
    (folder / "val/scene001.png").unlink()
    path = folder / "annotations/instances_val.json"
    content = json.loads(path.read_text())
    content["annotations"][0]["bbox"] = [500, 10, 20, 20]
    content["annotations"][1]["bbox"] = [10, 10, -5, 20]
    path.write_text(json.dumps(content))

    done = difficulty("score", folder, "--out", tmp_path / "scores.parquet", *builtin)

    assert done.returncode == 0, done.stderr
    listed = (tmp_path / "scores.features/errors.csv").read_text()
    for reason in ("no such file", "is outside of the image", "its box has no area"):
        assert reason in listed
        assert reason in done.stderr + done.stdout
    with (
        pytest.warns(UserWarning, match="its box has no area"),
        pytest.warns(UserWarning, match="4 of 119 objects could not be read"),
    ):
        ds.score_dataset(folder, backbone="builtin", progress=False)
