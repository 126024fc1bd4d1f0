"""Objects whose boxes are gone, in every format of boxes."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import difficulty_service as ds
from difficulty_service.analyses.missing_boxes.find import SCHEMA, MissingBoxes
from difficulty_service.base.errors import ConfigError, DatasetError, FeatureStoreError
from tests.boxed_images import HEIGHT, WIDTH, WRITERS, Box, Scene, many_scenes, write_image
from tests.dataset_files import dataset_of
from tests.small_network import SMALL

pytestmark = pytest.mark.usefixtures("small_networks")

GONE = (3, 8, 21)
"""Scenes whose second box is gone."""


def annotated(scenes: list[Scene]) -> list[Scene]:
    """The scenes without some boxes; the others are as far off as people draw them."""
    random = np.random.default_rng(0)

    def drawn(box: Box) -> Box:
        label, left, top, width, height = box
        across, down = random.integers(-8, 9, 2).tolist()
        return label, max(0, left + across), max(0, top + down), width, height

    return [
        Scene(
            scene.name,
            [
                drawn(box)
                for number, box in enumerate(scene.boxes)
                if place not in GONE or number != 1
            ],
        )
        for place, scene in enumerate(scenes)
    ]


def scored(form: str, folder: Path, **options: object) -> Path:
    """The score file of a dataset whose images show objects without a box."""
    scenes = many_scenes(40)
    data = WRITERS[form](folder / "fruit", annotated(scenes))
    for scene in scenes:
        write_image(next(data.rglob(f"{scene.name}.png")), scene)
    out = folder / "scores.parquet"
    score(data, out, **options)
    return out


def score(data: Path, out: Path, **options: object) -> None:
    """Scores boxes, whatever there is to warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ds.score_dataset(data, backbone=SMALL, out=out, progress=False, **options)  # type: ignore[arg-type]


def first(found: MissingBoxes) -> list[dict[str, object]]:
    """As many of the first regions as there are missing boxes."""
    rows: list[dict[str, object]] = found.table[: len(GONE)].to_pylist()
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("form", list(WRITERS))
def test_objects_without_a_box_are_the_first_regions_in_every_format(
    form: str, tmp_path: Path
) -> None:
    scores = scored(form, tmp_path)

    found = ds.missing_boxes(scores, count=20, progress=False)

    scenes = many_scenes(40)
    gone = {scenes[place].name: scenes[place].boxes[1] for place in GONE}
    assert found.num_images == found.images_of_dataset == 40
    assert len(found.table) == 20
    for row in first(found):
        (name,) = (each for each in gone if each in str(row["image"]))
        label, left, top, width, height = gone.pop(name)
        x, y, side = (float(str(row[key])) for key in ("x", "y", "width"))
        assert row["width"] == row["height"]
        assert row["label"] == label
        assert abs(x + side / 2 - left - width / 2) < side / 2
        assert abs(y + side / 2 - top - height / 2) < side / 2
    assert not gone


@pytest.mark.slow
def test_regions_are_inside_the_image_apart_and_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = scored("coco", tmp_path)

    found = ds.missing_boxes(scores, out=tmp_path / "missing.csv", sample=10, progress=True)

    assert "window/s" in capsys.readouterr().err

    assert found.table.schema == SCHEMA
    assert found.num_images == 10
    assert (tmp_path / "missing.csv").read_text().count("\n") == len(found.table) + 1
    rows = found.table.to_pylist()
    scores_of = [row["score"] for row in rows]
    assert scores_of == sorted(scores_of, reverse=True)
    for row in rows:
        assert 0 <= row["x"] <= WIDTH - row["width"]
        assert 0 <= row["y"] <= HEIGHT - row["height"]


@pytest.mark.slow
def test_the_same_seed_finds_the_same(tmp_path: Path) -> None:
    scores = scored("coco", tmp_path)

    one, same, other = (
        ds.missing_boxes(scores, sample=8, seed=seed, progress=False) for seed in (1, 1, 2)
    )

    assert one.table == same.table
    assert set(one.table["image"].to_pylist()) != set(other.table["image"].to_pylist())


@pytest.mark.slow
def test_images_without_a_box_are_searched(tmp_path: Path) -> None:
    data = WRITERS["yolo"](tmp_path / "fruit", [*many_scenes(30), Scene("bare", [])])
    write_image(next(data.rglob("bare.png")), Scene("bare", [("plum", 60, 20, 48, 48)]))
    score(data, tmp_path / "s.parquet")

    found = ds.missing_boxes(tmp_path / "s.parquet", progress=False)

    assert "bare" in found.table["image"][0].as_py()
    assert found.table["label"][0].as_py() == "plum"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["coco", "yolo"])
@pytest.mark.filterwarnings("ignore:.*differs from the dataset that was scored")
def test_images_that_cannot_be_read_are_left_out_with_a_warning(form: str, tmp_path: Path) -> None:
    scores = scored(form, tmp_path)
    next((tmp_path / "fruit").rglob("scene000.png")).write_bytes(b"no image")

    with pytest.warns(UserWarning, match="1 image cannot be read, the first is .*scene000"):
        found = ds.missing_boxes(scores, progress=False)

    assert found.num_images == 39


@pytest.mark.slow
def test_whole_images_are_refused(tmp_path: Path) -> None:
    for label in ("apple", "plum"):
        for number in range(12):
            scene = Scene(f"{label}{number}", [(label, 5 * number, 10, 40, 40)])
            write_image(tmp_path / "data" / label / f"{number}.png", scene)
    score(tmp_path / "data", tmp_path / "s.parquet")

    with pytest.raises(DatasetError, match="whole images and not boxes"):
        ds.missing_boxes(tmp_path / "s.parquet", progress=False)


@pytest.mark.slow
def test_features_of_random_views_are_refused(tmp_path: Path) -> None:
    scores = scored("coco", tmp_path, augment_runs=2)

    with pytest.raises(FeatureStoreError, match="random views"):
        ds.missing_boxes(scores, progress=False)


@pytest.mark.slow
def test_features_of_objects_alone_are_refused(tmp_path: Path) -> None:
    data = WRITERS["coco"](tmp_path / "fruit", many_scenes(12))
    annotations = data / "annotations" / "instances_val.json"
    content = json.loads(annotations.read_text())
    for each in content["annotations"]:
        left, top, width, height = each["bbox"]
        each["segmentation"] = [[left, top, left + width, top, left, top + height]]
    annotations.write_text(json.dumps(content))
    score(data, tmp_path / "s.parquet", outlines=True)

    with pytest.raises(FeatureStoreError, match="outlines"):
        ds.missing_boxes(tmp_path / "s.parquet", progress=False)


@pytest.mark.slow
def test_a_sample_without_any_box_is_refused(tmp_path: Path) -> None:
    data = WRITERS["coco"](
        tmp_path / "fruit", [*many_scenes(12), *(Scene(f"e{number}", []) for number in range(40))]
    )
    score(data, tmp_path / "s.parquet")

    with pytest.raises(DatasetError, match=r"none of the 1 image.*raise sample"):
        ds.missing_boxes(tmp_path / "s.parquet", sample=1, progress=False)


@pytest.mark.parametrize("name", ["sample", "count"])
def test_numbers_of_nothing_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=name):
        ds.missing_boxes(tmp_path / "none.parquet", **{name: 0})  # type: ignore[arg-type]


def test_the_whole_images_are_known_whatever_the_limit(tmp_path: Path) -> None:
    data = WRITERS["coco"](tmp_path / "fruit", many_scenes(10))

    dataset = dataset_of(data, limit=5)

    assert dataset.scenes is not None
    assert len(dataset.labels) == 5
    assert len(dataset.scenes.names) == 10
    assert len(dataset.scenes.rows) == len(dataset.scenes.sides) == 30
