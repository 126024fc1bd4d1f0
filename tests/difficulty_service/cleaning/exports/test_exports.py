"""Exports as the tools that they are for open them, or as their published formats require."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from difficulty_service.base.checksums import ChangedFile
from difficulty_service.base.csv_cells import unguarded
from difficulty_service.base.errors import CleaningError, DatasetError, ScoreFileError
from difficulty_service.cleaning.exports import export_file, export_folder
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.pages.stored_images import ImageSource, open_images
from difficulty_service.scores.file import ScoreFile, read_scores
from difficulty_service.scores.provenance import Provenance
from tests.difficulty_service.cleaning.exports.conftest import World
from tests.factories import score_table
from tests.formulas import FORMULAS, cells_that_run
from tests.score_files import make_scores

IDS = ("bird/0.png", "bird/1.png", "cat/0.png", "cat/1.png", "dog/0.png", "dog/new/1.png")


@pytest.fixture
def source(photo_scores: ScoreFile) -> ImageSource:
    return open_images(photo_scores.provenance, IDS)


@pytest.fixture
def in_a_table(tmp_path: Path, photos: Path) -> tuple[ScoreFile, ImageSource]:
    """The photographs inside a table, and their scores."""
    files = sorted(photos.rglob("*.png"))
    table = {"image": [f.read_bytes() for f in files], "label": [0, 0, 1, 1, 2, 2]}
    pq.write_table(pa.table(table), tmp_path / "table.parquet")
    ids = [f"table.parquet#{row}" for row in range(6)]
    scores = make_scores(ids, dataset=str(tmp_path / "table.parquet"))
    return scores, open_images(scores.provenance, ids)


def test_csv_has_every_column_and_empty_cells(tmp_path: Path, photo_scores: ScoreFile) -> None:
    export_file("csv", photo_scores, tmp_path / "scores.csv")

    rows = list(csv.DictReader(io.StringIO((tmp_path / "scores.csv").read_text())))
    assert list(rows[0]) == photo_scores.table.column_names
    assert [row["sample_id"] for row in rows] == list(IDS)
    assert [row["rmd"] for row in rows] == ["-3", "", "-1", "0", "1", "2"]
    assert rows[2]["label_name"] == "cat"


@pytest.mark.parametrize("name", ["csv", "cleanlab"])
def test_no_spreadsheet_runs_an_exported_id_or_class(tmp_path: Path, name: str) -> None:
    labels = [*range(len(FORMULAS))]
    numbers = [float(-label) for label in labels]
    table = score_table(
        labels, FORMULAS, FORMULAS, rmd=numbers, nearest_label=labels, label_margin=numbers
    )

    export_file(name, ScoreFile(table, Provenance()), tmp_path / "out.csv")

    text = (tmp_path / "out.csv").read_bytes().decode()
    assert cells_that_run(text) == []
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [unguarded(row["sample_id"]) for row in rows] == list(FORMULAS)
    class_column = {"csv": "label_name", "cleanlab": "given_label_name"}[name]
    assert [unguarded(row[class_column]) for row in rows] == list(FORMULAS)


def test_exported_scores_are_read_as_they_were(tmp_path: Path) -> None:
    labels = [*range(len(FORMULAS))]
    table = score_table(labels, FORMULAS, FORMULAS, rmd=[float(-label) for label in labels])

    export_file("csv", ScoreFile(table, Provenance()), tmp_path / "out.csv")

    with pytest.warns(ChangedFile, match="has lost out.csv.json"):  # an export has none
        found = read_scores(tmp_path / "out.csv")

    assert found.table.to_pydict() == table.to_pydict()


def test_json_lines_have_every_column_and_nulls(tmp_path: Path, photo_scores: ScoreFile) -> None:
    export_file("jsonl", photo_scores, tmp_path / "scores.jsonl")

    rows = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert list(rows[0]) == photo_scores.table.column_names
    assert [row["rmd"] for row in rows] == [-3, None, -1, 0, 1, 2]
    assert rows[2]["label_name"] == "cat"


def test_an_export_that_needs_an_absent_column_is_refused(
    tmp_path: Path, photo_scores: ScoreFile
) -> None:
    scores = replace(photo_scores, table=photo_scores.table.drop_columns("label_margin"))

    with pytest.raises(ScoreFileError, match="the score file has no column 'label_margin'"):
        export_file("cleanlab", scores, tmp_path / "issues.csv")

    assert not (tmp_path / "issues.csv").exists()


def test_cleanlab_gets_its_columns_with_lower_scores_for_worse_labels(
    tmp_path: Path, photo_scores: ScoreFile
) -> None:
    export_file("cleanlab", photo_scores, tmp_path / "issues.parquet")

    issues = pq.read_table(tmp_path / "issues.parquet").to_pydict()
    margins = np.array([-3.0, -2, -1, 0, 1, 2])
    assert issues["is_label_issue"] == [False, False, False, False, True, True]
    np.testing.assert_allclose(issues["label_score"], 1 / (1 + np.exp(margins / 2)))
    assert issues["given_label"] == [0, 0, 1, 1, 2, 2]
    assert issues["predicted_label"] == [0, 1, 1, 2, 0, 0]
    assert issues["predicted_label_name"][-1] == "bird"


def test_cleanlab_trains_without_the_exported_issues(
    tmp_path: Path, photo_scores: ScoreFile
) -> None:
    classification = pytest.importorskip("cleanlab.classification")
    pandas = pytest.importorskip("pandas")
    linear_model = pytest.importorskip("sklearn.linear_model")
    export_file("cleanlab", photo_scores, tmp_path / "issues.csv")
    issues = pandas.read_csv(tmp_path / "issues.csv")
    learner = classification.CleanLearning(linear_model.LogisticRegression())

    learner.fit(np.eye(6), issues["given_label"].to_numpy(), label_issues=issues)

    # The dogs are the issues, so that nothing was learned about them.
    assert learner.clf.classes_.tolist() == [0, 1]
    assert learner.get_label_issues()["is_label_issue"].sum() == 2


def test_a_label_without_a_margin_is_no_issue(tmp_path: Path) -> None:
    scores = make_scores()
    column = scores.table.schema.get_field_index("label_margin")
    unknown = scores.table.set_column(column, "label_margin", pa.nulls(6, pa.float64()))

    exported = export_file(
        "cleanlab", ScoreFile(unknown, Provenance()), tmp_path / "issues.parquet"
    )

    issues = pq.read_table(tmp_path / "issues.parquet")
    assert issues["is_label_issue"].to_pylist() == [False] * 6
    assert issues["label_score"].null_count == 6
    assert exported.warnings == ["6 samples have no label score"]


def test_cleanlab_refuses_other_formats(tmp_path: Path) -> None:
    with pytest.raises(CleaningError, match=r"end the name in \.csv or \.parquet"):
        export_file("cleanlab", make_scores(), tmp_path / "issues.json")


def test_datasets_opens_images_classes_and_scores(
    tmp_path: Path, photos: Path, photo_scores: ScoreFile, source: ImageSource
) -> None:
    datasets = pytest.importorskip("datasets")

    export_folder("huggingface", photo_scores, source, tmp_path / "out")

    opened = datasets.load_from_disk(tmp_path / "out")
    assert opened["sample_id"][:] == list(IDS)
    assert opened["rmd"][:] == [-3, None, -1, 0, 1, 2]
    assert opened.features["label"].names == ["bird", "cat", "dog"]
    assert opened.features["nearest_label"].int2str(opened[5]["nearest_label"]) == "bird"
    with Image.open(photos / IDS[3]) as photo:
        np.testing.assert_array_equal(opened[3]["image"], photo)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "photos"]


def test_fiftyone_labels_lead_to_images_that_stay_where_they_are(
    tmp_path: Path, photos: Path, photo_scores: ScoreFile, source: ImageSource
) -> None:
    export_folder("fiftyone", photo_scores, source, tmp_path / "out")

    described = json.loads((tmp_path / "out" / "labels.json").read_text())
    assert described["classes"] == ["bird", "cat", "dog"]
    assert list(described["labels"]) == [str(photos / sample_id) for sample_id in IDS]
    last = described["labels"][str(photos / IDS[5])]
    assert last["label"] == 2
    assert last["attributes"] == {
        "sample_id": IDS[5],
        "given_label": "dog",
        "rmd": 2.0,
        "nearest_label": "bird",
        "label_margin": 2.0,
        "label_score": pytest.approx(1 / (1 + np.e)),
    }
    assert list((tmp_path / "out" / "data").iterdir()) == []


def test_fiftyone_gets_copies_of_images_inside_a_table(
    tmp_path: Path, photos: Path, in_a_table: tuple[ScoreFile, ImageSource]
) -> None:
    export_folder("fiftyone", *in_a_table, tmp_path / "out")

    labels = json.loads((tmp_path / "out" / "labels.json").read_text())["labels"]
    # FiftyOne finds the image of a key by its name without the extension.
    copies = {path.stem: path.read_bytes() for path in (tmp_path / "out" / "data").iterdir()}
    assert {labels[key]["attributes"]["sample_id"]: copies[key] for key in labels} == {
        f"table.parquet#{row}": (photos / sample_id).read_bytes()
        for row, sample_id in enumerate(IDS)
    }


def test_several_samples_of_a_file_stay_several_in_fiftyone(tmp_path: Path, photos: Path) -> None:
    lines = [f"{row},photos/{IDS[row // 2]},{'bird' if row % 2 else 'cat'}" for row in range(6)]
    (tmp_path / "votes.csv").write_text("\n".join(["id,image,label", *lines]))
    ids = [*map(str, range(6))]
    scores = make_scores(ids, dataset=str(tmp_path / "votes.csv"))
    source = open_images(scores.provenance, ids, given=DatasetOptions(id_column="id"))

    export_folder("fiftyone", scores, source, tmp_path / "out")

    labels = json.loads((tmp_path / "out" / "labels.json").read_text())["labels"]
    links = {path.stem: path for path in (tmp_path / "out" / "data").iterdir()}
    shown = {
        each["attributes"]["sample_id"]: links.get(key, Path(key)).resolve()
        for key, each in labels.items()
    }
    assert shown == {str(row): photos / IDS[row // 2] for row in range(6)}
    assert len(links) == 3


@pytest.mark.parametrize("name", ["fiftyone", "labelstudio"])
def test_every_class_is_a_name(tmp_path: Path, world: World, name: str) -> None:
    export_folder(name, world.scores, world.images, tmp_path / "out")

    file = {"fiftyone": "labels.json", "labelstudio": "tasks.json"}[name]
    described = json.loads((tmp_path / "out" / file).read_text())
    rows = (
        [each["attributes"] for each in described["labels"].values()]
        if name == "fiftyone"
        else [task["meta"] for task in described]
    )
    (first,) = (row for row in rows if row["sample_id"] == "cat/0.png")
    assert (first["nearest_label"], first["first_label"]) == ("dog", "dog")
    assert first["suggested_label"] == "dog"


def test_label_studio_gets_tasks_that_fit_its_interface(
    tmp_path: Path, photo_scores: ScoreFile, source: ImageSource
) -> None:
    exported = export_folder("labelstudio", photo_scores, source, tmp_path / "out")

    tasks = json.loads((tmp_path / "out" / "tasks.json").read_text())
    view = ET.fromstring((tmp_path / "out" / "label_config.xml").read_text())  # noqa: S314
    image, choices = view.find("Image"), view.find("Choices")
    assert image is not None
    assert choices is not None
    assert image.attrib == {"name": "image", "value": "$image"}
    allowed = [choice.get("value") for choice in choices]
    for task in tasks:
        (prediction,) = task["predictions"]
        (result,) = prediction["result"]
        assert (result["from_name"], result["to_name"]) == (choices.get("name"), image.get("name"))
        assert result["type"] == "choices"
        assert result["value"]["choices"] == [task["data"]["given_label"]]
        assert task["data"]["given_label"] in allowed
        assert 0 <= prediction["score"] <= 1
        assert prediction["model_version"].startswith("difficulty-service")
    assert tasks[0]["data"]["image"] == "/data/local-files/?d=photos/dog/new/1.png"
    assert tasks[0]["meta"]["label_margin"] == 2
    assert exported.instructions[0].endswith(f"DOCUMENT_ROOT={tmp_path}")
    assert f"path {tmp_path / 'photos'}: under Settings" in exported.instructions[1]


def test_tasks_of_label_studio_begin_with_the_most_doubtful_label(
    tmp_path: Path, photo_scores: ScoreFile, source: ImageSource
) -> None:
    column = photo_scores.table.schema.get_field_index("label_margin")
    margins = pa.array([-3.0, 5, None, 5, 1, -2])
    table = photo_scores.table.set_column(column, "label_margin", margins)

    export_folder("labelstudio", replace(photo_scores, table=table), source, tmp_path / "out")

    tasks = json.loads((tmp_path / "out" / "tasks.json").read_text())
    assert [IDS.index(task["data"]["sample_id"]) for task in tasks] == [1, 3, 4, 5, 0, 2]


def test_label_studio_serves_copies_of_images_inside_a_table(
    tmp_path: Path, in_a_table: tuple[ScoreFile, ImageSource]
) -> None:
    exported = export_folder("labelstudio", *in_a_table, tmp_path / "out")

    tasks = json.loads((tmp_path / "out" / "tasks.json").read_text())
    root = Path(exported.instructions[0].rpartition("=")[2])
    served = [root / task["data"]["image"].partition("?d=")[2] for task in tasks]
    assert len({path.read_bytes() for path in served}) == 6


def test_class_names_are_escaped_in_the_interface(
    tmp_path: Path, photo_scores: ScoreFile, source: ImageSource
) -> None:
    names = pa.array(['<"&', "b", "c"]).take(photo_scores.table["label"].combine_chunks())
    column = photo_scores.table.schema.get_field_index("label_name")
    table = photo_scores.table.set_column(column, "label_name", names)

    export_folder("labelstudio", ScoreFile(table, Provenance()), source, tmp_path / "out")

    view = ET.fromstring((tmp_path / "out" / "label_config.xml").read_text())  # noqa: S314
    assert [choice.get("value") for choice in view.findall("Choices[1]/Choice")] == [
        '<"&',
        "b",
        "c",
    ]


@pytest.mark.parametrize("name", ["huggingface", "fiftyone", "labelstudio"])
def test_samples_without_a_readable_image_are_left_out_and_counted(
    tmp_path: Path, photos: Path, photo_scores: ScoreFile, source: ImageSource, name: str
) -> None:
    (photos / IDS[0]).unlink()

    exported = export_folder(name, photo_scores, source, tmp_path / "out")

    assert exported.warnings == [
        f"1 sample is left out because of its image, the first is {IDS[0]}: image: no such file"
    ]


def test_an_export_that_fails_leaves_nothing_behind(
    tmp_path: Path, in_a_table: tuple[ScoreFile, ImageSource]
) -> None:
    (tmp_path / "table.parquet").unlink()

    with pytest.raises(DatasetError, match=r"table\.parquet' is damaged"):
        export_folder("labelstudio", *in_a_table, tmp_path / "out")

    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
