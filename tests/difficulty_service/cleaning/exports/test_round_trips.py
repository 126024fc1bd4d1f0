"""What people decide in another tool about an export, and take back as marks.

Label Studio's files have the form that its converter writes, CVAT's that of "CVAT for images 1.1",
and FiftyOne's that of its exporters; none of them is installed here.
"""

import csv
import json
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest

from difficulty_service.base.errors import CleaningError, ScoreFileError
from difficulty_service.cleaning.decisions import CleaningRules, decide
from difficulty_service.cleaning.exports import export_folder
from difficulty_service.marks.annotations import cvat_name
from difficulty_service.marks.files import read_marks
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import NO_MARKS, MarkedSample, Marks
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from tests.difficulty_service.cleaning.exports.conftest import World, without_labels

KEPT, MOVED, DROPPED, OPEN = "bird/0.png", "cat/0.png", "dog/0.png", "dog/1.png"

EXPECTED = {
    KEPT: MarkedSample(KEPT, Mark.KEEP, given_label="bird"),
    MOVED: MarkedSample(MOVED, Mark.RELABEL, "dog", given_label="cat"),
    DROPPED: MarkedSample(DROPPED, Mark.DROP, given_label="dog"),
}
"""Marks of three samples; the fourth is undecided."""


def test_marks_of_another_tool_make_the_cleaned_list(tmp_path: Path, world: World) -> None:
    marks = read_marks(label_studio_file(tmp_path, world), ())

    kept = decide(world.scores, CleaningRules(marks.samples)).kept()

    labels = dict(zip(*(kept[name].to_pylist() for name in ("sample_id", "label")), strict=True))
    assert len(labels) == 11
    assert DROPPED not in labels
    assert (labels[KEPT], labels[MOVED], labels[OPEN]) == ("bird", "dog", "dog")


def label_studio_file(tmp_path: Path, world: World, change: str = "") -> Path:
    """The exported tasks as JSON of Label Studio, after a person has looked at some of them."""
    export_folder("labelstudio", world.scores, world.images, tmp_path / "out")
    tasks = json.loads((tmp_path / "out" / "tasks.json").read_text())
    for task in tasks:
        task["annotations"] = []
        sample_id = task["data"]["sample_id"]
        (shown,) = task.pop("predictions")
        if sample_id in EXPECTED:
            result = shown["result"]
            if sample_id == MOVED:
                result = choice("label", "dog")
            if sample_id == DROPPED:
                result = [*result, *choice("mark", "drop")]
            task["annotations"] = [annotation(result, 2)]
        if sample_id == OPEN:
            task["annotations"] = [annotation(choice("label", "cat"), 1, was_cancelled=True)]
    if change == "again":
        (task,) = (task for task in tasks if task["data"]["sample_id"] == MOVED)
        task["annotations"].append(annotation(choice("label", "bird"), 1))
    path = tmp_path / "export.json"
    path.write_text(json.dumps(tasks))
    return path


def choice(name: str, value: str) -> list[dict[str, Any]]:
    result = {"from_name": name, "to_name": "image", "type": "choices"}
    return [{**result, "value": {"choices": [value]}}]


def annotation(result: object, hour: int, **keys: object) -> dict[str, object]:
    return {"result": result, "updated_at": f"2026-01-01T0{hour}:00:00Z", **keys}


def test_choices_of_label_studio_become_marks(tmp_path: Path, world: World) -> None:
    path = label_studio_file(tmp_path, world)

    marks = read_marks(path, ())

    said = f"9 samples without a mark, because nobody annotated them in {path}"
    assert marks == Marks(EXPECTED, (said,))


def test_the_last_annotation_of_a_task_counts(tmp_path: Path, world: World) -> None:
    path = label_studio_file(tmp_path, world, "again")

    marks = read_marks(path, ())

    assert marks.samples == EXPECTED
    assert marks.warnings[0] == f"1 sample annotated more than once in {path}: the last one counts"


def test_the_smaller_json_of_label_studio_is_read(tmp_path: Path) -> None:
    def row(sample_id: str, given: str, **choices: object) -> dict[str, object]:
        data = {"image": "/data/1.png", "sample_id": sample_id, "given_label": given}
        dated = {"annotator": 1, "updated_at": "2026-01-01T00:00:00Z", "lead_time": 2.5}
        return {**data, "id": 1, **choices, **dated}

    rows = [
        row(KEPT, "bird", label="bird"),
        row(MOVED, "cat", label={"choices": ["dog"]}),
        row(DROPPED, "dog", label="dog", mark="drop"),
        row(OPEN, "dog"),
    ]
    (tmp_path / "min.json").write_text(json.dumps(rows))

    marks = read_marks(tmp_path / "min.json", ())

    assert marks.samples == EXPECTED
    assert marks.warnings[0].startswith("1 sample without a mark")


@pytest.fixture
def cvat(tmp_path: Path, world: World) -> Path:
    """The export of CVAT."""
    export_folder("cvat", world.scores, world.images, tmp_path / "cvat")
    return tmp_path / "cvat"


def annotated_in_cvat(folder: Path) -> bytes:
    """The annotations after a person has replaced tags; CVAT keeps the names of the images."""
    tree = ET.parse(folder / "annotations.xml")  # noqa: S314 - our own
    for image in tree.iter("image"):
        sample_id = image.get("name", "").partition("/")[2].partition("/")[2]
        tag = image[0]
        if sample_id == MOVED:
            tag.set("label", "dog")
            tag.set("source", "manual")
        elif sample_id == DROPPED:
            ET.SubElement(image, "tag", label="drop", source="manual")
        elif sample_id != KEPT:
            image.remove(tag)
    data: bytes = ET.tostring(tree.getroot(), "utf-8", xml_declaration=True)
    return data


def test_cvat_gets_labels_images_and_tags_that_belong_together(cvat: Path, world: World) -> None:
    annotations = ET.parse(cvat / "annotations.xml").getroot()  # noqa: S314 - our own
    images = annotations.findall("image")
    labels = json.loads((cvat / "labels.json").read_text())
    with zipfile.ZipFile(cvat / "images.zip") as archive:
        names = archive.namelist()
        data = archive.read("0000000/cat/cat/0.png")

    assert annotations.findtext("version") == "1.1"
    assert annotations.findtext("meta/task/size") == "12"
    declared = [label.text for label in annotations.findall("meta/task/labels/label/name")]
    assert declared == [label["name"] for label in labels] == ["bird", "cat", "dog", "drop"]
    # A frame is found by its name, or by its number in the order of the names.
    assert [image.get("name") for image in images] == sorted(names)
    assert [image.get("id") for image in images] == [str(number) for number in range(12)]
    assert images[0].get("name") == "0000000/cat/cat/0.png", "the most doubtful comes first"
    assert (images[0].get("width"), images[0].get("height")) == ("32", "24")
    assert [tag.get("label") for tag in images[0]] == ["cat"]
    assert data == (Path(world.images.dataset.location) / MOVED).read_bytes()


@pytest.mark.parametrize("zipped", [False, True])
def test_tags_of_cvat_become_marks(tmp_path: Path, cvat: Path, *, zipped: bool) -> None:
    path = tmp_path / "marks"
    path.write_bytes(annotated_in_cvat(cvat))
    if zipped:
        with zipfile.ZipFile(tmp_path / "marks.zip", "w") as archive:
            archive.write(path, "annotations.xml")
        path = tmp_path / "marks.zip"

    marks = read_marks(path, ())

    assert marks.samples == EXPECTED
    assert marks.warnings[0].startswith("1 sample with an unchanged tag count as kept")
    assert marks.warnings[1].startswith("9 samples without a mark")


def test_an_image_with_two_new_tags_gets_no_mark(tmp_path: Path, cvat: Path) -> None:
    data = (cvat / "annotations.xml").read_text()
    twice = '<tag label="dog"></tag><tag label="bird"></tag></image>'
    (tmp_path / "marks.xml").write_text(data.replace("</image>", twice, 1))

    marks = read_marks(tmp_path / "marks.xml", ())

    assert MOVED not in marks.samples
    assert "1 sample without a mark, because the annotations" in marks.warnings[1]


@pytest.mark.parametrize(
    ("sample_id", "given", "path"),
    [
        ("a/b c.jpeg", "cat", "0000003/cat/a/b%20c.jpeg"),
        ("table.parquet#0", "cat", "0000003/cat/table.parquet%230+.jpg"),
        ("..//é+.jpg", ".. a/1", "0000003/%2E%2E%20a%2F1/%2E%2E%2F%2F%C3%A9%2B%2Ejpg+.jpg"),
    ],
)
def test_the_name_of_an_image_of_cvat_holds_class_and_id(
    tmp_path: Path, sample_id: str, given: str, path: str
) -> None:
    name = cvat_name(3, given, sample_id, ".jpg")
    image = f'<image id="0" name="{name}"><tag label="owl"/></image>'
    (tmp_path / "marks.xml").write_text(f"<annotations>{image}</annotations>")

    marks = read_marks(tmp_path / "marks.xml", ())

    assert name == path
    assert marks.samples == {sample_id: MarkedSample(sample_id, Mark.RELABEL, "owl", given)}


def test_a_name_that_no_file_may_have_is_none() -> None:
    assert cvat_name(0, "cat", "folder/" + "x" * 251, ".jpg") is None
    assert cvat_name(0, "cat", "folder/" + "x" * 250, ".jpg") is not None


def test_a_class_that_would_mean_to_drop_is_refused(tmp_path: Path, world: World) -> None:
    names = pa.array(["bird", "remove", "dog"]).take(world.scores.table["label"].combine_chunks())
    column = world.scores.table.schema.get_field_index("label_name")
    table = world.scores.table.set_column(column, "label_name", names)

    with pytest.raises(CleaningError, match="a class is named remove, which as a tag of CVAT"):
        export_folder("cvat", ScoreFile(table, Provenance()), world.images, tmp_path / "out")


@pytest.mark.parametrize("of", ["tags", "dataset", "classification"])
def test_tags_and_labels_of_fiftyone_become_marks(tmp_path: Path, world: World, of: str) -> None:
    export_folder("fiftyone", world.scores, world.images, tmp_path / "out")
    described = json.loads((tmp_path / "out" / "labels.json").read_text())
    folder, classes = tmp_path / "again", described["classes"]
    folder.mkdir()
    for each in described["labels"].values():
        if each["attributes"]["sample_id"] == MOVED:
            each["label"] = classes.index("dog")
    if of == "classification":
        (folder / "labels.json").write_text(json.dumps(described))
    else:
        samples = [as_sample(*item, classes, of) for item in described["labels"].items()]
        (folder / "metadata.json").write_text("{}")
        (folder / "samples.json").write_text(json.dumps({"samples": samples}))

    marks = read_marks(folder, ())

    has_tags = of != "classification"
    assert marks.samples == (EXPECTED if has_tags else {MOVED: EXPECTED[MOVED]})
    assert any(OPEN in warning for warning in marks.warnings) == has_tags
    assert read_marks(folder / ("samples.json" if has_tags else "labels.json"), ()) != NO_MARKS


def as_sample(path: str, label: Any, classes: list[str], of: str) -> dict[str, Any]:  # noqa: ANN401
    """A sample of a FiftyOneDataset, which a person may have tagged, or its label."""
    sample_id = label["attributes"]["sample_id"]
    tags = {KEPT: ["Keep"], DROPPED: ["remove"], OPEN: ["drop", "keep"]}.get(sample_id, ["other"])
    described = {"_cls": "Classification", "tags": [], "label": classes[label["label"]]}
    described |= {"logits": None, **label["attributes"]}
    sample = {"_id": {"$oid": "6"}, "filepath": path, "tags": [], "ground_truth": described}
    (described if of == "dataset" else sample)["tags"] = tags
    return sample


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tasks.json", '[{"data": {"image": "a"}}]', "a task of Label Studio lacks sample_id"),
        (
            "coco.json",
            '{"images": [], "categories": []}',
            "neither of Label Studio nor of FiftyOne",
        ),
        ("broken.json", '[{"data": ', "it is no JSON"),
        ("samples.json", '{"samples": [{"tags": ["drop"]}]}', "no label of FiftyOne has sample_id"),
        ("voc.xml", "<annotation></annotation>", "its XML is of 'annotation', not of annotations"),
        ("video.xml", "<annotations><track/></annotations>", "its XML has no images"),
        ("own.xml", '<annotations><image name="1.png"/></annotations>', "'1.png' has another name"),
        ("broken.xml", "<annotations><image", "it is no XML"),
        ("broken.zip", "PK\x03\x04", "the ZIP file is damaged"),
    ],
)
def test_a_file_of_something_else_is_refused(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)

    with pytest.raises(CleaningError, match=f"{name} cannot be read as marks: .*{message}"):
        read_marks(tmp_path / name, ())


def test_a_zip_file_or_folder_without_annotations_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("labels.txt", "cat")

    for path, message in ((tmp_path / "other.zip", "annotations.xml"), (tmp_path, "samples.json")):
        with pytest.raises(CleaningError, match=message):
            read_marks(path, ())


@pytest.mark.parametrize("name", ["cvat", "labelstudio", "fiftyone"])
def test_scores_without_labels_have_none_to_correct(
    tmp_path: Path, world: World, name: str
) -> None:
    with pytest.raises(ScoreFileError, match="has no column 'label_margin'; name classes with"):
        export_folder(name, without_labels(world.scores), world.images, tmp_path / "out")

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_a_table_of_label_studio_has_all_its_decisions(
    tmp_path: Path, name: str, delimiter: str
) -> None:
    rows = [
        ("annotation_id", "given_label", "id", "image", "label", "mark", "sample_id", "updated_at"),
        ("1", "bird", "7", "/data/1.png", "bird", "", KEPT, "2026-01-01T00:00:00Z"),
        ("2", "cat", "8", "/data/2.png", "bird", "", MOVED, "2026-01-01T00:00:00Z"),
        ("4", "cat", "8", "/data/2.png", "dog", "", MOVED, "2026-01-02T00:00:00Z"),
        ("3", "dog", "9", "/data/3.png", "dog", "drop", DROPPED, "2026-01-01T00:00:00Z"),
        ("", "dog", "10", "/data/4.png", "", "", OPEN, ""),
    ]
    path = tmp_path / f"project.{name}"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(rows)

    marks = read_marks(path, ())

    assert marks.samples == EXPECTED
    assert marks.warnings == (
        f"1 sample annotated more than once in {path}: the last one counts",
        f"1 sample without a mark, because nobody annotated them in {path}",
    )


def test_a_table_without_a_dropped_sample_has_no_such_column(tmp_path: Path) -> None:
    path = tmp_path / "project.csv"
    path.write_text(f"annotation_id,given_label,label,sample_id\n1,cat,dog,{MOVED}\n")

    assert read_marks(path, ()).samples == {MOVED: EXPECTED[MOVED]}


def test_labels_that_fiftyone_wrote_without_attributes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text('{"classes": ["cat"], "labels": {"/a.png": "cat"}}')

    with pytest.raises(CleaningError, match="or labels with include_attributes=True"):
        read_marks(tmp_path, ())


DECISIONS = Path(__file__).resolve().parents[3] / "data" / "decisions"
WRITTEN = sorted(path.name for path in DECISIONS.iterdir() if path.name != "decisions.json")


@pytest.mark.parametrize("name", WRITTEN)
def test_what_programs_wrote_has_each_decision(name: str) -> None:
    decisions = json.loads((DECISIONS / "decisions.json").read_text())

    marks = read_marks(DECISIONS / name, decisions.keys()).samples

    found = {sample_id: (str(each.mark), each.label) for sample_id, each in marks.items()}
    assert found == {
        sample_id: (kind, label if kind == "relabel" else None)
        for sample_id, (kind, label) in decisions.items()
        if kind != "none"
    }
    assert len(found) == 9
