"""A table of tags is written again with only the decided cells changed, as other libraries see."""

import difflib
import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.datasets.tags import TagColumns, open_tags
from difficulty_service.datasets.tags.decisions import row_changes
from difficulty_service.datasets.tags.revising import revised
from difficulty_service.datasets.tags.table import SEPARATOR

ROWS = {"a.png": 0, "b.png": 1, "c#1.png": 2}
TAGS = ("cat", "dog", "owl", "c#")
CHANGES = {"a.png#dog": "not dog", "a.png#owl": "owl", "c#1.png#cat": "cat"}


def revise(path: Path, wanted: TagColumns, changes: dict[str, str | None]) -> bytes:
    """The content of a table after decisions, whose rows are those of ROWS."""
    table = open_tags(str(path), wanted)
    made = row_changes(changes, ROWS, set(TAGS), None if table.takes_others else table.names)
    assert not made.unknown
    assert not made.refused
    content = revised(table, wanted.separator or SEPARATOR, made.edits)
    if isinstance(content, bytes):
        return content
    content(path.with_name("written"))
    return path.with_name("written").read_bytes()


TEXT = (
    'path;"tags";note\r\n'
    'a.png;" cat |dog";"one ""odd"" cell; with a semicolon"\r\n'
    "b.png;dog|owl; 1.50 \r\n"
    "\r\n"
    "c#1.png;;\r\n"
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16-le"])
def test_a_table_of_text_changes_in_the_decided_cells_alone(tmp_path: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-le" else ""
    (tmp_path / "t.csv").write_bytes((mark + TEXT.replace("odd", "ödd")).encode(encoding))

    written = revise(tmp_path / "t.csv", TagColumns(), CHANGES).decode(encoding)

    before, after = TEXT.replace("odd", "ödd"), written.removeprefix(mark)
    assert after == before.replace('" cat |dog"', '" cat |owl"').replace("png;;", "png;cat;")
    assert len(mark + after) == len(written)


def test_a_row_is_taken_out_whole(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TEXT, newline="")

    written = revise(tmp_path / "t.csv", TagColumns(), {"b.png#dog": None, "b.png#owl": "not owl"})

    assert written.decode() == TEXT.replace("b.png;dog|owl; 1.50 \r\n", "")


def test_columns_of_0_and_1_keep_their_spelling(tmp_path: Path) -> None:
    text = "path,cat,dog,owl\na.png,TRUE,True,0\nb.png,0,1,1.0\nc#1.png,no,0,0\n"
    (tmp_path / "t.csv").write_text(text)

    written = revise(tmp_path / "t.csv", TagColumns(("cat", "dog", "owl")), CHANGES).decode()

    assert written == text.replace("TRUE,True,0", "TRUE,False,1").replace("no,0,0", "yes,0,0")


def test_json_lines_change_in_the_decided_values_alone(tmp_path: Path) -> None:
    lines = [
        '{"path":"a.png", "score": 1.50, "tags": ["cat","dog"], "more": {"tags": ["dog"]}}',
        '{"path": "b.png",  "tags": ["dog", "owl"]}',
        "",
        '{"path": "c#1.png"}',
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))

    written = revise(tmp_path / "t.jsonl", TagColumns(), CHANGES).decode()

    changed = [line[2:] for line in difflib.ndiff(lines, written.split("\n")) if line[0] == "+"]
    assert changed == [
        lines[0].replace('["cat","dog"]', '["cat", "owl"]'),
        '{"tags": ["cat"], "path": "c#1.png"}',
    ]
    assert pd.read_json(tmp_path / "t.jsonl", lines=True)["path"].tolist() == list(ROWS)
    assert json.loads(written.split("\n")[0])["score"] == 1.5


def test_a_list_in_json_changes_in_the_decided_values_alone(tmp_path: Path) -> None:
    text = """[
  {"path": "a.png", "score": 1.50, "tags": ["cat","dog"]},
  {"path": "b.png",  "tags": ["dog", "owl"]} ,
  {"path": "c#1.png", "tags": null}
]
"""
    (tmp_path / "t.json").write_text(text)

    written = revise(tmp_path / "t.json", TagColumns(), CHANGES | dict.fromkeys(["b.png#dog"]))

    after = text.replace('["cat","dog"]', '["cat", "owl"]').replace("null", '["cat"]')
    assert written.decode() == after.replace('{"path": "b.png",  "tags": ["dog", "owl"]} ,\n  ', "")


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.string()), pa.string()])
def test_parquet_changes_in_the_decided_values_alone(tmp_path: Path, kind: pa.DataType) -> None:
    lists = [["cat", "dog"], ["dog", "owl"], None]
    tags = lists if not pa.types.is_string(kind) else ["cat|dog", "dog|owl", None]
    field = pa.field("tags", kind, metadata={"made": "by hand"})
    images = pa.array([b"\0" * 1000, b"\1", None])
    before = pa.table(
        [list(ROWS), images, pa.array(tags, kind)],
        pa.schema([pa.field("path", pa.string()), pa.field("image", pa.binary()), field]),
    ).replace_schema_metadata({"author": "somebody"})
    pq.write_table(before, tmp_path / "t.parquet", row_group_size=2, compression="gzip")

    revise(tmp_path / "t.parquet", TagColumns(), CHANGES)

    after = pq.ParquetFile(tmp_path / "written")
    assert after.schema_arrow.equals(pq.read_schema(tmp_path / "t.parquet"), check_metadata=True)
    assert after.metadata.num_row_groups == 2
    assert after.metadata.row_group(0).column(0).compression == "GZIP"
    new = [["cat", "owl"], ["dog", "owl"], ["cat"]]
    expected = ["|".join(each) for each in new] if pa.types.is_string(kind) else new
    table = after.read()
    assert table["tags"].to_pylist() == expected
    assert table.drop_columns("tags").equals(before.drop_columns("tags"))


def test_one_hot_parquet_keeps_its_types(tmp_path: Path) -> None:
    before = pa.table(
        {
            "path": list(ROWS),
            "cat": [True, False, False],
            "dog": pa.array([1, 1, 0], pa.int8()),
            "owl": [0.0, 1.0, 0.0],
        }
    )
    pq.write_table(before, tmp_path / "t.parquet")

    revise(
        tmp_path / "t.parquet", TagColumns(("cat", "dog", "owl")), {**CHANGES, "b.png#dog": None}
    )

    after = pq.read_table(tmp_path / "written")
    assert after.schema == before.schema
    assert after.drop_columns("path").to_pylist() == [
        {"cat": True, "dog": 0, "owl": 1.0},
        {"cat": True, "dog": 0, "owl": 0.0},
    ]


def test_integers_stay_integers_and_keep_their_order(tmp_path: Path) -> None:
    pq.write_table(pa.table({"path": ["a.png"], "tags": [[3, 1, 2]]}), tmp_path / "t.parquet")
    table = open_tags(str(tmp_path / "t.parquet"), TagColumns())

    content = revised(table, SEPARATOR, {0: {"1": False, "7": True}})

    assert not isinstance(content, bytes)
    content(tmp_path / "written")
    assert pq.read_table(tmp_path / "written")["tags"].to_pylist() == [[3, 2, 7]]


def test_another_tag_takes_the_place_of_one_and_what_decides_nothing_is_told() -> None:
    made = row_changes(
        {
            "a.png#dog": "owl",
            "b.png#c#": "not c#",
            "c#1.png#cat": "not dog",
            "gone.png#cat": "cat",
            "a.png#fish": "fish",
        },
        ROWS,
        set(TAGS),
    )

    assert made.edits == {0: {"dog": False, "owl": True}, 1: {"c#": False}}
    assert made.refused == ["c#1.png#cat (not dog)"]
    assert made.unknown == ["gone.png#cat", "a.png#fish"]


COCO = """{"info": {"né": 1.50},
 "images": [{"id": 7, "file_name": "a.png", "width": 1e1}, {"id": 9, "file_name": "b.png"},
   {"id": 4, "file_name": "c#1.png"}],
 "annotations": [
   {"id": 1, "image_id": 7, "category_id": 2, "score": 1.50},
   {"id": 5, "image_id": 7, "category_id": 3},
   {"id": 2, "image_id": 9, "category_id": 3}, {"id": 3, "image_id": 9, "category_id": 8}
 ],
 "categories": [{"id": 2, "name": "cat"}, {"id": 3, "name": "dog"}, {"id": 8, "name": "owl"}]}
"""


def test_annotations_of_coco_change_alone(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(COCO)

    written = revise(tmp_path / "t.json", TagColumns(), CHANGES).decode()

    added = (
        ', {"id": 6, "image_id": 7, "category_id": 8}, {"id": 7, "image_id": 4, "category_id": 2}'
    )
    gone = '{"id": 5, "image_id": 7, "category_id": 3},\n   '
    last = '{"id": 3, "image_id": 9, "category_id": 8}'
    assert written == COCO.replace(gone, "").replace(last, last + added)


def test_an_image_of_coco_goes_with_its_annotations(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(COCO)

    kept = revise(tmp_path / "t.json", TagColumns(), {"b.png#dog": None})
    none = revise(
        tmp_path / "t.json",
        TagColumns(),
        dict.fromkeys(("b.png#dog", "a.png#dog")) | {"c#1.png#cat": "cat"},
    )

    assert [each["id"] for each in json.loads(kept)["images"]] == [7, 4]
    assert [each["id"] for each in json.loads(kept)["annotations"]] == [1, 5]
    assert json.loads(none)["annotations"] == [{"id": 6, "image_id": 4, "category_id": 2}]


def test_each_column_of_parquet_keeps_its_compression(tmp_path: Path) -> None:
    images = [{"bytes": b"x", "path": name} for name in ROWS]
    before = pa.table({"image": images, "tags": [["cat", "dog"], ["dog"], []]})
    codecs = {"image.bytes": "none", "image.path": "snappy", "tags.list.element": "gzip"}
    pq.write_table(before, tmp_path / "t.parquet", compression=codecs)

    revise(tmp_path / "t.parquet", TagColumns(), CHANGES)

    written = pq.read_metadata(tmp_path / "written").row_group(0)
    assert {
        written.column(place).path_in_schema: written.column(place).compression
        for place in range(written.num_columns)
    } == {"image.bytes": "UNCOMPRESSED", "image.path": "SNAPPY", "tags.list.element": "GZIP"}


def test_numbers_with_declared_names_are_written_as_numbers(tmp_path: Path) -> None:
    label = {"names": ["owl", "dog", "cat"], "_type": "ClassLabel"}
    info = {"info": {"features": {"tags": {"feature": label, "_type": "List"}}}}
    before = pa.table({"path": list(ROWS), "tags": [[2, 1], [0, 1], []]})
    before = before.replace_schema_metadata({"huggingface": json.dumps(info)})
    pq.write_table(before, tmp_path / "t.parquet")

    revise(tmp_path / "t.parquet", TagColumns(), CHANGES)

    assert pq.read_table(tmp_path / "written")["tags"].to_pylist() == [[2, 0], [0, 1], [2]]


def test_blanks_after_commas_are_in_no_name_of_a_column(tmp_path: Path) -> None:
    text = "filename, cat, dog, owl\na.png, 1, 1, 0\nb.png, 0, 1, 1\nc#1.png, 0, 0, 0\n"
    (tmp_path / "_classes.csv").write_text(text)

    written = revise(tmp_path / "_classes.csv", TagColumns(("cat", "dog", "owl")), CHANGES)

    assert written.decode().splitlines()[1:] == [
        "a.png, 1, 0, 1",
        "b.png, 0, 1, 1",
        "c#1.png, 1, 0, 0",
    ]


def test_quotes_after_blanks_are_in_no_tag(tmp_path: Path) -> None:
    text = '"path", "tags"\n"a.png", "cat|dog"\n"b.png", "dog|owl"\n"c#1.png", ""\n'
    (tmp_path / "t.csv").write_text(text)

    written = revise(tmp_path / "t.csv", TagColumns(), CHANGES).decode()

    assert written == text.replace("cat|dog", "cat|owl").replace('""', '"cat"')
