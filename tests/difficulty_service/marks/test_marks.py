"""Files of marks, as people, spreadsheets and programs write them."""

import subprocess
from dataclasses import fields, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import CleaningError
from difficulty_service.marks.files import marks_of_table, read_marks, write_marks
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import (
    SCHEMA,
    MarkedSample,
    MarkHistory,
    Marks,
    from_table,
    to_table,
)
from difficulty_service.marks.review_folder import ReviewFolder
from tests.factories import named
from tests.formulas import FORMULAS, cells_that_run

EXPECTED = {
    "a.png": MarkedSample("a.png", Mark.DROP),
    "b.png": MarkedSample("b.png", Mark.RELABEL, "café"),
    "c.png": MarkedSample("c.png", Mark.KEEP),
}
LINES = (
    "sample_id,mark,label,note",
    'a.png,drop,,"two lines\nof text"',
    "b.png, Relabel ,café,",
    "c.png,keep,cat,",
)


def read(tmp_path: Path, content: bytes, known: set[str] | None = None) -> Marks:
    path = tmp_path / "marks.csv"
    path.write_bytes(content)
    return read_marks(path, known or set())


@pytest.mark.parametrize(
    ("encoding", "separator", "line_end"),
    [
        ("utf-8", ",", "\n"),
        ("utf-8-sig", ";", "\r\n"),
        ("utf-16", "\t", "\r\n"),
    ],
)
def test_marks_are_read_as_spreadsheets_write_them(
    tmp_path: Path, encoding: str, separator: str, line_end: str
) -> None:
    text = line_end.join(line.replace(",", separator) for line in LINES)

    marks = read(tmp_path, text.encode(encoding))

    assert marks == Marks(EXPECTED)


def test_a_line_that_names_the_separator_is_skipped(tmp_path: Path) -> None:
    marks = read(tmp_path, b"sep=;\r\nsample_id;mark\r\na.png;drop\r\n")

    assert marks.samples == {"a.png": MarkedSample("a.png", Mark.DROP)}


def test_a_file_in_the_code_page_of_windows_is_read_with_a_warning(tmp_path: Path) -> None:
    marks = read(tmp_path, "\n".join(LINES).encode("cp1252"))

    assert marks.samples == EXPECTED
    assert "is not UTF-8; it is read as Windows-1252" in marks.warnings[0]


def test_the_last_mark_of_a_sample_counts_and_empty_marks_do_not(tmp_path: Path) -> None:
    marks = read(tmp_path, b"sample_id,mark\na,drop\nb,\na,keep\nb,drop\na,\n")

    assert marks.samples == {"a": MarkedSample("a", Mark.KEEP), "b": MarkedSample("b", Mark.DROP)}
    assert "1 samples are marked more than once" in marks.warnings[0]
    assert "2 lines" in marks.warnings[1]


def test_the_quote_before_a_formula_is_removed_unless_it_belongs_to_the_id(tmp_path: Path) -> None:
    content = b"sample_id,mark,label\n'=a,drop,\n'-b,drop,\n'c,relabel,'@home\n"

    marks = read(tmp_path, content, known={"=a", "'-b", "'c"})

    assert marks.samples == {
        "=a": MarkedSample("=a", Mark.DROP),
        "'-b": MarkedSample("'-b", Mark.DROP),
        "'c": MarkedSample("'c", Mark.RELABEL, "@home"),
    }


def test_marks_are_read_from_parquet(tmp_path: Path) -> None:
    table = pa.table({"sample_id": [1, 2], "mark": ["drop", "relabel"], "label": [None, "cat"]})
    pq.write_table(table, tmp_path / "marks.parquet")

    marks = read_marks(tmp_path / "marks.parquet", {"1", "2"})

    assert marks.samples == {
        "1": MarkedSample("1", Mark.DROP),
        "2": MarkedSample("2", Mark.RELABEL, "cat"),
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id,mark\na,drop\n", "no column 'sample_id'; its columns are id, mark"),
        (b"sample_id\na\n", "no column 'mark'"),
        (b"", "no column 'sample_id'; its columns are none"),
        (b"sample_id,mark\na,keep\nb,remove\n", "line 3: the mark 'remove' is unknown"),
        (b"sample_id,mark,label\na,relabel,\n", "line 2: the mark is relabel, but"),
        (b"sample_id,mark\na,relabel\n", "line 2: the mark is relabel, but"),
        (b'sample_id,mark\n"a,drop\n', "cannot be read as CSV"),
    ],
)
def test_a_file_that_is_not_of_marks_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises(CleaningError, match=message):
        read(tmp_path, content)


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    for name in ("marks.csv", "marks.parquet"):
        with pytest.raises(CleaningError, match=rf"{name} cannot be read"):
            read_marks(tmp_path / name, set())


def test_what_is_remembered_is_read_again_as_it_was(tmp_path: Path) -> None:
    marks = {
        "=cat/1.png": MarkedSample(
            "=cat/1.png", Mark.RELABEL, "-dog", given_label="@cat", content=bytes(range(32)).hex()
        ),
        'a,\n"b"': MarkedSample('a,\n"b"', Mark.KEEP, given_label="dog", order="random", round=3),
        "Käfer 🐞/1.png": MarkedSample("Käfer 🐞/1.png", Mark.DROP),
    }
    scores = tmp_path / "scores.parquet"

    folder = ReviewFolder(scores)

    folder.remember(marks.values())

    assert folder.remembered().samples == marks
    assert "\n=" not in folder.file.read_text(), "no spreadsheet runs a cell as a formula"


def test_no_spreadsheet_runs_a_remembered_mark_and_none_goes_to_another_sample(
    tmp_path: Path,
) -> None:
    ids = [*FORMULAS, *(f"'{text}" for text in FORMULAS if not text.startswith("'"))]
    marks = {
        text: MarkedSample(
            text, Mark.RELABEL, f"{text}{number}", given_label=text, order=text.strip()
        )
        for number, text in enumerate(ids)
        if text.strip() == text
    }
    path = tmp_path / "marks.csv"

    write_marks(path, marks.values())

    assert cells_that_run(path.read_bytes().decode()) == []
    assert read_marks(path, ids).samples == marks


def test_the_cells_of_parquet_are_no_spreadsheets(tmp_path: Path) -> None:
    table = pa.table({"sample_id": ["'=a"], "mark": ["relabel"], "label": ["'-dog"]})
    pq.write_table(table, tmp_path / "marks.parquet")

    marks = read_marks(tmp_path / "marks.parquet", {"=a"})

    assert marks.samples == {"'=a": MarkedSample("'=a", Mark.RELABEL, "'-dog")}


def test_without_a_file_nothing_is_remembered(tmp_path: Path) -> None:
    assert ReviewFolder(tmp_path / "scores.parquet").remembered() == Marks({})


def test_a_content_that_is_no_digest_is_not_known(tmp_path: Path) -> None:
    digest = "0F" * 32
    lines = f"sample_id,mark,content\na,keep,a picture\nb,keep,00ff\nc,keep,{digest}\n"

    marks = read(tmp_path, lines.encode())

    assert [each.content for each in marks.samples.values()] == [None, None, digest.lower()]


def test_later_marks_are_about_what_earlier_ones_left() -> None:
    to_dog = MarkedSample("", Mark.RELABEL, "dog", given_label="cat")
    earlier = named(dict.fromkeys(("kept", "back", "other", "untouched"), to_dog)).samples
    later = {
        "kept": MarkedSample("kept", Mark.KEEP, given_label="dog"),
        "back": MarkedSample("back", Mark.RELABEL, "cat", given_label="dog"),
        "other": MarkedSample("other", Mark.DROP, given_label="dog"),
        "new": MarkedSample("new", Mark.KEEP, given_label="owl"),
    }

    every = MarkHistory(Marks(earlier, ("one",)), Marks(later, ("two",))).composed()

    assert every.samples == {
        "kept": earlier["kept"],
        "back": MarkedSample("back", Mark.KEEP, given_label="cat", round=2),
        "other": MarkedSample("other", Mark.DROP, given_label="cat", round=2),
        "untouched": earlier["untouched"],
        "new": MarkedSample("new", Mark.KEEP, given_label="owl", round=2),
    }
    assert every.warnings == ("one", "two")


def test_remembered_marks_that_were_edited_are_read_and_said_to_have_changed(
    tmp_path: Path,
) -> None:
    path = ReviewFolder(tmp_path / "scores.parquet").file
    write_marks(path, EXPECTED.values())
    assert read_marks(path, ()).warnings == ()
    path.write_text(path.read_text().replace("c.png,keep", "c.png,drop"))

    read = read_marks(path, ())

    assert read.samples == EXPECTED | {"c.png": MarkedSample("c.png", Mark.DROP)}
    assert len(read.warnings) == 1
    assert "scores.marks.csv has changed since it was written" in read.warnings[0]


def test_programs_of_the_system_can_check_remembered_marks(tmp_path: Path) -> None:
    write_marks(tmp_path / "scores.marks.csv", EXPECTED.values())

    command = ["sha256sum", "--check", "--strict", "scores.marks.csv.sha256"]
    checked = subprocess.run(  # noqa: S603 - our own words
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert checked.stdout == "scores.marks.csv: OK\n"
    assert checked.returncode == 0


def test_marks_with_a_name_as_long_as_can_be_have_no_checksum(tmp_path: Path) -> None:
    path = tmp_path / f"{'s' * 210}.marks.csv"

    write_marks(path, EXPECTED.values())

    assert read_marks(path, ()) == Marks(EXPECTED)


def test_a_quote_that_is_never_closed_takes_no_other_mark_away(tmp_path: Path) -> None:
    content = b'sample_id,mark,label\n"a.png,drop,\nb.png,keep,\nc.png",keep,\n'

    with pytest.raises(CleaningError, match=r"marks\.csv: a quote that is open until line \d"):
        read(tmp_path, content)


LATER = ((Mark.MISPLACED, 2), (Mark.KEEP, 3))


def test_a_box_that_is_misplaced_keeps_the_class_that_it_was_given_in_an_earlier_round(
    tmp_path: Path,
) -> None:
    relabelled = MarkedSample("a#1", Mark.RELABEL, "dog", given_label="cat", round=1)
    misplaced, keep = (MarkedSample("a#1", mark, round=number) for mark, number in LATER)
    other = replace(misplaced, sample_id="a#2")

    both = misplaced.after(relabelled)
    write_marks(tmp_path / "marks.csv", [both, other])
    read = read_marks(tmp_path / "marks.csv", set()).samples

    assert both == MarkedSample("a#1", Mark.MISPLACED, "dog", given_label="cat", round=2)
    assert read == {"a#1": both, "a#2": other}
    assert keep.after(both) == MarkedSample("a#1", Mark.RELABEL, "dog", given_label="cat", round=3)
    assert keep.after(misplaced) == keep


def test_what_was_decided_about_another_content_is_nothing_that_a_later_mark_is_after() -> None:
    before = MarkedSample("a", Mark.RELABEL, "dog", "cat", content="0" * 64, round=1)
    keep = MarkedSample("a", Mark.KEEP, given_label="cat", content="0" * 64)
    changed = replace(keep, content="1" * 64)

    same, other = (
        MarkHistory(Marks.of([before]), Marks.of([later])).composed().samples["a"]
        for later in (keep, changed)
    )

    assert same == before
    assert other == replace(changed, round=2)


def test_decisions_go_through_a_table_of_one_schema() -> None:
    marks = [
        MarkedSample("a", Mark.RELABEL, "dog", "cat", "0" * 64, "random", 2),
        MarkedSample("b", Mark.KEEP),
    ]

    table = to_table(marks)

    assert table.schema == SCHEMA
    assert SCHEMA.names == [each.name for each in fields(MarkedSample)]
    assert from_table(table) == marks
    assert [*marks_of_table(table).samples.values()] == marks


def test_what_another_program_decided_since_the_file_was_written_is_told(tmp_path: Path) -> None:
    folder = ReviewFolder(tmp_path / "scores.parquet")
    folder.remember(EXPECTED.values())
    b = EXPECTED["b.png"]
    kept, new = MarkedSample("a.png", Mark.KEEP), MarkedSample("d.png", Mark.DROP)

    write_marks(folder.file, [kept, replace(b, round=7), new])

    assert folder.changes_since(Marks(EXPECTED)) == {"a.png": kept, "c.png": None, "d.png": new}
    assert not (tmp_path / "scores.marks.undone.csv").exists(), "it was taken back on purpose"


def test_decisions_that_a_damaged_file_has_lost_are_set_aside(tmp_path: Path) -> None:
    folder = ReviewFolder(tmp_path / "scores.parquet")
    folder.remember(EXPECTED.values())
    folder.file.write_text("".join(folder.file.read_text().splitlines(keepends=True)[:2]))

    changes = folder.changes_since(Marks(EXPECTED))

    assert changes == {"b.png": None, "c.png": None}
    aside = read_marks(tmp_path / "scores.marks.undone.csv", ())
    assert {*aside.samples} == {"b.png", "c.png"}
