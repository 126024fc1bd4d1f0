"""Tables in a file that ends in .json: what is one, and what is answered where it is none."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.json_text import MOST_LEVELS
from difficulty_service.datasets import table_files, text_tables
from difficulty_service.datasets.sample import TableLimits
from difficulty_service.datasets.storage import boundary_at
from tests.dataset_files import IMAGES, contents_of, dataset_of

Rows = list[dict[str, Any]]

ROWS: Rows = [
    {"image": "img/0.png", "label": "cat", "note": 'a "1,\n2"', "at": "2026-01-01T00:00:00"},
    {"image": "img/1.png", "label": "dog", "note": "[{", "at": "2026-01-02T00:00:00"},
    {"image": "img/2.png", "label": "cat", "note": None, "at": "now"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "img").mkdir()
    for number, image in enumerate(IMAGES[:3]):
        (tmp_path / f"img/{number}.png").write_bytes(image)
    return tmp_path


def written(folder: Path, text: str) -> Path:
    (folder / "data.json").write_bytes(text.encode())
    return folder / "data.json"


TABLES: dict[str, Callable[[Rows], str]] = {
    "one line": json.dumps,
    "indented": lambda rows: json.dumps(rows, indent=2).replace("\n", "\r\n"),
    "with a mark": lambda rows: "\ufeff" + json.dumps(rows),
    "JSON Lines": lambda rows: "\n".join(map(json.dumps, rows)),
    "indented objects": lambda rows: "\n".join(json.dumps(row, indent=2) for row in rows),
    "pandas": lambda rows: str(pd.DataFrame(rows).to_json(orient="records")),
}


@pytest.mark.parametrize("kind", TABLES)
def test_rows_in_json_are_those_of_json_lines(folder: Path, kind: str) -> None:
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    lines = dataset_of(folder / "data.jsonl")

    dataset = dataset_of(written(folder, TABLES[kind](ROWS)))

    assert dataset.format == "table"
    assert contents_of(dataset) == contents_of(lines) == IMAGES[:3]
    assert dataset.class_names == ("cat", "dog")
    assert dataset.labels.tolist() == lines.labels.tolist()
    assert dataset.sample_ids[1] == "data.json#1"


def test_indented_rows_are_whole_where_a_file_is_parsed_in_parts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_tables, "_BLOCK", 256)
    rows = [{"image": "img/0.png", "label": f"{number}\n", "more": [1, 2]} for number in range(99)]

    dataset = dataset_of(written(folder, json.dumps(rows, indent=2)))

    assert len(dataset.labels) == len(dataset.class_names) == 99


def test_texts_in_json_are_read_as_they_are(folder: Path) -> None:
    path = written(folder, json.dumps(ROWS, indent=2))

    dataset = dataset_of(path, text_column="note")

    assert contents_of(dataset)[:2] == [b'a "1,\n2"', b"[{"]


def test_a_folder_has_no_table_in_json_unless_that_is_named(folder: Path) -> None:
    path = written(folder, json.dumps(ROWS))

    with pytest.raises(DatasetError, match="name that table as the dataset"):
        dataset_of(folder)

    assert len(dataset_of(path).labels) == len(dataset_of(folder / "*.json").labels) == 3


def test_a_folder_with_other_json_asks_for_a_csv(folder: Path) -> None:
    written(folder, json.dumps({row["image"]: row["label"] for row in ROWS}))

    with pytest.raises(DatasetError, match="write a CSV with the columns path and label"):
        dataset_of(folder)


NO_TABLES: dict[str, tuple[str, str]] = {
    "columns of pandas": (
        str(pd.DataFrame(ROWS).to_json()),
        "it is one object, with 'image', 'label', 'note' and 1 more",
    ),
    "one row": (json.dumps(ROWS[0]), "it is one object"),
    "an empty object": ("{}", "it is one object, with nothing in it"),
    "a list of texts": ('["a.png"]', "a list has 'a.png', which is no object"),
    "a number": ("5", "'5' is no object"),
    "no JSON": ("?", "Expecting value"),
    "half of it": (json.dumps(ROWS)[:-1], "it ends too early"),
    "one comma more": (json.dumps(ROWS)[:-1] + ",]", "a comma before ']'"),
    "two lists": ("[] []", "'[]' follows its list"),
}


@pytest.mark.parametrize("kind", NO_TABLES)
def test_other_json_is_answered_by_what_a_table_is(folder: Path, kind: str) -> None:
    text, reason = NO_TABLES[kind]

    with pytest.raises(DatasetError) as refused:
        dataset_of(written(folder, text))

    assert f"'data.json' cannot be read as a table: {reason}" in str(refused.value)
    assert '`to_json(path, orient="records")`' in str(refused.value)


@pytest.mark.parametrize("kind", ["one line", "indented", "with a mark"])
@pytest.mark.parametrize("ending", ["jsonl", "ndjson"])
def test_a_list_under_the_name_of_json_lines_is_to_be_renamed(
    folder: Path, kind: str, ending: str
) -> None:
    path = folder / f"data.{ending}"
    path.write_bytes(TABLES[kind](ROWS).encode())

    with pytest.raises(DatasetError, match=rf"'data\.{ending}' is one list in JSON, not .* \.json"):
        dataset_of(path)

    assert contents_of(dataset_of(path.rename(folder / "data.json"))) == IMAGES[:3]


def test_json_of_another_encoding_is_to_be_saved_as_utf_8(folder: Path) -> None:
    (folder / "data.json").write_bytes(json.dumps(ROWS).encode("utf-16"))

    with pytest.raises(DatasetError, match=r"'data\.json' is not UTF-8; save it as"):
        dataset_of(folder / "data.json")


@pytest.mark.parametrize("levels", [MOST_LEVELS, 200_000])
@pytest.mark.parametrize("limits", [None, TableLimits(max_rows=9, max_text_bytes=1 << 20)])
def test_a_list_in_json_with_lists_in_too_many_others_is_refused(
    folder: Path, levels: int, limits: TableLimits | None
) -> None:
    text = '[{"image": "a.png", "label": "cat", "more": %s}]' % ("[" * levels + "]" * levels)

    with pytest.raises(DatasetError, match="objects inside more than 100 others; leave out"):
        dataset_of(written(folder, text), limits=limits)


def test_the_rows_of_json_of_others_are_limited(folder: Path) -> None:
    path, boundary = written(folder, json.dumps(ROWS)), boundary_at(str(folder))
    few, enough = (TableLimits(max_rows=rows, max_text_bytes=1 << 20) for rows in (2, 3))

    with pytest.raises(DatasetError, match="3 rows, the maximum is 2"):
        dataset_of(path, limits=few, boundary=boundary)

    assert len(dataset_of(path, limits=enough, boundary=boundary).labels) == 3


def test_large_json_of_others_is_to_be_written_as_json_lines(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(folder, json.dumps(ROWS))
    monkeypatch.setattr(table_files, "MOST_LIMITED", path.stat().st_size - 1)
    limits = TableLimits(max_rows=9, max_text_bytes=1 << 20)

    with pytest.raises(DatasetError, match=r"more than [0-9]+ bytes; write it as JSON Lines"):
        dataset_of(path, limits=limits)

    assert len(dataset_of(path).labels) == 3


def test_boxes_of_createml_stay_boxes(folder: Path) -> None:
    box = {"label": "cat", "coordinates": {"x": 4, "y": 3, "width": 2, "height": 2}}
    rows = [{"image": row["image"], "label": "photo", "annotations": [box]} for row in ROWS]

    assert dataset_of(written(folder, json.dumps(rows))).format == "createml"


def test_tasks_of_label_studio_with_choices_are_to_be_exported_as_csv(folder: Path) -> None:
    choice = {"type": "choices", "value": {"choices": ["cat"]}}
    rows = [
        {"id": 1, "data": {"image": row["image"]}, "annotations": [{"result": [choice]}]}
        for row in ROWS
    ]

    with pytest.raises(DatasetError, match=r"'data\.json' has tasks of Label") as refused:
        dataset_of(written(folder, json.dumps(rows)))

    assert "export the project as CSV" in str(refused.value)
    assert "label_column='choice'" in str(refused.value)
