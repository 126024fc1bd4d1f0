"""Tags are read from lists, from texts with something between them, and from columns of 0 and 1."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.datasets.tags import TagColumns, TagTable, open_tags

TAGS = [["cat", "dog"], [], ["owl"], ["dog", "owl", "cat"]]
IDS = ["a.png", "b.png", "c.png", "d.png"]
ONE_HOT = {tag: [int(tag in tags) for tags in TAGS] for tag in ("cat", "dog", "owl")}


def tags_of(table: TagTable) -> list[set[str]]:
    return [
        {table.names[tag] for tag in table.tags[first:last]}
        for first, last in zip(table.starts[:-1], table.starts[1:], strict=True)
    ]


def parquet(path: Path, columns: Mapping[str, Any]) -> None:
    pq.write_table(pa.table(dict(columns)), path)


def csv(path: Path, columns: Mapping[str, Any]) -> None:
    pd.DataFrame(dict(columns)).to_csv(path, index=False)


def json_lines(path: Path, columns: Mapping[str, Any]) -> None:
    pd.DataFrame(dict(columns)).to_json(path, orient="records", lines=True)


@pytest.mark.parametrize(
    ("name", "write", "columns", "wanted"),
    [
        ("t.parquet", parquet, {"path": IDS, "tags": TAGS}, TagColumns()),
        ("t.jsonl", json_lines, {"path": IDS, "labels": TAGS}, TagColumns()),
        ("t.csv", csv, {"path": IDS, "tags": ["|".join(each) for each in TAGS]}, TagColumns()),
        (
            "t.csv",
            csv,
            {"path": IDS, "what": [", ".join(each) for each in TAGS]},
            TagColumns(("what",), ","),
        ),
        ("t.csv", csv, {"path": IDS, **ONE_HOT}, TagColumns(("cat", "dog", "owl"))),
        (
            "t.parquet",
            parquet,
            {"path": IDS, **{f"has_{tag}": map(bool, has) for tag, has in ONE_HOT.items()}},
            TagColumns(("has_*",)),
        ),
    ],
)
def test_each_way_to_write_tags_is_read(
    tmp_path: Path,
    name: str,
    write: Callable[[Path, Mapping[str, Any]], None],
    columns: Mapping[str, Any],
    wanted: TagColumns,
) -> None:
    write(tmp_path / name, {key: list(values) for key, values in columns.items()})

    found = open_tags(str(tmp_path / name), wanted)

    prefix = "has_" if wanted.columns == ("has_*",) else ""
    assert tags_of(found) == [{prefix + tag for tag in each} for each in TAGS]


@pytest.mark.parametrize(
    ("columns", "wanted", "message"),
    [
        ({"path": IDS, "kind": IDS}, TagColumns(), "no column of 't.csv' is called"),
        ({"path": IDS, "tags": ["cat"] * 4}, TagColumns(), "has '|' between tags"),
        ({"path": IDS, "tags": [1, 2, 3, 4]}, TagColumns(("path", "tags")), "neither 0 nor 1"),
        ({"path": IDS, "tags": [0, 1, 0, 1]}, TagColumns(("dog", "tags")), "no column 'dog'"),
        ({"path": IDS, **ONE_HOT}, TagColumns(("cat", "dog"), ","), "separator does not apply"),
    ],
)
def test_what_is_no_table_of_tags_is_refused(
    tmp_path: Path, columns: Mapping[str, Any], wanted: TagColumns, message: str
) -> None:
    csv(tmp_path / "t.csv", columns)

    with pytest.raises(DatasetError) as raised:
        open_tags(str(tmp_path / "t.csv"), wanted)

    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("cells", "separator"),
    [
        (["a b", "a", "b", "b a"], " "),
        (["a;b", "a;c", "b", "c"], ";"),
        (["a b", "c", "d", "e"], None),
    ],
)
def test_a_refusal_names_the_separator_where_it_is_evident(
    tmp_path: Path, cells: list[str], separator: str | None
) -> None:
    csv(tmp_path / "t.csv", {"path": IDS, "tags": cells})

    with pytest.raises(DatasetError) as raised:
        open_tags(str(tmp_path / "t.csv"), TagColumns())

    assert Setting("separator", separator) in raised.value.remedy


def test_tags_of_coco_are_annotations_without_a_box(tmp_path: Path) -> None:
    content: dict[str, list[dict[str, Any]]] = {
        "images": [{"id": row, "file_name": name} for row, name in enumerate(IDS)],
        "annotations": [
            {
                "id": 10 * row + place,
                "image_id": row,
                "category_id": sorted(ONE_HOT).index(tag),
            }
            for row, tags in enumerate(TAGS)
            for place, tag in enumerate(tags)
        ],
        "categories": [{"id": row, "name": name} for row, name in enumerate(ONE_HOT)],
    }
    (tmp_path / "t.json").write_text(json.dumps(content))

    found = open_tags(str(tmp_path / "t.json"), TagColumns())

    assert tags_of(found) == list(map(set, TAGS))
    assert found.images == tuple(IDS)
    content["annotations"][0]["bbox"] = [0, 0, 5, 5]
    (tmp_path / "t.json").write_text(json.dumps(content))
    with pytest.raises(DatasetError, match=r"annotation 0 .* has a box"):
        open_tags(str(tmp_path / "t.json"), TagColumns())
