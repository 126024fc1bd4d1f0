"""Datasets of boxes with other categories: only what was decided differs."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from difficulty_service.base.errors import CleaningError
from difficulty_service.datasets.sample import Revision
from tests.boxed_images import (
    SCENES,
    WITH_IDS,
    WRITERS,
    image_ids,
    write_coco,
    write_cvat,
    write_label_studio,
    write_voc,
    write_yolo,
)
from tests.dataset_files import dataset_of


def _revise(location: Path, changes: Mapping[str, str | None]) -> Revision:
    dataset = dataset_of(location)
    assert dataset.revise is not None
    return dataset.revise(changes)


def _text(revision: Revision, name: str) -> str:
    return revision.changed[name].decode()


@pytest.mark.parametrize("form", list(WRITERS))
def test_a_dataset_about_which_nothing_is_decided_has_the_same_bytes(
    form: str, tmp_path: Path
) -> None:
    folder = WRITERS[form](tmp_path)
    (tmp_path / "notes.md").write_text("what people write")

    revision = _revise(folder, {"gone.png#3": None})

    assert revision.is_one_file == (form in ("coco", "label-studio", "cvat"))
    for name, data in revision.changed.items():
        before = (folder / name).read_bytes()
        assert data == before.replace(b"path: ../fruit", b'path: ""')
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {*revision.changed, *revision.others} == files
    assert revision.unknown == ["gone.png#3"]


def test_only_the_annotations_that_somebody_decided_about_differ_in_coco(tmp_path: Path) -> None:
    folder = write_coco(tmp_path)
    name = "annotations/instances_val.json"
    before = (folder / name).read_text()

    revision = _revise(folder, {"a.png#100": "plum", "b.png#103": None, "c.png#106": None})

    after = _text(revision, name)
    old, new = json.loads(before), json.loads(after)
    expected = [each for each in old["annotations"] if each["id"] not in (103, 106)]
    expected[0]["category_id"] = 13
    assert new == old | {"annotations": expected}
    # What is left of the text is what was there: the numbers as they were written, and the blanks.
    assert after.count('"score": 1.5,') == 5
    parts = re.split(r'(?<="category_id": )13', after, maxsplit=1)
    assert before.startswith(parts[0])
    assert set(after.splitlines()) - set(before.splitlines()) <= {'   "category_id": 13,', "  }"}


def test_numbers_and_blanks_of_coco_stay_as_somebody_wrote_them(tmp_path: Path) -> None:
    folder = write_coco(tmp_path)
    path = folder / "annotations/instances_val.json"
    one = '{ "bbox":[10,20,4e1,40.00] ,"category_id" :3,"id":%d, "image_id":0 , "né":"\\u00e9"}'
    head = '\ufeff{"images":[{"id":0,"file_name":"a.png","width":200,"height":100}],\r\n'
    lists = '"categories":[{"id":3,"name":"apple"} ],"annotations" : ['
    path.write_text(head + lists + " ,\n".join(one % number for number in (7, 8, 9)) + "\n]}")
    before = path.read_bytes().decode()

    first = _revise(path, {"a.png#7": None})
    last = _revise(path, {"a.png#8": None, "a.png#9": None})
    every = _revise(path, {f"a.png#{number}": None for number in (7, 8, 9)})
    new = _revise(path, {"a.png#8": "pear", "a.png#9": "melon"})

    name = "annotations/instances_val.json"
    assert _text(first, name) == before.replace(one % 7 + " ,\n", "")
    assert _text(last, name) == before.replace(" ,\n" + one % 8, "").replace(" ,\n" + one % 9, "")
    assert json.loads(_text(every, name).removeprefix("\ufeff"))["annotations"] == []
    content = json.loads(_text(new, name).removeprefix("\ufeff"))
    assert content["categories"][1:] == [{"id": 4, "name": "pear"}, {"id": 5, "name": "melon"}]
    assert [each["category_id"] for each in content["annotations"]] == [3, 4, 5]


def test_only_the_lines_that_somebody_decided_about_differ_in_yolo(tmp_path: Path) -> None:
    folder = write_yolo(tmp_path)
    (folder / "labels/train.cache").write_text("what a program made of the labels")
    path = folder / "labels/train/b.txt"
    path.write_bytes(b"2 0.425 0.35 0.25 0.5  \r\n\r\n0 0.1 0.8 0.15 0.4\r\n1 .85 .7 2e-1 0.4")

    ids = [f"images/train/b.png#{row}" for row in (1, 3, 4)]
    revision = _revise(folder, {ids[0]: None, ids[1]: "plum", ids[2]: "kiwi"})

    assert revision.changed["labels/train/b.txt"] == (
        b"\r\n2 0.1 0.8 0.15 0.4\r\n3 .85 .7 2e-1 0.4"
    )
    names = yaml.safe_load(revision.changed["data.yaml"])["names"]
    assert names == {0: "apple", 1: "leaf", 2: "plum", 3: "kiwi"}
    assert revision.changed.keys() == {"labels/train/b.txt", "data.yaml"}
    assert "labels/train.cache" not in revision.others
    (warning,) = revision.warnings
    assert warning.startswith("path in data.yaml was '../fruit' and is empty now")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("names: ['a', 'b',]  # two\n", "names: ['a', 'b', \"c: d\",]  # two\n"),
        ("names: {0: a, 1: b}\n", 'names: {0: a, 1: b, 2: "c: d"}\n'),
        ("names:\n- a\n- b\n", 'names:\n- a\n- b\n- "c: d"\n'),
        ("names:\n    0: a\n    1: b # two", 'names:\n    0: a\n    1: b\n    2: "c: d" # two'),
    ],
)
def test_a_new_class_follows_the_others_in_data_yaml(
    tmp_path: Path, names: str, expected: str
) -> None:
    folder = write_yolo(tmp_path)
    before = f"train: images/train # here\nnc: 2\n{names}"
    (folder / "data.yaml").write_text(before)

    revision = _revise(folder, {"images/train/a.png#1": "c: d"})

    text = _text(revision, "data.yaml")
    assert text == before.replace("nc: 2", "nc: 3").replace(names, expected)
    config = yaml.safe_load(text)["names"]
    assert config in (["a", "b", "c: d"], {0: "a", 1: "b", 2: "c: d"})
    assert _text(revision, "labels/train/a.txt").startswith("2 ")


def test_a_new_class_without_names_is_refused_and_with_a_list_of_names_added(
    tmp_path: Path,
) -> None:
    folder = write_yolo(tmp_path)
    (folder / "data.yaml").unlink()
    with pytest.raises(CleaningError, match="write them into classes"):
        _revise(folder, {"images/train/a.png#1": "kiwi"})
    (folder / "classes.txt").write_text("apple\nleaf\nplum")

    revision = _revise(folder, {"images/train/a.png#1": "kiwi"})

    assert _text(revision, "classes.txt") == "apple\nleaf\nplum\nkiwi\n"


def test_only_the_objects_that_somebody_decided_about_differ_in_voc(tmp_path: Path) -> None:
    folder = write_voc(tmp_path)
    path = folder / "Annotations/b.xml"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    before = path.read_bytes()

    ids = [f"JPEGImages/b.png#{number}" for number in (1, 2, 3)]
    revision = _revise(folder, {ids[0]: None, ids[2]: "crème & sugar"})

    after = revision.changed["Annotations/b.xml"]
    start, end = before.index(b"\r\n\t<object>"), before.index(b"\r\n\t<object>", 200)
    kept = before[:start] + before[end:]
    assert after == kept.replace(b"<name>leaf<", b"<name>cr&#232;me &amp; sugar<")
    objects = ET.fromstring(after).findall("object")  # noqa: S314 - written here
    assert [each.findtext("name") for each in objects] == ["apple", "crème & sugar"]
    assert [each.findtext("part/name") for each in objects] == ["stem", "stem"]
    assert revision.changed.keys() == {"Annotations/b.xml"}


@pytest.mark.parametrize("form", list(WRITERS))
def test_a_revised_dataset_is_read_with_the_decisions(form: str, tmp_path: Path) -> None:
    folder = WRITERS[form](tmp_path / "fruit")
    image = image_ids(form)["a"]
    first, second = (100, 101) if form in WITH_IDS else (1, 2)
    revision = _revise(folder, {f"{image}#{first}": None, f"{image}#{second}": "plum"})
    out = tmp_path / "cleaned"
    for name in (*revision.others, *revision.changed):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(revision.changed.get(name) or (folder / name).read_bytes())

    dataset = dataset_of(out)

    assert len(dataset.sample_ids) == sum(len(scene.boxes) for scene in SCENES) - 1
    assert dataset.class_names[dataset.labels[0]] == "plum"


def test_the_reference_library_reads_what_was_decided_in_coco(tmp_path: Path) -> None:
    library = pytest.importorskip("pycocotools.coco", reason="pycocotools is not installed")
    folder = write_coco(tmp_path / "fruit")
    revision = _revise(folder, {"a.png#100": "plum", "b.png#103": None})
    out = tmp_path / "cleaned.json"
    out.write_bytes(revision.changed["annotations/instances_val.json"])

    before = library.COCO(str(folder / "annotations/instances_val.json"))
    after = library.COCO(str(out))

    assert set(before.getAnnIds()) - set(after.getAnnIds()) == {103}
    assert after.loadCats(after.loadAnns(100)[0]["category_id"])[0]["name"] == "plum"
    same = [each for each in after.getAnnIds() if each != 100]
    assert after.loadAnns(same) == before.loadAnns(same)
    assert after.imgs == before.imgs
    assert after.getImgIds(catIds=after.getCatIds(["plum"])) == [0, 1, 2]


def test_lines_of_yolo_are_what_the_format_allows(tmp_path: Path) -> None:
    """A class below the number of names, and four shares of the image, as its trainers check."""
    folder = write_yolo(tmp_path)
    image = image_ids("yolo")["b"]
    revision = _revise(folder, {f"{image}#1": None, f"{image}#2": "pear"})

    config = yaml.safe_load(revision.changed["data.yaml"])
    lines = [
        line.split()
        for name, data in revision.changed.items()
        if name.endswith(".txt")
        for line in bytes(data).decode().splitlines()  # type: ignore[arg-type]
    ]

    assert config["names"][3] == "pear"
    assert [int(line[0]) for line in lines] == [3, 1]
    assert all(len(line) == 5 for line in lines)
    assert all(0 <= float(number) <= 1 for line in lines for number in line[1:])


def test_torchvision_reads_what_was_decided_in_pascal_voc(tmp_path: Path) -> None:
    from torchvision.datasets import VOCDetection

    folder = write_voc(tmp_path)
    image = image_ids("voc")["a"]
    revision = _revise(folder, {f"{image}#1": "plum", f"{image}#2": None})

    content = revision.changed["Annotations/a.xml"]
    read = VOCDetection.parse_voc_xml(ET.fromstring(content))  # noqa: S314 - written here

    (only,) = read["annotation"]["object"]
    assert only["name"] == "plum"
    assert only["bndbox"] == {"xmin": "11", "ymin": "21", "xmax": "50", "ymax": "60"}


def test_a_file_of_coco_is_written_with_its_images_where_they_were_beside_it(
    tmp_path: Path,
) -> None:
    folder = write_coco(tmp_path)
    (folder / "other").mkdir()
    (folder / "other/film.mp4").write_text("of another dataset")

    revision = _revise(folder / "annotations/instances_val.json", {"a.png#100": None})

    assert revision.root.path == str(folder)
    assert revision.changed.keys() == {"annotations/instances_val.json"}
    assert [*revision.others] == [f"val/{scene.name}.png" for scene in SCENES]


def test_only_the_regions_that_somebody_decided_about_differ_in_label_studio(
    tmp_path: Path,
) -> None:
    folder = write_label_studio(tmp_path)
    path = folder / "project-1.json"
    content = json.loads(path.read_text())
    results = content[1]["annotations"][0]["result"]
    about = {"id": "103", "type": "choices", "value": {"choices": ["ripe"]}, "né": 1e3}
    relations = [
        {"type": "relation", "from_id": "102", "to_id": each, "labels": ["on"]}
        for each in ("103", "104")
    ]
    results += [about, *relations]
    content[1]["predictions"] = [{"result": results}]
    path.write_text(json.dumps(content, indent=1).replace("1.5,", "1.50 ,"))
    before = path.read_text()

    revision = _revise(
        folder,
        {"images/a.png#100": "crème", "images/b.png#103": None, "images/c.png#105": "leaf"},
    )

    after = _text(revision, "project-1.json")
    expected = json.loads(before)
    expected[0]["annotations"][0]["result"][0]["value"]["rectanglelabels"] = ["crème"]
    kept = expected[1]["annotations"][0]["result"]
    # With the region go what was said of it and its relations, not those of others.
    expected[1]["annotations"][0]["result"] = [kept[0], kept[2], kept[5]]
    assert json.loads(after) == expected
    assert after.count("1.50 ,") == before.count("1.50 ,") - 2
    assert after.replace('"crème"', '"apple"', 1).startswith(before[: before.index('"103"') - 300])
    assert [*revision.others] == [f"images/{scene.name}.png" for scene in SCENES]


def test_only_the_shapes_that_somebody_decided_about_differ_in_cvat(tmp_path: Path) -> None:
    path = write_cvat(tmp_path) / "annotations.xml"
    text = path.read_text().replace(
        '<box label="leaf" source', "<box a='label=\"x\"' label='leaf' s"
    )
    empty = '<box label="plum" xtl="1" ytl="1" xbr="9" ybr="9"/>'
    text = text.replace("  </image>", f"    {empty}\n  </image>", 1).replace("\n", "\r\n")
    path.write_bytes(text.encode())
    before = path.read_bytes()

    ids = [f"images/a.png#{number}" for number in (1, 2, 3)]
    revision = _revise(tmp_path, {ids[0]: None, ids[1]: "d'été & \"<", ids[2]: None})
    moved = _revise(path, {ids[1]: "plum"})

    after = revision.changed["annotations.xml"]
    start, end = before.index(b"\r\n    <box"), before.index(b"\r\n    <box a=")
    expected = before[:start] + before[end:]
    new = b"d&apos;&#233;t&#233; &amp; &quot;&lt;"
    expected = expected.replace(b"label='leaf'", b"label='" + new + b"'", 1)
    expected = expected.replace(f"\r\n    {empty}".encode(), b"")
    label = b"        <label><name>d'&#233;t&#233; &amp; \"&lt;</name>"
    label += b"<type>any</type><attributes></attributes></label>\r\n"
    assert after == expected.replace(b"      </labels>", label + b"      </labels>")
    document = ET.fromstring(after)  # noqa: S314 - written here
    (box,) = document.findall("image[@name='a.png']/box")
    assert (box.get("label"), box.get("a")) == ("d'été & \"<", 'label="x"')
    assert moved.changed["annotations.xml"] == before.replace(b"label='leaf'", b"label='plum'", 1)
    assert [*moved.others] == [f"images/{scene.name}.png" for scene in SCENES]
