"""Cleaned datasets: lists and folders that are datasets again, and never leave their place."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import CleaningError, DatasetError
from difficulty_service.base.tables import read_csv
from difficulty_service.cleaning.clean import (
    check_new_folder,
    check_output,
    is_list,
    write_folder,
    write_list,
)
from difficulty_service.cleaning.decisions import CleaningRules, Decisions, decide
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.images.header import read_encoded
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample
from difficulty_service.pages.stored_images import open_images
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from tests.dataset_files import dataset_of
from tests.factories import png_of, score_table
from tests.formulas import FORMULAS, cells_that_run
from tests.score_files import make_scores

MARKS = {
    "bird/0.png": MarkedSample("bird/0.png", Mark.DROP),
    "cat/1.png": MarkedSample("cat/1.png", Mark.RELABEL, "bird"),
}
BY_ID = DatasetOptions(id_column="sample_id")


def labels_of(dataset: Dataset) -> dict[str, str]:
    return {
        sample_id: dataset.class_names[label]
        for sample_id, label in zip(dataset.sample_ids, dataset.labels.tolist(), strict=True)
    }


def bytes_of(dataset: Dataset) -> dict[str, bytes]:
    samples = [s for shard in range(dataset.num_shards) for s in dataset.read_shard(shard)]
    return {sample.sample_id: read_encoded(sample.open) for sample in samples}


def texts_of(dataset: Dataset) -> list[str]:
    samples = [s for shard in range(dataset.num_shards) for s in dataset.read_shard(shard)]
    return [sample.open().read().decode() for sample in samples]


def decide_on(scores: ScoreFile) -> Decisions:
    return decide(scores, CleaningRules(MARKS))


@pytest.mark.parametrize("name", ["cleaned.csv", "cleaned.parquet", "lists/deep/cleaned.parquet"])
def test_a_list_is_a_dataset_of_the_kept_images(
    tmp_path: Path, photos: Path, photo_scores: ScoreFile, name: str
) -> None:
    source = open_images(photo_scores.provenance, photo_scores.table["sample_id"].to_pylist())

    cleaned = write_list(tmp_path / name, decide_on(photo_scores), source)

    dataset = open_dataset(str(tmp_path / name), BY_ID)
    assert labels_of(dataset) == {
        "bird/1.png": "bird",
        "cat/0.png": "cat",
        "cat/1.png": "bird",
        "dog/0.png": "dog",
        "dog/new/1.png": "dog",
    }
    assert bytes_of(dataset) == {
        sample_id: (photos / sample_id).read_bytes() for sample_id in dataset.sample_ids
    }
    assert (cleaned.num_kept, cleaned.has_images, cleaned.warnings) == (5, True, ())


def test_a_list_and_its_images_can_be_moved_together(
    tmp_path: Path, photos: Path, photo_scores: ScoreFile
) -> None:
    source = open_images(photo_scores.provenance, photo_scores.table["sample_id"].to_pylist())
    write_list(tmp_path / "cleaned.csv", decide_on(photo_scores), source)

    (tmp_path / "moved").mkdir()
    shutil.move(photos, tmp_path / "moved" / "photos")
    shutil.move(tmp_path / "cleaned.csv", tmp_path / "moved")

    assert len(bytes_of(open_dataset(str(tmp_path / "moved" / "cleaned.csv"), BY_ID))) == 5


def test_the_images_of_a_table_are_written_into_parquet_and_refused_for_csv(
    tmp_path: Path, photos: Path
) -> None:
    files = sorted(photos.rglob("*.png"))
    table = {"id": range(6), "image": [f.read_bytes() for f in files], "label": [0, 0, 1, 1, 2, 2]}
    pq.write_table(pa.table(table), tmp_path / "table.parquet")
    scores = make_scores(
        list("012345"), dataset=str(tmp_path / "table.parquet"), dataset_options={"id_column": "id"}
    )
    decisions = decide(scores, CleaningRules({"0": MarkedSample("0", Mark.DROP)}))
    source = open_images(scores.provenance, list("012345"))

    write_list(tmp_path / "cleaned.parquet", decisions, source)
    with pytest.raises(CleaningError, match=r"cleaned\.csv would be empty") as refused:
        write_list(tmp_path / "cleaned.csv", decisions, source)

    again = bytes_of(open_dataset(str(tmp_path / "cleaned.parquet"), BY_ID))
    assert again == {str(row): files[row].read_bytes() for row in range(1, 6)}
    assert "end the name in .parquet" in str(refused.value.remedy[0])
    assert not (tmp_path / "cleaned.csv").exists()


@pytest.mark.parametrize("link", [False, True])
def test_a_folder_is_a_dataset_of_the_kept_images_under_their_final_class(
    tmp_path: Path, photos: Path, photo_scores: ScoreFile, *, link: bool
) -> None:
    before = {path: path.read_bytes() for path in photos.rglob("*.png")}
    source = open_images(photo_scores.provenance, photo_scores.table["sample_id"].to_pylist())
    out = tmp_path / "cleaned"

    cleaned = write_folder(out, decide_on(photo_scores), source, link=link)

    dataset = dataset_of(out)
    assert bytes_of(dataset) == {
        "bird/1.png": before[photos / "bird/1.png"],
        "bird/1-2.png": before[photos / "cat/1.png"],
        "cat/0.png": before[photos / "cat/0.png"],
        "dog/0.png": before[photos / "dog/0.png"],
        "dog/new/1.png": before[photos / "dog/new/1.png"],
    }
    assert all(path.is_symlink() == link for path in out.rglob("*.png"))
    rows = pyarrow.csv.read_csv(out / "samples.csv").to_pylist()
    assert rows[2]["path"] == "bird/1-2.png"
    assert rows[2]["original_label"] == "cat"
    assert pyarrow.csv.read_csv(cleaned.dropped_file)["sample_id"].to_pylist() == ["bird/0.png"]
    assert {path: path.read_bytes() for path in photos.rglob("*.png")} == before
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.fixture
def risky(tmp_path: Path) -> ScoreFile:
    """Scores of a picture in each class whose name, path and id a spreadsheet would run."""
    # Neither a path nor a class of a list of files has line breaks.
    names = [name for name in FORMULAS if name.isprintable()]
    for number, name in enumerate(names):
        path = tmp_path / "risky" / name / f"{name}.png"
        path.parent.mkdir(parents=True)
        path.write_bytes(png_of((number, 0, 0)))
    dataset = dataset_of(tmp_path / "risky")
    table = score_table(dataset.labels.tolist(), dataset.class_names, dataset.sample_ids)
    described = {"dataset": str(tmp_path / "risky"), "fingerprint": dataset.fingerprint}
    return ScoreFile(table, Provenance.of(described))


def test_no_spreadsheet_runs_a_cell_of_a_list_which_is_read_as_it_was(
    tmp_path: Path, risky: ScoreFile
) -> None:
    ids = risky.table["sample_id"].to_pylist()
    marks = {ids[0]: MarkedSample(ids[0], Mark.DROP)}
    # Beside the pictures, as only paths below the list are relative and begin as they do there.
    out = tmp_path / "risky" / "cleaned.csv"

    write_list(out, decide(risky, CleaningRules(marks)), open_images(risky.provenance, ids))

    dropped = out.with_suffix(".dropped.csv")
    assert [cells_that_run(path.read_bytes().decode()) for path in (out, dropped)] == [[], []]
    dataset = open_dataset(str(out), BY_ID)
    names = risky.table["label_name"].to_pylist()
    assert labels_of(dataset) == dict(zip(ids[1:], names[1:], strict=True))
    assert bytes_of(dataset) == {name: (out.parent / name).read_bytes() for name in ids[1:]}


def test_no_spreadsheet_runs_a_cell_of_the_lists_beside_a_folder(
    tmp_path: Path, risky: ScoreFile
) -> None:
    ids = risky.table["sample_id"].to_pylist()
    marks = {
        ids[0]: MarkedSample(ids[0], Mark.DROP),
        ids[1]: MarkedSample(ids[1], Mark.RELABEL, "=SUM(A1)"),
    }
    decisions = decide(risky, CleaningRules(marks, new_classes=True))
    out = tmp_path / "cleaned"

    write_folder(out, decisions, open_images(risky.provenance, ids), link=False)

    lists = [out / "samples.csv", out / "dropped.csv"]
    assert [cells_that_run(path.read_bytes().decode()) for path in lists] == [[], []]
    rows = read_csv(out / "samples.csv", pa.schema([("label", pa.string())])).to_pylist()
    paths = [path.relative_to(out).as_posix() for path in out.rglob("*.png")]
    assert sorted(row["path"] for row in rows) == sorted(paths)
    assert rows[0]["label"] == "=SUM(A1)"


def test_texts_that_begin_like_formulas_are_read_as_they_were(tmp_path: Path) -> None:
    texts = ["=1+1", "- item", "'- quoted'", "\tindented", "two\nlines", "plain"]
    rows = {"text": texts, "label": ["@a", "@a", "b", "b", "b", "b"]}
    pq.write_table(pa.table(rows), tmp_path / "texts.parquet")
    dataset = dataset_of(tmp_path / "texts.parquet", text_column="text")
    scores = make_scores(
        dataset.sample_ids,
        dataset=str(tmp_path / "texts.parquet"),
        dataset_options={"text_column": "text"},
        fingerprint=dataset.fingerprint,
    )
    source = open_images(scores.provenance, dataset.sample_ids)
    out = tmp_path / "cleaned.csv"

    write_list(out, decide(scores, CleaningRules({})), source)

    assert cells_that_run(out.read_bytes().decode()) == []
    again = dataset_of(out, id_column="sample_id", text_column="text")
    assert texts_of(again) == texts


def test_a_quote_in_the_table_of_another_program_is_part_of_its_cell(tmp_path: Path) -> None:
    rows = "sample_id,text,label\na,'- quoted','=x\nb,text,y\n"
    (tmp_path / "texts.csv").write_text(rows)

    dataset = dataset_of(tmp_path / "texts.csv", id_column="sample_id", text_column="text")

    assert dataset.class_names == ("'=x", "y")
    assert texts_of(dataset) == ["'- quoted'", "text"]


HOSTILE = (
    "../../escaped.png",
    "/etc/escaped.png",
    "a/../../../b.png",
    ".hidden.png",
    "x" * 300 + ".png",
    "new\nline",
)


def test_ids_and_classes_cannot_lead_out_of_the_folder(tmp_path: Path, photos: Path) -> None:
    image = (photos / "cat/0.png").read_bytes()
    classes = ("../up", "/root", "..", ".", ".hidden", "a/b")
    table = {"id": HOSTILE, "image": [image] * 6, "label": classes}
    (tmp_path / "inner").mkdir()
    pq.write_table(pa.table(table), tmp_path / "table.parquet")
    scored = pa.table(
        {
            "sample_id": list(HOSTILE),
            "label": list(range(6)),
            "label_name": list(classes),
            "nearest_label": pa.nulls(6, pa.int32()),
        }
    )
    scores = ScoreFile(
        scored,
        Provenance.of(
            {"dataset": str(tmp_path / "table.parquet"), "dataset_options": {"id_column": "id"}}
        ),
    )
    before = set(tmp_path.rglob("*"))
    source = open_images(scores.provenance, HOSTILE)

    write_folder(tmp_path / "inner" / "out", decide(scores, CleaningRules({})), source, link=False)

    created = set(tmp_path.rglob("*")) - before
    assert all(path.is_relative_to(tmp_path / "inner" / "out") for path in created)
    dataset = dataset_of(tmp_path / "inner" / "out")
    assert len(dataset.class_names) == 6
    assert list(bytes_of(dataset).values()) == [image] * 6


def test_images_that_are_gone_are_left_out_and_listed(
    tmp_path: Path, photos: Path, photo_scores: ScoreFile
) -> None:
    (photos / "dog/0.png").unlink()
    (photos / "dog/new/1.png").unlink()
    (photos / "dog/broken.png").symlink_to("nowhere")
    source = open_images(photo_scores.provenance, photo_scores.table["sample_id"].to_pylist())

    cleaned = write_list(tmp_path / "cleaned.csv", decide_on(photo_scores), source)

    assert cleaned.num_kept == 3
    assert "differs from the dataset that was scored" in source.warnings[0]
    assert "class 'dog' has no sample that can be read" in cleaned.warnings
    dropped = pyarrow.csv.read_csv(cleaned.dropped_file).to_pylist()
    assert [row["sample_id"] for row in dropped] == ["bird/0.png", "dog/0.png", "dog/new/1.png"]
    assert dropped[1]["reason"] == f"it is not in {photos}"


def test_a_list_without_images_has_the_labels_only(tmp_path: Path, photo_scores: ScoreFile) -> None:
    cleaned = write_list(tmp_path / "cleaned.parquet", decide_on(photo_scores), None)

    table = pq.read_table(tmp_path / "cleaned.parquet")
    assert table.column_names == ["sample_id", "label", "original_label", "mark"]
    assert not cleaned.has_images


@pytest.mark.parametrize("name", ["cleaned.csv", "cleaned.parquet"])
def test_class_names_that_a_list_would_change_are_warned_of(tmp_path: Path, name: str) -> None:
    def cleaned(names: list[str]) -> tuple[str, ...]:
        table = pa.table({"sample_id": ["a", "b"], "label": [0, 1], "label_name": names})
        decisions = decide(ScoreFile(table, Provenance()), CleaningRules({}))
        return write_list(tmp_path / name, decisions, None).warnings

    assert cleaned(["0", "12"]) == ()
    assert cleaned(["no", "7"]) == ()
    assert cleaned(["007", "7"]) == ()
    assert cleaned(["2020-01-01", "2020-01-02"]) == ()
    assert "class names such as '1.0'" in cleaned(["1.0", "2.0"])[0]
    assert "class names such as '-1'" in cleaned(["-1", "0"])[0]


def test_outputs_never_replace_what_is_read(tmp_path: Path, photos: Path) -> None:
    scores = tmp_path / "scores.parquet"

    check_output(tmp_path / "cleaned.csv", [scores], str(photos))
    for out, location in (
        (scores, str(photos)),
        (photos / "cleaned.csv", str(photos)),
        (photos / "cat" / "new", str(photos)),
        (tmp_path / "b.parquet", f"{tmp_path}/*.parquet"),
        (tmp_path / "data.parquet", f"{tmp_path}/data.parquet"),
    ):
        with pytest.raises(CleaningError, match=r"would be overwritten|is inside the dataset"):
            check_output(out, [scores], location)


def test_a_link_to_the_dataset_is_no_way_into_it(tmp_path: Path, photos: Path) -> None:
    (tmp_path / "alias").symlink_to(photos)

    with pytest.raises(CleaningError, match="is inside the dataset"):
        check_output(tmp_path / "alias" / "new", [], str(photos))


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full" / "x").mkdir(parents=True)
    (tmp_path / "file").touch()

    check_new_folder(tmp_path / "new")
    check_new_folder(tmp_path / "empty")
    for name in ("full", "file"):
        with pytest.raises(CleaningError, match=f"{name} exists and is not"):
            check_new_folder(tmp_path / name)


def test_a_file_of_another_format_is_not_taken_for_a_folder(tmp_path: Path) -> None:
    assert is_list(tmp_path / "a.csv")
    assert is_list(tmp_path / "a.PARQUET")
    assert not is_list(tmp_path / "photos.v2")
    with pytest.raises(CleaningError, match=r"end the name in \.csv or \.parquet"):
        is_list(tmp_path / "a.xlsx")


def test_samples_of_another_dataset_are_refused_with_both_kinds_of_ids(photos: Path) -> None:
    with pytest.raises(CleaningError, match=r"'bird/0\.png'.*'a', 'b', 'c'"):
        open_images(make_scores().provenance, list("abc"), str(photos))
    with pytest.raises(CleaningError, match="does not say which dataset"):
        open_images(Provenance(), list("abc"))
    with pytest.raises(DatasetError, match="does not exist"):
        open_images(Provenance(dataset="nowhere"), list("abc"))
