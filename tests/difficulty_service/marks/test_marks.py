"""Files of marks, as people, spreadsheets and programs write them."""

import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import CleaningError
from difficulty_service.marks.marks import (
    Mark,
    MarkedSample,
    MarkHistory,
    Marks,
    compose,
    marks_file,
    read_marks,
    remembered_marks,
    write_marks,
)
from tests.formulas import FORMULAS, cells_that_run

EXPECTED = {
    "a.png": MarkedSample(Mark.DROP),
    "b.png": MarkedSample(Mark.RELABEL, "café"),
    "c.png": MarkedSample(Mark.KEEP),
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

    assert marks == Marks(EXPECTED, ())


def test_a_line_that_names_the_separator_is_skipped(tmp_path: Path) -> None:
    marks = read(tmp_path, b"sep=;\r\nsample_id;mark\r\na.png;drop\r\n")

    assert marks.samples == {"a.png": MarkedSample(Mark.DROP)}


def test_a_file_in_the_code_page_of_windows_is_read_with_a_warning(tmp_path: Path) -> None:
    marks = read(tmp_path, "\n".join(LINES).encode("cp1252"))

    assert marks.samples == EXPECTED
    assert "is not UTF-8; it is read as Windows-1252" in marks.warnings[0]


def test_the_last_mark_of_a_sample_counts_and_empty_marks_do_not(tmp_path: Path) -> None:
    marks = read(tmp_path, b"sample_id,mark\na,drop\nb,\na,keep\nb,drop\na,\n")

    assert marks.samples == {"a": MarkedSample(Mark.KEEP), "b": MarkedSample(Mark.DROP)}
    assert "1 samples are marked more than once" in marks.warnings[0]
    assert "2 lines" in marks.warnings[1]


def test_the_quote_before_a_formula_is_removed_unless_it_belongs_to_the_id(tmp_path: Path) -> None:
    content = b"sample_id,mark,label\n'=a,drop,\n'-b,drop,\n'c,relabel,'@home\n"

    marks = read(tmp_path, content, known={"=a", "'-b", "'c"})

    assert marks.samples == {
        "=a": MarkedSample(Mark.DROP),
        "'-b": MarkedSample(Mark.DROP),
        "'c": MarkedSample(Mark.RELABEL, "@home"),
    }


def test_marks_are_read_from_parquet(tmp_path: Path) -> None:
    table = pa.table({"sample_id": [1, 2], "mark": ["drop", "relabel"], "label": [None, "cat"]})
    pq.write_table(table, tmp_path / "marks.parquet")

    marks = read_marks(tmp_path / "marks.parquet", {"1", "2"})

    assert marks.samples == {
        "1": MarkedSample(Mark.DROP),
        "2": MarkedSample(Mark.RELABEL, "cat"),
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
        "=cat/1.png": MarkedSample(Mark.RELABEL, "-dog", given="@cat", content=bytes(range(32))),
        'a,\n"b"': MarkedSample(Mark.KEEP, given="dog", order="random", round=3),
        "Käfer 🐞/1.png": MarkedSample(Mark.DROP),
    }
    scores = tmp_path / "scores.parquet"

    write_marks(marks_file(scores), marks)

    assert remembered_marks(scores).samples == marks
    assert "\n=" not in marks_file(scores).read_text(), "no spreadsheet runs a cell as a formula"


def test_no_spreadsheet_runs_a_remembered_mark_and_none_goes_to_another_sample(
    tmp_path: Path,
) -> None:
    ids = [*FORMULAS, *(f"'{text}" for text in FORMULAS if not text.startswith("'"))]
    marks = {
        text: MarkedSample(Mark.RELABEL, f"{text}{number}", given=text, order=text.strip())
        for number, text in enumerate(ids)
        if text.strip() == text
    }
    path = tmp_path / "marks.csv"

    write_marks(path, marks)

    assert cells_that_run(path.read_bytes().decode()) == []
    assert read_marks(path, ids).samples == marks


def test_the_cells_of_parquet_are_no_spreadsheets(tmp_path: Path) -> None:
    table = pa.table({"sample_id": ["'=a"], "mark": ["relabel"], "label": ["'-dog"]})
    pq.write_table(table, tmp_path / "marks.parquet")

    marks = read_marks(tmp_path / "marks.parquet", {"=a"})

    assert marks.samples == {"'=a": MarkedSample(Mark.RELABEL, "'-dog")}


def test_without_a_file_nothing_is_remembered(tmp_path: Path) -> None:
    assert remembered_marks(tmp_path / "scores.parquet") == Marks({}, ())


def test_a_content_that_is_no_digest_is_not_known(tmp_path: Path) -> None:
    marks = read(tmp_path, b"sample_id,mark,content\na,keep,a picture\nb,keep,00ff\n")

    assert [each.content for each in marks.samples.values()] == [None, b"\x00\xff"]


def test_later_marks_are_about_what_earlier_ones_left() -> None:
    to_dog = MarkedSample(Mark.RELABEL, "dog", given="cat")
    earlier = {"kept": to_dog, "back": to_dog, "other": to_dog, "untouched": to_dog}
    later = {
        "kept": MarkedSample(Mark.KEEP, given="dog"),
        "back": MarkedSample(Mark.RELABEL, "cat", given="dog"),
        "other": MarkedSample(Mark.DROP, given="dog"),
        "new": MarkedSample(Mark.KEEP, given="owl"),
    }

    every = compose(MarkHistory(Marks(earlier, ("one",)), Marks(later, ("two",))))

    assert every.samples == {
        "kept": to_dog,
        "back": MarkedSample(Mark.KEEP, given="cat", round=2),
        "other": MarkedSample(Mark.DROP, given="cat", round=2),
        "untouched": to_dog,
        "new": MarkedSample(Mark.KEEP, given="owl", round=2),
    }
    assert every.warnings == ("one", "two")


def test_remembered_marks_that_were_edited_are_read_and_said_to_have_changed(
    tmp_path: Path,
) -> None:
    path = marks_file(tmp_path / "scores.parquet")
    write_marks(path, EXPECTED)
    assert read_marks(path, ()).warnings == ()
    path.write_text(path.read_text().replace("c.png,keep", "c.png,drop"))

    read = read_marks(path, ())

    assert read.samples == EXPECTED | {"c.png": MarkedSample(Mark.DROP)}
    assert len(read.warnings) == 1
    assert "scores.marks.csv has changed since it was written" in read.warnings[0]


def test_programs_of_the_system_can_check_remembered_marks(tmp_path: Path) -> None:
    write_marks(tmp_path / "scores.marks.csv", EXPECTED)

    command = ["sha256sum", "--check", "--strict", "scores.marks.csv.sha256"]
    checked = subprocess.run(  # noqa: S603 - our own words
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert checked.stdout == "scores.marks.csv: OK\n"
    assert checked.returncode == 0


def test_marks_with_a_name_as_long_as_can_be_have_no_checksum(tmp_path: Path) -> None:
    path = tmp_path / f"{'s' * 210}.marks.csv"

    write_marks(path, EXPECTED)

    assert read_marks(path, ()) == Marks(EXPECTED, ())


def test_a_quote_that_is_never_closed_takes_no_other_mark_away(tmp_path: Path) -> None:
    content = b'sample_id,mark,label\n"a.png,drop,\nb.png,keep,\nc.png",keep,\n'

    with pytest.raises(CleaningError, match=r"marks\.csv: a quote that is open until line \d"):
        read(tmp_path, content)


def test_a_box_that_is_off_keeps_the_class_that_it_was_given_in_an_earlier_round(
    tmp_path: Path,
) -> None:
    relabelled = MarkedSample(Mark.RELABEL, "dog", given="cat", round=1)
    off, keep = MarkedSample(Mark.OFF, round=2), MarkedSample(Mark.KEEP, round=3)

    both = off.after(relabelled)
    write_marks(tmp_path / "marks.csv", {"a.png#1": both, "a.png#2": off})
    read = read_marks(tmp_path / "marks.csv", set()).samples

    assert both == MarkedSample(Mark.OFF, "dog", given="cat", round=2)
    assert read == {"a.png#1": both, "a.png#2": off}
    assert keep.after(both) == MarkedSample(Mark.RELABEL, "dog", given="cat", round=3)
    assert keep.after(off) == keep
