"""Boxes of every format as samples: ids, labels, crops, and what is wrong."""

import io
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets import recognition
from difficulty_service.datasets.sample import Dataset, TableLimits
from difficulty_service.datasets.storage import boundary_at
from tests.boxed_images import (
    CATEGORIES,
    COLOURS,
    SCENES,
    WITH_IDS,
    WRITERS,
    Scene,
    image_ids,
    shown,
    with_wrong_regions,
    with_wrong_shapes,
    write_coco,
    write_image,
    write_voc,
    write_yolo,
)
from tests.dataset_files import dataset_of, read_samples


@pytest.fixture(params=list(WRITERS))
def form(request: pytest.FixtureRequest) -> str:
    """A format of boxes."""
    return str(request.param)


# type: ignore[arg-type]


def _labels(dataset: Dataset) -> dict[str, str]:
    """The category of each sample."""
    names = [dataset.class_names[label] for label in dataset.labels.tolist()]
    return dict(zip(dataset.sample_ids, names, strict=True))


def _expected(form: str) -> dict[str, str]:
    images = image_ids(form)
    if form in WITH_IDS:
        boxes = [(scene.name, box[0]) for scene in SCENES for box in scene.boxes]
        return {f"{images[name]}#{100 + row}": each for row, (name, each) in enumerate(boxes)}
    return {
        f"{images[scene.name]}#{number}": box[0]
        for scene in SCENES
        for number, box in enumerate(scene.boxes, 1)
    }


def test_a_box_is_a_sample_whose_label_is_its_category(form: str, tmp_path: Path) -> None:
    dataset = dataset_of(WRITERS[form](tmp_path / "fruit"))

    assert recognition.detect_kind(dataset.location) == form
    assert dataset.class_names == CATEGORIES
    assert _labels(dataset) == _expected(form)


def test_a_crop_shows_the_object_with_what_is_around_it(form: str, tmp_path: Path) -> None:
    dataset = dataset_of(WRITERS[form](tmp_path / "fruit"))

    contents = read_samples(dataset)

    for sample_id, category in _labels(dataset).items():
        assert shown(contents[sample_id]) == category
    # The leaf of scene a, 40 pixels wide and 50 high, in a square with a tenth on each side.
    with Image.open(io.BytesIO(contents[dataset.sample_ids[1]])) as crop:  # type: ignore[arg-type]
        assert crop.size == (60, 60)
        pixels = np.asarray(crop).astype(int)
    is_leaf = (pixels == COLOURS["leaf"]).all(axis=2)
    assert is_leaf.sum() == 40 * 50
    assert is_leaf[5:55, 10:50].all()


def test_a_dataset_of_boxes_can_be_sent_to_another_process(form: str, tmp_path: Path) -> None:
    dataset = dataset_of(WRITERS[form](tmp_path / "fruit"))

    again = pickle.loads(pickle.dumps(dataset))  # noqa: S301

    (first, *_) = again.read_shard(0)
    assert first.open().read() == next(iter(dataset.read_shard(0))).open().read()


def test_ids_and_fingerprint_of_boxes_stay_when_the_folder_moves(form: str, tmp_path: Path) -> None:
    folder = WRITERS[form](tmp_path / "fruit")
    before = dataset_of(folder)
    shutil.move(folder, tmp_path / "elsewhere" / "deeper")

    after = dataset_of(tmp_path / "elsewhere")

    assert after.sample_ids == before.sample_ids
    assert after.fingerprint == before.fingerprint


def test_the_fingerprint_changes_with_a_side_of_a_box(tmp_path: Path) -> None:
    folder = write_yolo(tmp_path / "fruit")
    before = dataset_of(folder).fingerprint
    text = folder / "labels/train/a.txt"
    text.write_text(text.read_text().replace("0.400000", "0.410000", 1))

    assert dataset_of(folder).fingerprint != before


def test_images_that_are_missing_or_damaged_are_the_reason_at_each_of_their_boxes(
    form: str, tmp_path: Path
) -> None:
    folder = WRITERS[form](tmp_path / "fruit")
    path = next(folder.rglob("b.png"))
    path.write_bytes(path.read_bytes()[:300])
    next(folder.rglob("c.png")).unlink()

    dataset = dataset_of(folder)
    contents = read_samples(dataset)

    assert len([data for data in contents.values() if isinstance(data, bytes)]) == 2
    reasons = [data for data in contents.values() if isinstance(data, str)]
    assert len([reason for reason in reasons if "cannot be decoded" in reason]) == 3
    if form == "yolo":  # a text without an image is not known to have boxes of one
        assert ("labels/train/c.txt", "no image has the name of this text") in dataset.skipped
    else:
        assert (
            len([reason for reason in reasons if "no such file" in reason or "name" in reason]) == 2
        )


def test_boxes_that_are_none_are_listed_with_the_reason(form: str, tmp_path: Path) -> None:
    folder = WRITERS[form](tmp_path / "fruit")
    if form == "coco":
        path = folder / "annotations/instances_val.json"
        content = json.loads(path.read_text())
        boxes = [[1, 2, 0, 5], ["x", 2, 3, 4], [1, 2, 3], None, [1, 2, float("nan"), 4]]
        added = [
            {"id": 900 + row, "image_id": 0, "category_id": 3, "bbox": box}
            for row, box in enumerate(boxes)
        ]
        other = {"id": 910, "image_id": 0, "category_id": 4, "bbox": [1, 1, 9, 9]}
        added += [other, other | {"id": 911, "image_id": 77}, other | {"id": None}]
        content["annotations"] += [*added, content["annotations"][0]]
        path.write_text(json.dumps(content))
        expected = {
            "a.png#900": "its box has no area",
            **{f"a.png#{row}": "its box is not four numbers" for row in range(901, 905)},
            "a.png#910": "there is no category 4",
            "annotation 911": "there is no image 77",
            "a.png##14": "it has no id",
            "a.png#100": "another box of the image has the same name",
        }
    elif form == "yolo":
        with (folder / "labels/train/a.txt").open("a") as file:
            file.write("\n0 .5 .5 0 .1\n0 .5 .5\nx .5 .5 .1 .1\n7 .5 .5 .1 .1\n0.5 .5 .5 .1 .1\n")
            file.write("1 .5 .5 nan .1\n")
        expected = {
            "images/train/a.png#4": "its box has no area",
            "images/train/a.png#5": "its line has 2 numbers after the class, not 4",
            "images/train/a.png#6": "its line has other words than numbers",
            "images/train/a.png#7": "there is no class 7 among the 3 of the dataset",
            "images/train/a.png#8": "its class '0.5' is no whole number",
            "images/train/a.png#9": "its box is not four numbers",
        }
    elif form == "label-studio":
        expected = with_wrong_regions(folder / "project-1.json")
    elif form == "cvat":
        expected = with_wrong_shapes(folder / "annotations.xml")
    else:
        path = folder / "Annotations/a.xml"
        path.write_text(
            path.read_text()
            .replace("<xmax>50", "<xmax>5", 1)
            .replace("<name>leaf", "<name>")
            .replace("</annotation>", "<object><name>leaf</name></object></annotation>")
        )
        (folder / "Annotations/b.xml").write_text("<annotation><object>")
        expected = {
            "Annotations/b.xml": "its boxes cannot be read: no element found: line 1, column 20",
            "JPEGImages/a.png#1": "its box has no area",
            "JPEGImages/a.png#2": "it has no category",
            "JPEGImages/a.png#3": "its box is not four numbers",
        }

    dataset = dataset_of(folder)

    assert dict(dataset.skipped) == expected
    assert len(dataset.skipped) == len(expected)
    assert "skipped" in " ".join(dataset.warnings)


def test_a_box_outside_of_its_image_or_of_few_pixels_is_an_image_that_cannot_be_read(
    tmp_path: Path,
) -> None:
    scenes = [
        Scene("a", [("apple", 10, 20, 40, 40), ("leaf", 230, 30, 40, 50), ("plum", 9, 9, 3, 50)])
    ]

    contents = read_samples(dataset_of(write_coco(tmp_path, scenes)))

    assert isinstance(contents["a.png#100"], bytes)
    assert contents["a.png#101"] == (
        "its box (230, 30, 270, 80) is outside of the image of 200 x 100 pixels"
    )
    assert contents["a.png#102"] == (
        "its box has 3 x 50 pixels, and below 4 nobody can tell what it shows"
    )


def test_boxes_around_the_same_object_are_named_in_a_warning(form: str, tmp_path: Path) -> None:
    boxes = [("apple", 10, 20, 40, 40), ("leaf", 10, 20, 40, 40), ("apple", 11, 20, 40, 40)]

    dataset = dataset_of(WRITERS[form](tmp_path, [Scene("a", boxes)]))

    first, _, third = dataset.sample_ids
    (warning,) = [each for each in dataset.warnings if "same object" in each]
    assert warning.endswith(f"{third!r} of {first!r}")
    assert warning.startswith("1 box is around")


def test_images_without_boxes_are_no_samples(form: str, tmp_path: Path) -> None:
    dataset = dataset_of(WRITERS[form](tmp_path))

    assert not [name for name in dataset.sample_ids if "empty" in name]
    assert "1 image has no box" in dataset.warnings


def test_boxes_of_an_image_that_was_resized_or_is_stored_on_its_side_are_where_they_were(
    tmp_path: Path,
) -> None:
    folder = write_coco(tmp_path)
    before = read_samples(dataset_of(folder))
    with Image.open(folder / "val/a.png") as image:
        image.resize((100, 50)).save(folder / "val/a.png")
    with Image.open(folder / "val/b.png") as image:
        exif = Image.Exif()
        exif[0x0112] = 6
        # The annotations are of the pixels as stored; whoever looks sees them turned to the right.
        image.save(folder / "val/b.png", exif=exif)
    with Image.open(folder / "val/c.png") as image:
        image.crop((0, 0, 100, 100)).save(folder / "val/c.png")

    after = read_samples(dataset_of(folder))

    for sample_id in before:
        if sample_id.startswith("c.png"):
            assert after[sample_id] == (
                "its box is of an image of 200 x 100 pixels, and this one has 100 x 100"
            )
        else:
            assert shown(after[sample_id]) == shown(before[sample_id])


def test_an_image_with_many_boxes_is_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from difficulty_service.images import crops

    folder = write_yolo(tmp_path, [Scene("once", SCENES[1].boxes)])
    decode, calls = crops.decode_to_pil, list[object]()
    monkeypatch.setattr(crops, "decode_to_pil", lambda *each: calls.append(each) or decode(*each))
    crops._RECENT.clear()

    assert len(read_samples(dataset_of(folder))) == 3

    assert len(calls) == 1


@pytest.mark.parametrize("form", ["coco", "yolo", "voc"], indirect=True)
def test_a_split_is_chosen_by_its_name(form: str, tmp_path: Path) -> None:
    folder = WRITERS[form](tmp_path / "fruit")
    if form == "coco":
        write_coco(folder, SCENES[2:], "train2017")
    elif form == "yolo":
        write_yolo(folder, splits=("train", "val"))

    dataset = dataset_of(folder, split="train")

    if form == "yolo":
        assert dataset.sample_ids[0] == "images/train/a.png#1"
        assert len(dataset.sample_ids) == 7
    else:
        assert len(dataset.sample_ids) == {"coco": 2, "voc": 5}[form]
    if form == "voc":
        assert len(dataset_of(folder).sample_ids) == 7
    else:
        with pytest.raises(DatasetError, match="holds the splits"):
            dataset_of(folder)
    with pytest.raises(DatasetError, match="no split 'nowhere'"):
        dataset_of(folder, split="nowhere")


def test_one_file_names_a_dataset(tmp_path: Path) -> None:
    coco, yolo = write_coco(tmp_path / "coco"), write_yolo(tmp_path / "yolo")

    for path in (coco / "annotations/instances_val.json", yolo / "data.yaml"):
        assert len(dataset_of(path).sample_ids) == 7


def test_yolo_without_a_file_that_names_classes_has_numbers(tmp_path: Path) -> None:
    folder = write_yolo(tmp_path)
    (folder / "data.yaml").unlink()
    assert dataset_of(folder).class_names == ("0", "1", "2")

    (folder / "classes.txt").write_text("apple\nleaf\nplum\n")

    assert dataset_of(folder).class_names == CATEGORIES


def test_yolo_reads_outlines_confidences_and_key_points(tmp_path: Path) -> None:
    folder = write_yolo(tmp_path)
    outline = "1 0.60 0.30 0.80 0.30 0.80 0.80 0.60 0.80\n0 0.15 0.4 0.2 0.4 0.93\n"
    (folder / "labels/train/a.txt").write_text(outline)

    contents = read_samples(dataset_of(folder))

    assert shown(contents["images/train/a.png#1"]) == "leaf"
    assert shown(contents["images/train/a.png#2"]) == "apple"

    with (folder / "data.yaml").open("a") as file:
        file.write("kpt_shape: [2, 2]\n")
    (folder / "labels/train/a.txt").write_text("1 0.7 0.55 0.2 0.5 0.1 0.1 0.9 0.9\n")

    contents = read_samples(dataset_of(folder))

    with Image.open(io.BytesIO(contents["images/train/a.png#1"])) as crop:  # type: ignore[arg-type]
        assert crop.size == (60, 60)


@pytest.mark.parametrize(
    "lines",
    [
        "train: ../train/images\nval: ../valid/images\n",
        "path: /home/somebody/fruit\ntrain: train/images\nval: valid/images\n",
        "train: [train/images]\nval: valid/images\n",
        "train: train.txt\nval: valid/images\n",
    ],
)
def test_yolo_finds_the_images_of_datasets_that_were_made_elsewhere(
    tmp_path: Path, lines: str
) -> None:
    folder = tmp_path / "fruit"
    for split in ("train", "valid"):
        for scene in SCENES:
            write_image(folder / split / "images" / f"{scene.name}.png", scene)
        (folder / split / "labels").mkdir()
        (folder / split / "labels/a.txt").write_text("0 0.15 0.4 0.2 0.4\n")
    (folder / "train.txt").write_text("./train/images/a.png\n/data/fruit/train/images/b.png\n")
    (folder / "data.yaml").write_text(f"{lines}nc: 1\nnames: ['apple']\n")

    assert dataset_of(folder, split="train").sample_ids == ["train/images/a.png#1"]
    assert dataset_of(folder, split="valid").sample_ids == ["valid/images/a.png#1"]


def test_files_of_each_split_beside_the_images_are_found(tmp_path: Path) -> None:
    coco = write_coco(tmp_path / "coco") / "annotations/instances_val.json"
    for split in ("train", "test"):
        (tmp_path / "robo" / split).mkdir(parents=True)
        shutil.copy(coco, tmp_path / "robo" / split / "_annotations.coco.json")
        for path in (tmp_path / "coco/val").iterdir():
            shutil.copy(path, tmp_path / "robo" / split)
    voc = write_voc(tmp_path / "voc")
    for split in ("train", "valid"):
        shutil.copytree(voc / "JPEGImages", tmp_path / "both" / split)
        for path in (voc / "Annotations").iterdir():
            shutil.copy(path, tmp_path / "both" / split)

    assert len(dataset_of(tmp_path / "robo", split="train").sample_ids) == 7
    assert dataset_of(tmp_path / "both", split="valid").sample_ids[0] == "valid/a.png#1"


def test_damaged_annotations_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = write_coco(tmp_path) / "annotations/instances_val.json"
    text = path.read_text()

    for broken in (
        text[:-30],
        text.replace('"bbox":', '"bbox"', 1),
        text + "",
        text[:40] + "[" * 9999,
    ):
        if broken == text:
            continue
        path.write_text(broken)
        with pytest.raises(DatasetError, match=r"'instances_val.json' (is damaged|has no list)"):
            dataset_of(path)


def test_captions_are_refused_with_what_to_name_instead(tmp_path: Path) -> None:
    path = tmp_path / "captions.json"
    path.write_text('{"info": {}, "images": [], "annotations": []}')

    with pytest.raises(DatasetError, match="no list of categories; name a file with the boxes"):
        dataset_of(path)


def test_entities_of_xml_are_refused(tmp_path: Path) -> None:
    folder = write_voc(tmp_path)
    path = folder / "Annotations/a.xml"
    path.write_text('<!DOCTYPE a [<!ENTITY x "y">]>' + path.read_text())

    assert ("Annotations/a.xml", "its boxes cannot be read: it declares entities") in dataset_of(
        folder
    ).skipped


@pytest.mark.parametrize("key", ["names", "train", "path"])
def test_aliases_of_yaml_that_repeat_each_other_are_never_written_out(
    key: str, tmp_path: Path
) -> None:
    folder = write_yolo(tmp_path / "fruit")
    repeated = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
    given = {"names": "[cat]", "train": "images", key: "*a11"}
    config = folder / "data.yaml"
    config.write_text(
        f"a0: &a0 [x]\n{repeated}" + "".join(f"{name}: {value}\n" for name, value in given.items())
    )

    with pytest.raises(DatasetError, match=r"'data\.yaml' has .* neither a .*; correct it"):
        dataset_of(config)


def test_links_that_lead_out_of_a_boundary_are_not_read(form: str, tmp_path: Path) -> None:
    folder = WRITERS[form](tmp_path / "root/fruit")
    secret = tmp_path / "secret.png"
    path = next(folder.rglob("a.png"))
    path.rename(secret)
    path.symlink_to(secret)

    contents = read_samples(dataset_of(folder, boundary=boundary_at(str(tmp_path / "root"))))

    reasons = [data for data in contents.values() if isinstance(data, str)]
    assert len(reasons) == 2
    assert all("outside" in reason for reason in reasons)


def test_limits_hold_for_boxes(form: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="7 rows, the maximum is 6"):
        dataset_of(WRITERS[form](tmp_path), limits=TableLimits(6, 1000))


def test_boxes_without_labels_are_of_one_class(form: str, tmp_path: Path) -> None:
    dataset = dataset_of(WRITERS[form](tmp_path), unlabelled=True)

    assert dataset.class_names == ("unlabelled",)
    assert len(dataset.sample_ids) == 7


def test_class_folders_called_like_parts_of_such_datasets_stay_class_folders(
    tmp_path: Path,
) -> None:
    for name in ("images/x.png", "labels/x.png", "masks/x.png"):
        write_image(tmp_path / "photos" / name, SCENES[0])
    for name in ("cat", "Annotations"):
        write_image(tmp_path / "others" / name / "x.png", SCENES[0])

    assert recognition.detect_kind(str(tmp_path / "photos")) == "image-folder"
    assert dataset_of(tmp_path / "others").class_names == ("Annotations", "cat")


def test_archives_of_boxes_are_to_be_unpacked_or_named_by_a_uri(form: str, tmp_path: Path) -> None:
    folder = WRITERS[form](tmp_path / "fruit")
    if form == "coco":
        write_coco(folder, SCENES, "train2017")
    archive = shutil.make_archive(str(tmp_path / "fruit"), "zip", folder)

    with pytest.raises(DatasetError, match="unpack it"):
        dataset_of(Path(archive))

    split = "train" if form in ("coco", "yolo", "voc") else None
    in_archive = dataset_of(f"zip://::{archive}", split=split)
    assert in_archive.sample_ids == dataset_of(folder, split=split).sample_ids
