"""Columns of other tables beside the scores, by the ids of the samples."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import difficulty_service as ds
from difficulty_service.interface.joining import Frame
from difficulty_service.interface.scores import Scores

REVERSED = [str(row) for row in range(300)][::-1]
CAMERAS = [f"camera {row}" for row in range(300)][::-1]


@pytest.mark.parametrize(
    ("make", "on"),
    [
        (lambda: {"sample_id": REVERSED, "camera": CAMERAS}, None),
        (lambda: {"file": list(map(int, REVERSED)), "camera": CAMERAS}, "file"),
        (lambda: pa.table({"sample_id": REVERSED, "camera": CAMERAS}), None),
        (lambda: pd.DataFrame({"file": REVERSED, "camera": CAMERAS}), "file"),
        (lambda: pd.DataFrame({"camera": CAMERAS}, index=REVERSED), None),
        (lambda: pd.DataFrame({"camera": CAMERAS}, index=pd.Index(REVERSED, name="id")), "id"),
    ],
    ids=["mapping", "mapping-on", "arrow", "pandas-on", "index", "named-index"],
)
def test_rows_are_in_the_order_of_the_scores(
    scores: Scores, make: Callable[[], Any], on: str | None
) -> None:
    joined = scores.join(make(), on=on)

    assert joined["sample_id"] == scores["sample_id"]
    assert joined.camera.tolist() == CAMERAS[::-1]
    assert len(joined[joined.camera == "camera 7"]) == 1
    assert "camera" not in scores.table.column_names


def test_what_does_not_match_is_a_warning(scores: Scores) -> None:
    with pytest.warns(
        UserWarning, match=r"joined table: 298 of 300 samples have no row, 1 of 3 ids .* no sample"
    ) as caught:
        joined = scores.join({"sample_id": ["5", "x", "9"], "weight": [1, 2, 3]})

    assert caught[0].filename == __file__
    assert joined["weight"].null_count == 298
    assert joined.weight[[5, 9]].tolist() == [1, 3]


def test_a_column_that_the_scores_have_gets_another_name(scores: Scores) -> None:
    with pytest.warns(UserWarning, match="its column rmd is called rmd_joined"):
        joined = scores.join({"sample_id": REVERSED, "rmd": list(range(300))})

    assert joined.rmd.tolist() == scores.rmd.tolist()
    assert joined.rmd_joined[0] == 299


@pytest.mark.parametrize(
    ("frame", "on", "error", "message"),
    [
        ({"sample_id": ["1", "1"]}, None, "AuditError", r"occur more than once, such as \['1'\]"),
        ({"sample_id": ["x"]}, None, "AuditError", "none of 300 sample ids"),
        ({"id": ["1"]}, None, "DatasetError", "no column 'sample_id'.* as on"),
        ({"id": ["1"]}, "ids", "DatasetError", "no column 'ids': did you mean 'id'"),
        ({"id": ["1"], "a": [1, 2]}, "id", "DatasetError", "mapping of columns of one length"),
        ("camera", None, "DatasetError", "pass a DataFrame, an Arrow table or a mapping"),
    ],
)
def test_a_table_that_cannot_be_joined_is_refused(
    scores: Scores, frame: Frame, on: str | None, error: str, message: str
) -> None:
    with pytest.raises(getattr(ds.errors, error), match=message):
        scores.join(frame, on=on)


def test_a_score_file_leaves_joined_columns_out(scores: Scores, tmp_path: Path) -> None:
    joined = scores.join({"sample_id": REVERSED, "camera": CAMERAS})

    with pytest.warns(UserWarning, match=r"1 joined column .* left out.*: camera"):
        path = joined.save(tmp_path / "scores.parquet")

    assert ds.open_scores(path).table == scores.table
