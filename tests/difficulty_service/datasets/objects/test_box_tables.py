"""Tables with a row for each box, and tables of Label Studio with regions in their cells."""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.objects.box_columns import box_columns
from difficulty_service.datasets.sample import TableLimits
from tests.boxed_images import HEIGHT, SCENES, WIDTH, shown, write_image
from tests.dataset_files import dataset_of, read_samples

ROBOFLOW = ["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"]
BOXED = SCENES[:3]


def write_images(folder: Path) -> None:
    for scene in SCENES:
        write_image(folder / "images" / f"{scene.name}.png", scene)


def write_rows(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def corners(left: int, top: int, width: int, height: int) -> list[object]:
    return [left, top, left + width, top + height]


def write_table(folder: Path, name: str = "boxes.csv") -> Path:
    """A table as Roboflow writes it, with the images in a folder beside it."""
    write_images(folder)
    rows = [
        [f"{scene.name}.png", WIDTH, HEIGHT, category, *corners(*box)]
        for scene in BOXED
        for category, *box in scene.boxes
    ]
    return write_rows(folder / name, ROBOFLOW, rows)


# type: ignore[arg-type]


def expected() -> list[str]:
    return [category for scene in BOXED for category, *_ in scene.boxes]


def test_a_table_with_a_row_for_each_box_is_read_as_boxes(tmp_path: Path) -> None:
    dataset = dataset_of(write_table(tmp_path))

    assert dataset.format == "box-table"
    assert dataset.sample_ids[:3] == ["a.png#1", "a.png#2", "b.png#1"]
    assert [dataset.class_names[label] for label in dataset.labels] == expected()
    assert [shown(each) for each in read_samples(dataset).values()] == expected()


def test_a_folder_or_a_glob_of_such_tables_is_read_as_they_are(tmp_path: Path) -> None:
    path = write_table(tmp_path)

    of_folder, of_glob = dataset_of(tmp_path), dataset_of(tmp_path / "*.csv")

    for dataset in (of_folder, of_glob):
        assert dataset.fingerprint == dataset_of(path).fingerprint


def test_a_split_of_roboflow_has_its_table_beside_its_images(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        path = write_table(tmp_path / split, "_annotations.csv")
        for image in (path.parent / "images").iterdir():
            image.rename(path.parent / image.name)
        (path.parent / "images").rmdir()

    dataset = dataset_of(tmp_path, split="train")

    assert dataset.format == "box-table"
    assert [shown(each) for each in read_samples(dataset).values()] == expected()


def test_whole_images_are_read_where_a_person_says_so(tmp_path: Path) -> None:
    path = write_table(tmp_path)

    assert dataset_of(path, format="table").scenes is None
    assert dataset_of(path, format="table").sample_ids[0] == "boxes.csv#0"


def test_a_table_with_one_box_an_image_says_how_to_read_whole_images(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    rows = path.read_text().splitlines()
    path.write_text("\n".join([rows[0], rows[1], rows[3], rows[6]]))

    dataset = dataset_of(path)

    assert dataset.noun == "object"
    assert any("to read whole images, set the format table" in each for each in dataset.warnings)


def test_an_image_whose_row_has_no_box_is_one_without_boxes(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    with path.open("a") as file:
        file.write("empty.png,200,100,,,,,\n")

    dataset = dataset_of(path)

    assert dataset.skipped == []
    assert "1 image has no box" in dataset.warnings
    assert dataset.scenes is not None
    assert [*dataset.scenes.names] == ["a.png", "b.png", "c.png", "empty.png"]


def test_rows_that_are_no_boxes_are_listed_with_the_reason(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    with path.open("a") as file:
        file.write("a.png,200,100,leaf,10,10,10,30\na.png,200,100,,1,1,20,20\n")
        file.write("a.png,200,100,leaf,10,,30,30\n")

    dataset = dataset_of(path)

    assert len(dataset.labels) == len(expected())
    assert dataset.skipped == [
        ("a.png#3", "its box has no area"),
        ("a.png#4", "the label is missing"),
        ("a.png#5", "its box is not four numbers"),
    ]


@pytest.mark.parametrize(
    ("header", "of_box"),
    [
        ("x1,y1,x2,y2", corners),
        ("Left,Top,Right,Bottom", corners),
        ("bbox_xmin,bbox_ymin,bbox_xmax,bbox_ymax", corners),
        ("x_min,y_min,width,height", lambda *box: [*box]),
        ("x,y,w,h", lambda *box: [*box]),
        ("bbox_x,bbox_y,bbox_width,bbox_height", lambda *box: [*box]),
        ("cx,cy,w,h", lambda x, y, w, h: [x + w / 2, y + h / 2, w, h]),
        ("Bbox [x,y,w,h]", lambda *box: [*box]),
        ("bbox", lambda *box: [str([*map(float, box)])]),
        ("bbox", lambda *box: [str(corners(*box))]),
        (
            "xmin,xmax,ymin,ymax",
            lambda x, y, w, h: [x / 200, (x + w) / 200, y / 100, (y + h) / 100],
        ),
    ],
)
def test_the_sides_of_boxes_are_told_by_the_names_and_by_what_fits(
    tmp_path: Path, header: str, of_box: Callable[..., list[object]]
) -> None:
    write_images(tmp_path)
    rows = [
        [f"{scene.name}.png", *of_box(*box), category]
        for scene in BOXED
        for category, *box in scene.boxes
    ]
    path = write_rows(tmp_path / "boxes.csv", ["image_id", *header.split(","), "label"], rows)

    dataset = dataset_of(path)

    assert [shown(each) for each in read_samples(dataset).values()] == expected()


def test_four_numbers_that_may_be_corners_or_sizes_are_asked_about(tmp_path: Path) -> None:
    write_images(tmp_path)
    rows = [["a.png", "[10, 10, 40, 40]", "apple"], ["b.png", "[20, 10, 60, 50]", "leaf"]]
    path = write_rows(tmp_path / "boxes.csv", ["path", "bbox", "label"], rows)

    with pytest.raises(DatasetError, match="may be corner and size or corners of boxes") as caught:
        dataset_of(path)

    assert "name the columns x_min, y_min, x_max and y_max" in str(caught.value)
    renamed = [[name, 10, 10, 40, 40, label] for name, _, label in rows]
    header = ["path", "x_min", "y_min", "x_max", "y_max", "label"]
    assert len(dataset_of(write_rows(path, header, renamed)).labels) == len(rows)


def test_shares_that_may_be_of_a_centre_or_a_corner_are_asked_about(tmp_path: Path) -> None:
    write_images(tmp_path)
    rows = [["a.png", 0.3, 0.4, 0.2, 0.2, "apple"], ["a.png", 0.6, 0.4, 0.2, 0.1, "leaf"]]
    path = write_rows(tmp_path / "boxes.csv", ["path", "x", "y", "w", "h", "label"], rows)

    with pytest.raises(DatasetError, match="corner and size or centre and size"):
        dataset_of(path)


def test_shares_of_which_only_a_centre_keeps_boxes_inside_are_of_centres(tmp_path: Path) -> None:
    write_images(tmp_path)
    rows = [["a.png", 0.9, 0.4, 0.2, 0.2, "apple"], ["a.png", 0.6, 0.4, 0.2, 0.1, "leaf"]]
    path = write_rows(tmp_path / "boxes.csv", ["path", "x", "y", "w", "h", "label"], rows)

    dataset = dataset_of(path)

    assert dataset.scenes is not None
    assert dataset.scenes.sides[0].tolist() == pytest.approx([0.8, 0.3, 1.0, 0.5])
    assert any("centre and size, in shares of the image" in each for each in dataset.warnings)


@pytest.mark.parametrize(
    "header",
    [
        "path,label",
        "path,width,height,label",
        "Width,Height,Roi.X1,Roi.Y1,Roi.X2,Roi.Y2,ClassId,Path",
        "image,x,y,label",
    ],
)
def test_other_tables_have_no_columns_of_boxes(header: str) -> None:
    assert box_columns(header.split(",")) is None


def test_a_column_of_ids_names_the_boxes(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    lines = path.read_text().splitlines()
    numbered = [f"{line},{number}" for number, line in enumerate(lines[1:], 100)]
    path.write_text("\n".join([f"{lines[0]},key", *numbered]))

    dataset = dataset_of(path, id_column="key")

    assert dataset.sample_ids[:3] == ["a.png#100", "a.png#101", "b.png#102"]


def test_the_rows_of_people_who_are_not_trusted_are_limited(tmp_path: Path) -> None:
    path = write_table(tmp_path)

    with pytest.raises(DatasetError, match="the maximum is 3"):
        dataset_of(path, limits=TableLimits(3, 10_000))


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl", ".json"])
def test_only_the_rows_that_somebody_decided_about_differ(tmp_path: Path, ending: str) -> None:
    path = write_table(tmp_path)
    table = pa_csv.read_csv(path)
    if ending == ".parquet":
        path.unlink()
        path = path.with_suffix(ending)
        pq.write_table(table, path)
    elif ending == ".jsonl":
        path.unlink()
        path = path.with_suffix(ending)
        path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    elif ending == ".json":
        path.unlink()
        path = path.with_suffix(ending)
        path.write_text(json.dumps(table.to_pylist(), indent=1))
    dataset = dataset_of(path)
    assert dataset.format == "box-table"
    assert dataset.revise is not None

    revision = dataset.revise({"a.png#1": "pear", "b.png#2": None, "gone.png#1": None})

    assert revision.unknown == ["gone.png#1"]
    assert sorted(revision.others) == ["images/a.png", "images/b.png", "images/c.png"]
    content = revision.changed[path.name]
    target = tmp_path / f"new{ending}"
    if callable(content):
        content(target)
    else:
        target.write_bytes(content)
    readers: dict[str, Callable[[Path], pa.Table]] = {
        ".csv": pa_csv.read_csv,
        ".parquet": pq.read_table,
        ".jsonl": pa_json.read_json,
        ".json": lambda path: pa.Table.from_pylist(json.loads(path.read_text())),
    }
    new = readers[ending](target)
    rows = table.to_pylist()
    rows[0]["class"] = "pear"
    del rows[3]
    assert new.cast(pa.schema(table.schema)).to_pylist() == rows


@pytest.mark.parametrize("ending", [".csv", ".json"])
@pytest.mark.parametrize("beside", [True, False])
def test_a_cleaned_folder_is_read_as_the_boxes_of_its_table(
    tmp_path: Path, ending: str, *, beside: bool
) -> None:
    path = write_table(tmp_path)
    if beside:
        for image in (tmp_path / "images").iterdir():
            image.rename(tmp_path / image.name)
        (tmp_path / "images").rmdir()
    if ending == ".json":
        rows = pa_csv.read_csv(path).to_pylist()
        path.unlink()
        path = path.with_suffix(ending)
        path.write_text(json.dumps(rows))
        (tmp_path / "about.json").write_text(json.dumps({"by": "somebody"}))
    (tmp_path / "dropped.csv").write_text("sample_id,label,original_label,reason\n")

    dataset = dataset_of(tmp_path)

    assert dataset.format == "box-table"
    assert dataset.fingerprint == dataset_of(path).fingerprint
    assert [shown(each) for each in read_samples(dataset).values()] == expected()


def test_a_folder_with_two_tables_of_boxes_in_json_asks_for_one(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    text = json.dumps(pa_csv.read_csv(path).to_pylist())
    path.unlink()
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(text)

    with pytest.raises(DatasetError, match="name one of these tables as the dataset"):
        dataset_of(tmp_path)


def regions_of(boxes: Sequence[tuple[str, int, int, int, int]]) -> str:
    return json.dumps([
        {
            "x": left / WIDTH * 100, "y": top / HEIGHT * 100,
            "width": width / WIDTH * 100, "height": height / HEIGHT * 100,
            "rotation": 0, "rectanglelabels": [category],
            "original_width": WIDTH, "original_height": HEIGHT,
        }
        for category, left, top, width, height in boxes
    ])  # fmt: skip


LABEL_STUDIO = [
    "image",
    "id",
    "label",
    "annotator",
    "annotation_id",
    "created_at",
    "updated_at",
    "lead_time",
]


@pytest.mark.parametrize("name", ["project-1.csv", "project-1.tsv"])
def test_regions_in_a_table_of_label_studio_are_boxes(tmp_path: Path, name: str) -> None:
    write_images(tmp_path)
    when = "2026-01-01T00:00:00Z"
    rows = [
        [
            f"/data/upload/1/0a1b2c3d-{scene.name}.png",
            n,
            regions_of(scene.boxes),
            1,
            n,
            when,
            when,
            2,
        ]
        for n, scene in enumerate(BOXED)
    ]
    later = "2026-01-02T00:00:00Z"
    rows.append([rows[0][0], 0, regions_of(SCENES[0].boxes[:1]), 2, 9, when, later, 2])
    path = write_rows(tmp_path / name, LABEL_STUDIO, rows)
    if name.endswith(".tsv"):
        with path.open("w", newline="") as file:
            csv.writer(file, delimiter="\t").writerows([LABEL_STUDIO, *rows])

    dataset, of_folder = dataset_of(path), dataset_of(tmp_path)

    assert dataset.format == of_folder.format == "label-studio"
    assert dataset.sample_ids[:2] == ["images/a.png#1", "images/b.png#1"]  # the newest of two
    assert [shown(each) for each in read_samples(dataset).values()] == ["apple", *expected()[2:]]
    assert of_folder.fingerprint == dataset.fingerprint


def test_a_table_of_label_studio_is_not_written_back(tmp_path: Path) -> None:
    write_images(tmp_path)
    row = ["a.png", 1, regions_of(SCENES[0].boxes), 1, 1, "", "", 1]
    dataset = dataset_of(write_rows(tmp_path / "project.csv", LABEL_STUDIO, [row]))
    assert dataset.revise is not None

    with pytest.raises(DatasetError, match="export the project as JSON"):
        dataset.revise({"images/a.png#1": "leaf"})


def test_choices_in_a_table_of_label_studio_stay_labels_of_images(tmp_path: Path) -> None:
    write_images(tmp_path)
    rows = [
        ["images/a.png", 1, "apple", 1, 1, "", "", 1],
        ["images/b.png", 2, "plum", 1, 2, "", "", 1],
    ]

    dataset = dataset_of(write_rows(tmp_path / "project.csv", LABEL_STUDIO, rows))

    assert dataset.format == "table"
    assert dataset.class_names == ("apple", "plum")
