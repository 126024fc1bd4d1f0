"""Quotes in tables of text: those around cells, those of texts, and those that swallow rows."""

import csv
import io
from itertools import product
from pathlib import Path

import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.quoted_cells import loose_quote
from tests.dataset_files import contents_of, dataset_of

HEAD = "label\ttext\n"


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("last", ["ham\tbye\n", 'ham\t"bye\n'])
def test_a_quote_of_a_text_that_swallows_rows_is_refused(tmp_path: Path, last: str) -> None:
    rows = "".join(f"{'ham' if row % 2 else 'spam'}\tgood {row}\n" for row in range(9))
    path = written(tmp_path / "sms.tsv", HEAD + rows + 'ham\t"Hello, she said\n' + rows + last)

    with pytest.raises(DatasetError, match=r"a quote in line 11 of 'sms\.tsv' begins") as refused:
        dataset_of(path, text_column="text")

    assert "read_csv(path, sep='\\t', quoting=3)" in str(refused.value)


def test_a_quote_before_a_label_that_swallows_rows_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", 'path,label\na.png,"cat\nb.png,dog\nc.png,"cow"\n')

    with pytest.raises(DatasetError, match=r"a quote in line 2 of 't\.csv' begins"):
        dataset_of(path)


def test_texts_with_quotes_and_line_breaks_are_read_as_they_are(tmp_path: Path) -> None:
    texts = ['say ""yes"",\r\nthen "", \n\nno', ' 6"" wide', "\n"]
    rows = "".join(f'cat,"{text}"\r\n' for text in texts)
    path = written(tmp_path / "t.csv", f'\ufefflabel,text\r\n{rows}dog,a 5" pipe\r\ndog,"b" c\r\n')

    dataset = dataset_of(path, text_column="text")

    read = [text.replace('""', '"').encode() for text in texts[:2]]
    assert contents_of(dataset)[:2] == read
    assert dataset.class_names == ("cat", "dog")
    assert len(dataset.labels) == 5


def test_what_a_strict_reader_reads_has_no_loose_quote() -> None:
    read = 0
    for cells in product('a",\n', repeat=7):
        text = "".join(cells)
        try:
            list(csv.reader(io.StringIO(text, newline=""), strict=True))
        except csv.Error:
            continue
        read += 1
        assert loose_quote(text, ",") is None, text

    assert read > 5000


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a,"b', 1),
        ('a\r\nb,"c\r\nd', 2),
        ('a\nb\n"c\nd"e,f', 3),
        ('"a\nb"\n"c', 3),
        ('"a\nb""\nc', 1),
        ('a,"b"c\n"d"" ', 2),
    ],
)
def test_the_line_of_a_loose_quote_is_told(text: str, line: int) -> None:
    assert loose_quote(text, ",") == line
