"""What people decided, given to the Python interface as a file or as a table."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import difficulty_service as ds
from difficulty_service.base.errors import CleaningError, ConfigError
from difficulty_service.gaussians.label_shares import RIGHT_BEFORE
from tests.factories import write_image_folder
from tests.small_network import SMALL

MARKS = {
    "sample_id": ["0", "1", "2"],
    "mark": ["relabel", "keep", "drop"],
    "label": ["b", None, None],
}

Arrays = tuple[NDArray[np.float32], list[str]]


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    """Features of two classes, a and b, of which the first sample has the wrong label."""
    generator = np.random.default_rng(0)
    classes = np.arange(40) % 2
    features = generator.standard_normal((40, 4)).astype(np.float32) + 5 * classes[:, None]
    labels = ["ab"[index] for index in classes]
    features[0] += 5
    return features, labels


def test_marks_in_a_file_or_a_table_are_the_same(arrays: Arrays, tmp_path: Path) -> None:
    path = tmp_path / "marks.csv"
    pd.DataFrame(MARKS).to_csv(path, index=False)

    tables = [
        ds.score(*arrays, marks=marks).to_arrow()
        for marks in (path, str(path), pa.table(MARKS), pd.DataFrame(MARKS))
    ]

    assert tables[0].select(["sample_id", "label_name", "mark"])[:2].to_pylist() == [
        {"sample_id": "0", "label_name": "b", "mark": "relabel"},
        {"sample_id": "1", "label_name": "b", "mark": "keep"},
    ]
    assert len(tables[0]) == 39
    assert all(table.equals(tables[0]) for table in tables)


def test_what_was_decided_is_not_listed_again(arrays: Arrays) -> None:
    plain, marked = ds.score(*arrays), ds.score(*arrays, marks=pa.table(MARKS))

    for listed in (ds.Scores.hardest, ds.Scores.doubtful):
        assert "0" in listed(plain, 40)["sample_id"].to_pylist()
        assert not {"0", "1", "2"} & {*listed(marked, 40)["sample_id"].to_pylist()}


def test_the_share_of_wrong_labels_is_that_of_the_labels_before_they_were_corrected() -> None:
    generator = np.random.default_rng(0)
    right = np.arange(300) % 3
    features = generator.standard_normal((300, 6)) + 5 * np.eye(3, 6)[right]
    given = np.where(np.arange(300) < 30, (right + 1) % 3, right)
    marks = {
        "sample_id": [str(number) for number in range(300)],
        "mark": ["relabel"] * 30 + ["keep"] * 270,
        "label": [*map(str, right[:30]), *[None] * 270],
    }

    scores = ds.score(features, given, marks=pa.table(marks))

    fitted = scores.provenance.suspicion
    assert fitted is not None
    assert fitted.noise_wrong == pytest.approx(30 / (300 + RIGHT_BEFORE), rel=1e-3)


def test_marks_are_remembered_beside_the_scores_of_images(tmp_path: Path) -> None:
    photos, out = write_image_folder(tmp_path / "photos", each=6), tmp_path / "scores.parquet"
    marks = pa.table({"sample_id": ["cat/1.png"], "mark": ["relabel"], "label": ["dog"]})

    scores = [
        ds.score_dataset(photos, out=out, progress=False, marks=given, backbone=SMALL)
        for given in (marks, None)
    ]

    for each in scores:
        rows = {row["sample_id"]: row for row in each.to_arrow().to_pylist()}
        assert rows["cat/1.png"]["label_name"] == "dog"
        assert rows["cat/1.png"]["mark"] == "relabel"

    undone = ds.score_dataset(
        photos, out=out, progress=False, undo_round=1, backbone=SMALL
    ).to_arrow()
    assert "mark" not in undone.column_names
    assert (tmp_path / "scores.marks.undone.csv").exists()
    with pytest.raises(ConfigError, match="run them in turn"):
        ds.score_dataset(photos, out=out, progress=False, undo_round=1, marks=marks, backbone=SMALL)


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        (pa.table({"sample_id": ["0"]}), "the table of marks has no column 'mark'"),
        (pa.table({"sample_id": ["0"], "mark": ["right"]}), "row 1: the mark 'right' is unknown"),
        (pa.table({"sample_id": ["x"], "mark": ["keep"]}), "none of 1 marked sample"),
    ],
)
def test_marks_that_cannot_be_applied_are_refused(
    arrays: Arrays, marks: pa.Table, message: str
) -> None:
    with pytest.raises(CleaningError, match=message):
        ds.score(*arrays, marks=marks)
