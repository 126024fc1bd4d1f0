"""Where objects have outlines, what is outside of them is grey on request."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from difficulty_service.base.errors import DatasetError
from difficulty_service.images.crops import Crop
from tests.boxed_images import COLOURS, HEIGHT, WIDTH, WRITERS, image_ids
from tests.dataset_files import dataset_of, read_samples

TRIANGLE = ((10, 60), (50, 60), (30, 20))
"""Outline of the first box, which goes from (10, 20) to (50, 60)."""


def in_coco(folder: Path) -> None:
    path = folder / "annotations" / "instances_val.json"
    content = json.loads(path.read_text())
    for each in content["annotations"]:
        each["segmentation"] = {"counts": "abc", "size": [HEIGHT, WIDTH]}
    content["annotations"][0]["segmentation"] = [[each for point in TRIANGLE for each in point]]
    path.write_text(json.dumps(content))


def in_yolo(folder: Path) -> None:
    path = folder / "labels" / "train" / "a.txt"
    _, *others = path.read_text().splitlines()
    numbers = [f"{x / WIDTH:.6f} {y / HEIGHT:.6f}" for x, y in TRIANGLE]
    path.write_text("\n".join([f"0 {' '.join(numbers)}", *others]))


def in_label_studio(folder: Path) -> None:
    path = folder / "project-1.json"
    content = json.loads(path.read_text())
    result = content[0]["annotations"][0]["result"][0]
    points = [[100 * x / WIDTH, 100 * y / HEIGHT] for x, y in TRIANGLE]
    result |= {
        "type": "polygonlabels",
        "value": {"points": points, "polygonlabels": ["apple"]},
    }
    path.write_text(json.dumps(content))


def in_cvat(folder: Path) -> None:
    path = folder / "annotations.xml"
    points = ";".join(f"{x}.00,{y}.00" for x, y in TRIANGLE)
    polygon = f'<polygon label="apple" points="{points}"/>'
    path.write_text(re.sub(r"<box .*?</box>", polygon, path.read_text(), count=1, flags=re.DOTALL))


OUTLINED = {
    "coco": in_coco,
    "yolo": in_yolo,
    "label-studio": in_label_studio,
    "cvat": in_cvat,
}


@pytest.mark.parametrize("form", OUTLINED)
def test_what_is_outside_of_an_outline_becomes_grey(form: str, tmp_path: Path) -> None:
    folder = WRITERS[form](tmp_path / "fruit")
    OUTLINED[form](folder)
    plain = dataset_of(folder)
    outlined = dataset_of(folder, outlines=True)
    first = plain.sample_ids[0]

    before, after = (pixels(read_samples(each)[first]) for each in (plain, outlined))

    # The crop begins four pixels beside the box, at (6, 16); the triangle is in it from (4, 4) on.
    rows, columns = np.mgrid[: len(after), : len(after[0])]
    inside = (abs(columns - 24) < (rows - 4) / 2 - 2) & (rows < 42)
    outside = (abs(columns - 24) > (rows - 4) / 2 + 2) | (rows > 46)
    assert first.startswith(f"{image_ids(form)['a']}#")
    assert (abs(after[inside] - COLOURS["apple"]) < 10).all()
    assert (after[outside] == 128).all()
    assert (before[6:42, 6:42] == COLOURS["apple"]).all()
    others = plain.sample_ids[1:]
    assert all(read_samples(plain)[each] == read_samples(outlined)[each] for each in others)
    assert f"{len(others)} boxes have no outline, so all is shown" in outlined.warnings
    assert plain.fingerprint != outlined.fingerprint


def pixels(data: bytes | str) -> np.ndarray:
    assert isinstance(data, bytes), data
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image).astype(int)


def test_outlines_are_asked_for_where_there_are_some(tmp_path: Path) -> None:
    boxes = WRITERS["voc"](tmp_path / "fruit")
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "cat" / "a.png")

    with pytest.raises(DatasetError, match=r"no box of .* has an outline"):
        dataset_of(boxes, outlines=True)
    with pytest.raises(DatasetError, match="outlines are those of objects in boxes"):
        dataset_of(tmp_path / "photos", outlines=True)


@pytest.mark.parametrize("turn", [5, 6, 7, 8])
def test_an_outline_of_the_image_as_it_is_stored_turns_with_the_image(turn: int) -> None:
    noise = np.random.default_rng(0).integers(0, 100, (40, 60, 3), np.uint8)
    crop = Crop((10, 8, 30, 28), (60, 40), (((10, 28), (30, 28), (12, 8)),))
    stored, upright = io.BytesIO(), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = turn
    Image.fromarray(noise).save(stored, "PNG")
    Image.fromarray(noise).save(upright, "PNG", exif=exif)

    expected = Image.open(io.BytesIO(crop.cut(stored.getvalue(), 10_000)))
    found = pixels(crop.cut(upright.getvalue(), 10_000))

    expected.getexif()[0x0112] = turn
    turned = np.asarray(ImageOps.exif_transpose(expected)).astype(int)
    assert found.shape == turned.shape
    # The pixels on the edges of a polygon depend on from where they are counted.
    assert (found == turned).all(axis=2).mean() > 0.9
    assert 0.4 < (found == 128).all(axis=2).mean() < 0.8
