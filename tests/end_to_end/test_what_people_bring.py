"""Datasets as people bring them: each is read as it was meant, or one sentence names the remedy."""

import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import DatasetError, MissingPackage
from difficulty_service.dataset_formats import DATASET_FORMATS
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.preview import preview
from difficulty_service.datasets.sample import DatasetOptions, TableLimits
from difficulty_service.datasets.storage import boundary_at
from tests.end_to_end.conftest import Command
from tests.factories import png_of

CLASSES = ("bird", "cat", "dog")
LABELS = CLASSES * 4
PATHS = tuple(f"img/{number}.png" for number in range(len(LABELS)))

Make = Callable[[Path], Path]
"""Function that makes a dataset in an empty folder, and returns its location."""


@dataclass(frozen=True)
class Brought:
    """A dataset, what is read of it, and the sentences about it; `{}` stands for its folder."""

    make: Make
    classes: tuple[str, ...] = CLASSES
    notes: tuple[str, ...] = ()
    first_id: str = PATHS[0]


@dataclass(frozen=True)
class Refused:
    """A dataset that is not read, and words of the sentence that answers it."""

    make: Make
    words: tuple[str, ...]


def write_images(folder: Path) -> None:
    (folder / "img").mkdir()
    for number, path in enumerate(PATHS):
        (folder / path).write_bytes(image(number))


def image(number: int) -> bytes:
    return png_of((20 * number, 10, 200), (4, 4))


def text_table(  # noqa: PLR0913 - one parameter for each way to write a table
    name: str,
    separator: str = ",",
    *,
    encoding: str = "utf-8",
    labels: tuple[str, ...] = LABELS,
    header: tuple[str, ...] = ("path", "label"),
    other: str = "",
    paths: tuple[str, ...] = PATHS,
) -> Make:
    """A table of text; `other` is the cell of a third column."""

    def make(folder: Path) -> Path:
        write_images(folder)
        cells = (other,) * bool(other)
        rows = [header, *((path, label, *cells) for path, label in zip(paths, labels, strict=True))]
        text = "".join(f"{separator.join(row)}\r\n" for row in rows if row)
        (folder / name).write_bytes(text.encode(encoding))
        return folder / name

    return make


def workbook(*sheets: list[tuple[object, ...]]) -> Make:
    """A workbook of the rows of some sheets, with the texts in the cells, as few programs do."""

    def make(folder: Path) -> Path:
        write_images(folder)
        names = [f"Sheet{number}" for number in range(1, len(sheets) + 1)]
        main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
        office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
        package = "http://schemas.openxmlformats.org/package/2006/relationships"
        with zipfile.ZipFile(folder / "table.xlsx", "w") as file:
            listed = "".join(
                f'<sheet name="{name}" sheetId="{place}" r:id="r{place}"/>'
                for place, name in enumerate(names, 1)
            )
            file.writestr(
                "[Content_Types].xml",
                '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
                '<Default Extension="xml" ContentType="application/xml"/></Types>',
            )
            file.writestr(
                "_rels/.rels",
                f'<Relationships xmlns="{package}"><Relationship Id="r" '
                f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
            )
            file.writestr(
                "xl/workbook.xml",
                f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{listed}</sheets></workbook>',
            )
            targets = "".join(
                f'<Relationship Id="r{place}" Type="{office}/worksheet" Target="{name}.xml"/>'
                for place, name in enumerate(names, 1)
            )
            file.writestr(
                "xl/_rels/workbook.xml.rels",
                f'<Relationships xmlns="{package}">{targets}</Relationships>',
            )
            for name, rows in zip(names, sheets, strict=True):
                file.writestr(
                    f"xl/{name}.xml",
                    f'<worksheet xmlns="{main}"><sheetData>'
                    + "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
                    + "</sheetData></worksheet>",
                )
        return folder / "table.xlsx"

    return make


def cell(value: object) -> str:
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
    return f"<c><v>{value}</v></c>"


ROWS: list[tuple[object, ...]] = [("path", "label"), *zip(PATHS, LABELS, strict=True)]
NUMBERED: list[tuple[object, ...]] = [
    ("path", "label"),
    *((path, CLASSES.index(label)) for path, label in zip(PATHS, LABELS, strict=True)),
]
ACCENTS = tuple(label.replace("cat", "Bär") for label in LABELS)
SEMICOLONS = "'table.csv' is read with semicolons between its columns"
WINDOWS = "as cp1252, because it is not UTF-8; if letters look wrong, save it as UTF-8"


def parquet(labels: tuple[object, ...]) -> Make:
    def make(folder: Path) -> Path:
        images = [image(number) for number in range(len(labels))]
        pq.write_table(pa.table({"image": images, "label": labels}), folder / "table.parquet")
        return folder / "table.parquet"

    return make


def json_lines(label: object) -> Make:
    def make(folder: Path) -> Path:
        write_images(folder)
        lines = [json.dumps({"path": path, "label": label}) for path in PATHS]
        return written(folder / "table.jsonl", "\n".join(lines).encode())

    return make


TOWNS = ("Paris, France", "Vienna, France", "Paris, Texas", "Vienna, Texas")
IN_ONE, IN_TWO = "photos/bird/0.png", "photos/photos/bird/0.png"


def file_of(name: str, data: bytes) -> Make:
    return lambda folder: written(folder / name, data)


def several(example: str) -> str:
    return (
        f"label column 'label' seems to have several labels in one cell, such as {example!r}, and "
        "each combination is read as a class of its own; write one label in each row, or use "
        "`difficulty tags` where a sample has several, and `difficulty annotators` where they are "
        "those of several annotators"
    )


def folders(top: str = "", *others: str, classes: tuple[str, ...] = CLASSES) -> Make:
    """Class folders below a folder, and other files."""

    def make(folder: Path) -> Path:
        for number in range(len(LABELS)):
            name = f"{top}{classes[number % len(classes)]}/{number}.png"
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(image(number))
        for name in others:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"?")
        return folder

    return make


def packed(ending: str, top: str, *others: str, classes: tuple[str, ...] = CLASSES) -> Make:
    """Class folders in an archive, as programs pack them: not by name."""
    others = tuple(f"{top}{name}" if "/" not in name else name for name in others)

    def make(folder: Path) -> Path:
        source = folders(top, *others, classes=classes)(folder / "unpacked")
        files = [path for path in source.rglob("*") if path.is_file()]
        names = sorted(
            (path.relative_to(source).as_posix() for path in files), key=lambda name: name[::-1]
        )
        location = folder / f"archive.{ending}"
        if ending == "zip":
            with zipfile.ZipFile(location, "w") as archive:
                for name in names:
                    archive.write(source / name, name)
        else:
            with tarfile.open(location, "w" if ending == "tar" else "w:gz") as archive:
                for name in names:
                    archive.add(source / name, name)
        return location

    return make


def windows_paths() -> tuple[str, ...]:
    return tuple(path.replace("/", "\\") for path in PATHS)


ONE_HOT = tuple(",".join(str(int(label == each)) for each in CLASSES) for label in LABELS)

READ = {
    "commas": Brought(text_table("table.csv")),
    "semicolons": Brought(text_table("table.csv", ";"), notes=(SEMICOLONS,)),
    "tabs in a CSV": Brought(
        text_table("table.csv", "\t"),
        notes=("'table.csv' is read with tabs between its columns",),
    ),
    "vertical bars": Brought(
        text_table("table.csv", "|"),
        notes=("'table.csv' is read with vertical bars between its columns",),
    ),
    "TSV": Brought(text_table("table.tsv", "\t")),
    "TSV in a folder": Brought(lambda folder: flat(folder, "\t", "labels.tsv"), first_id="0.png"),
    "TXT with tabs": Brought(text_table("table.txt", "\t")),
    "TXT with spaces": Brought(
        text_table("table.txt", " "),
        notes=("'table.txt' is read with spaces between its columns",),
    ),
    "decimal commas": Brought(
        text_table("table.csv", ";", header=("path", "label", "width"), other="3,5"),
        notes=(f"{SEMICOLONS} and with decimal commas",),
    ),
    "a mark of UTF-8": Brought(text_table("table.csv", encoding="utf-8-sig")),
    "UTF-16": Brought(
        text_table("table.csv", "\t", encoding="utf-16"),
        notes=("'table.csv' is read with tabs between its columns",),
    ),
    "cp1252": Brought(
        text_table("table.csv", encoding="cp1252", labels=ACCENTS),
        ("Bär", "bird", "dog"),
        (f"'table.csv' is read {WINDOWS}",),
    ),
    "cp1252 with semicolons": Brought(
        text_table("table.csv", ";", encoding="cp1252", labels=ACCENTS),
        ("Bär", "bird", "dog"),
        (f"{SEMICOLONS} and {WINDOWS}",),
    ),
    "cp1252 in a header": Brought(
        text_table("table.csv", encoding="cp1252", header=("path", "label", "Größe"), other="1"),
        notes=(f"'table.csv' is read {WINDOWS}",),
    ),
    "UTF-8 with accents": Brought(text_table("table.csv", labels=ACCENTS), ("Bär", "bird", "dog")),
    "a header in capitals": Brought(text_table("table.csv", header=("Path", "Label"))),
    "names with commas": Brought(
        text_table("table.csv", labels=tuple(f'"{label}, wild"' for label in LABELS)),
        ("bird, wild", "cat, wild", "dog, wild"),
    ),
    "paths of Windows": Brought(
        text_table("table.csv", paths=windows_paths()), first_id=windows_paths()[0]
    ),
    "one label in each list": Brought(
        parquet(tuple([label] for label in LABELS)), first_id="table.parquet#0"
    ),
    "one-hot columns": Brought(
        text_table("table.csv", header=("path", *CLASSES), labels=ONE_HOT),
        notes=(
            "the label in 'table.csv' is the name of the column that is 1, of the 3 from 'bird' to "
            "'dog'",
        ),
    ),
    "one-hot lists": Brought(
        parquet(tuple([int(label == each) for each in CLASSES] for label in LABELS)),
        ("0", "1", "2"),
        ("label column 'label' is one-hot: the class is the position of the 1, counted from 0",),
        "table.parquet#0",
    ),
    "two labels by semicolons": Brought(
        text_table(
            "table.csv", labels=("cat;dog", "dog", "cat", "bird;cat", "bird;dog", "cat") * 2
        ),
        ("bird;cat", "bird;dog", "cat", "cat;dog", "dog"),
        (several("bird;cat"),),
    ),
    "two labels by commas": Brought(
        text_table("table.csv", ";", labels=("cat, dog", "dog", "cat") * 4),
        ("cat", "cat, dog", "dog"),
        (SEMICOLONS, several("cat, dog")),
    ),
    "two labels by blanks": Brought(
        text_table("table.csv", labels=("scab rust", "rust scab", "scab", "rust") * 3),
        ("rust", "rust scab", "scab", "scab rust"),
        (several("rust scab"),),
    ),
    "names of two words": Brought(
        text_table("table.csv", labels=("oil palm", "oil", "palm", "red wine") * 3),
        ("oil", "oil palm", "palm", "red wine"),
    ),
    "lists in text": Brought(
        text_table("table.csv", ";", labels=('["cat", "dog"]', '["cat"]') * 6),
        ('["cat", "dog"]', '["cat"]'),
        (SEMICOLONS, several('["cat", "dog"]')),
    ),
    "names of towns": Brought(text_table("table.csv", ";", labels=TOWNS * 3), TOWNS, (SEMICOLONS,)),
    "folders": Brought(folders(), first_id="bird/0.png"),
    "a folder around the folders": Brought(folders("photos/photos/"), first_id=IN_TWO),
    "folders with files of macOS": Brought(
        folders("photos/", "__MACOSX/photos/._a", ".DS_Store", "photos/.DS_Store"), first_id=IN_ONE
    ),
    "a single split": Brought(folders("photos/train/"), first_id="photos/train/bird/0.png"),
    **{
        f"{top or 'folders'} in a {ending}": Brought(
            packed(ending, top), first_id=f"{top}bird/0.png"
        )
        for ending in ("tar", "tar.gz", "tgz", "zip")
        for top in ("", "photos/", "photos/photos/")
    },
    "a zip of macOS": Brought(
        packed("zip", "photos/", "__MACOSX/photos/._a", "photos/.DS_Store"), first_id=IN_ONE
    ),
    "workbook": Brought(workbook(ROWS)),
    "workbook with numbers": Brought(workbook(NUMBERED), ("0", "1", "2")),
    "workbook of two sheets": Brought(
        workbook(ROWS, [("notes",)]),
        notes=("'table.xlsx' is read from its sheet 'Sheet1', and not from 1 other",),
    ),
}

REFUSED = {
    "several labels in each list": Refused(
        parquet((["cat", "dog"], ["dog"]) * 6),
        ("has 2 labels at table.parquet#0: 'cat', 'dog'", "one label in each row", "annotators`"),
    ),
    "several labels in JSON Lines": Refused(
        json_lines(["cat", "dog"]), ("has 2 labels at table.jsonl#0", "one label in each row")
    ),
    "columns of 0 and 1, of which several are 1": Refused(
        text_table("table.csv", header=("path", *CLASSES), labels=("1,0,1", "0,1,0", "0,0,1") * 4),
        ("no label column", "2 of them are 1 in row 0", "tags='bird,cat,dog'"),
    ),
    "a table beside a single folder": Refused(
        lambda folder: text_table("labels.csv")(folder).parent,
        ("a single folder, 'img', with 'labels.csv' beside it", "name that table as the dataset"),
    ),
    "a zip of a table and its images": Refused(
        packed("zip", "photos/", "labels.csv", classes=("img",)),
        ("a single folder, 'img', with 'photos/labels.csv'", "name that table", "unpacked"),
    ),
    "annotations in JSON": Refused(
        folders("", "annotations.json", classes=("img",)),
        ("'annotations.json' beside it", "CSV with the columns path and label"),
    ),
    "boxes": Refused(
        folders("", classes=("images", "labels")),
        ("boxes or masks", "CSV with the columns path and label"),
    ),
    "two splits": Refused(
        lambda folder: folders("train/")(folders("test/")(folder)),
        ("holds the splits ['train', 'test']", "choose one, for example split='train'"),
    ),
    **{
        f"a file ending in {ending}": Refused(
            file_of(f"photos{ending}", b"?"),
            ("is not read as a dataset", remedy),
        )
        for ending, remedy in {
            ".tar.bz2": "pack it again as .zip",
            ".7z": "unpack it",
            ".csv.gz": "unpack it",
            ".ods": "save it as .xlsx or CSV",
            ".feather": "write it as Parquet",
            ".h5": "score_dataset(images, labels)",
        }.items()
    },
    "no header": Refused(
        text_table("table.csv", header=()),
        ("the first line of 'table.csv' has no names", "write one above it"),
    ),
    "UTF-16 without a mark": Refused(
        text_table("table.csv", encoding="utf-16-le"), ("UTF-16", "save it as UTF-8")
    ),
    "neither UTF-8 nor cp1252": Refused(
        text_table("table.csv", encoding="shift_jis", labels=("犬、",) * len(LABELS)),
        ("neither UTF-8 nor cp1252", "save it as UTF-8"),
    ),
    "a workbook without content": Refused(workbook([]), ("is empty", "a row for each sample")),
    "no workbook": Refused(
        file_of("table.xlsx", b"PK\x03\x04"),
        ("cannot be read as .xlsx", "save it again, or as CSV"),
    ),
}


def flat(folder: Path, separator: str, name: str) -> Path:
    """Images beside a table of their names."""
    rows = [("file", "label")]
    for number, label in enumerate(LABELS):
        (folder / f"{number}.png").write_bytes(image(number))
        rows.append((f"{number}.png", label))
    (folder / name).write_text("".join(f"{separator.join(row)}\n" for row in rows))
    return folder


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kind", READ)
def test_a_dataset_is_read_as_it_was_meant(tmp_path: Path, kind: str) -> None:
    brought = READ[kind]

    dataset = open_dataset(str(brought.make(tmp_path)), DatasetOptions())

    shown = preview(dataset, None)
    assert sorted(each.name for each in shown.classes) == sorted(brought.classes)
    assert (shown.num_samples, shown.left_out, shown.notes) == (len(LABELS), (), brought.notes)
    assert shown.title == DATASET_FORMATS[shown.format]
    names = [dataset.class_names[label] for label in dataset.labels.tolist()]
    assert sorted(set(names)) == sorted(brought.classes)
    assert len(names) == len(LABELS)
    assert dataset.sample_ids[0] == brought.first_id
    assert dataset.warnings == brought.notes
    for sample in dataset.read_shard(0):
        (number,) = re.findall(r"(\d+)(?:\.png)?$", sample.sample_id)
        with sample.open() as file:
            assert file.read() == image(int(number))


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_read_is_answered_by_one_sentence(tmp_path: Path, kind: str) -> None:
    refused = REFUSED[kind]

    with pytest.raises(DatasetError) as caught:
        open_dataset(str(refused.make(tmp_path)), DatasetOptions())

    message = str(caught.value)
    assert [words for words in refused.words if words not in message] == [], message
    assert "\n" not in message


def test_a_workbook_without_its_reader_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "python_calamine", None)

    with pytest.raises(MissingPackage, match=r"pip install 'difficulty-service\[xlsx\]', or save"):
        open_dataset(str(workbook(ROWS)(tmp_path)), DatasetOptions())


@pytest.mark.parametrize("kind", ["workbook"])
def test_a_service_does_not_read_what_may_unpack_to_any_size(tmp_path: Path, kind: str) -> None:
    location = str(READ[kind].make(tmp_path))
    limits = TableLimits(max_rows=100, max_text_bytes=10_000)
    options = DatasetOptions(boundary=boundary_at(str(tmp_path)), limits=limits)

    with pytest.raises(
        DatasetError, match="unpack to any size, so only the command line"
    ) as caught:
        open_dataset(location, options)

    assert caught.value.remedy


@pytest.mark.parametrize("kind", ["cp1252 with semicolons", "workbook"])
def test_the_command_scores_it_and_says_what_it_assumed(
    tmp_path: Path, kind: str, difficulty: Command, builtin: tuple[str, ...]
) -> None:
    brought = READ[kind]
    out = tmp_path / "scores.parquet"

    done = difficulty("score", brought.make(tmp_path), "--out", out, *builtin, "--shrinkage", "oas")

    assert done.returncode == 0, done.stderr
    scores = pq.read_table(out)
    assert sorted(scores["label_name"].unique().to_pylist()) == sorted(brought.classes)
    assert len(scores) == len(LABELS)
    said = " ".join(done.stderr.split())
    assert [note for note in brought.notes if note not in said] == []
