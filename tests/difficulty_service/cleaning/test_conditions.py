"""Conditions on the columns of a score file."""

import pyarrow as pa
import pytest

from difficulty_service.base.errors import CleaningError
from difficulty_service.cleaning.decisions import rows_where

TABLE = pa.table(
    {
        "rmd": [1.0, None, 5.0],
        "label": pa.array([0, 1, 2], pa.int32()),
        "label_name": pa.array(["cat", "dog", "or"]).dictionary_encode(),
    }
)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("rmd > 2", [2]),
        ("rmd <= 1.0", [0]),
        ("not (rmd > 2)", [0]),
        ("rmd is null", [1]),
        ("rmd is not null and label != 0", [2]),
        ("rmd > 2 or label == 1", [1, 2]),
        ("0 < label <= 2", [1, 2]),
        ("label > -1 and not label_name == 'cat'", [1, 2]),
        ('label_name in ("cat", "or")', [0, 2]),
        ("label_name not in ('cat', 'or')", [1]),
        ("rmd > label", [0, 2]),
        ("  label == 1.5", []),
    ],
)
def test_a_condition_selects_the_rows_where_it_is_true(condition: str, rows: list[int]) -> None:
    mask = rows_where(condition, TABLE).to_pylist()

    assert [row for row, selected in enumerate(mask) if selected] == rows


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("height > 2", "names the column 'height'.*the columns are rmd, label, label_name"),
        ("lable > 2", "names the column 'lable', which .*; did you mean 'label'[?] The columns"),
        ("knn > 2", r"names the column 'knn', which .*; score with scorers='knn'$"),
        ("rmd >", "cannot be read: invalid syntax"),
        ("rmd = 2", "cannot be read"),
        ("rmd", "'rmd' is not a comparison"),
        ("rmd + 1 > 2", r"'rmd \+ 1' is neither a column, a number nor quoted text"),
        ("label_name > 2", "compares 'label_name' and '2', which are of different types"),
        ("1 < 2", "compares two values"),
        ("rmd is 2", "'2' follows 'is'"),
        ("rmd in 2", "'2' follows 'in'"),
        ("1 is null", "'1' is compared with 'null'"),
        ("rmd == -'a'", "is neither a column, a number"),
        ("rmd == True", "is neither a column, a number"),
        ("not " * 5000 + "rmd > 2", "the condition"),
    ],
)
def test_a_condition_that_cannot_be_evaluated_is_refused(condition: str, message: str) -> None:
    with pytest.raises(CleaningError, match=message):
        rows_where(condition, TABLE)


@pytest.mark.parametrize(
    "condition",
    [
        "__import__('os').system('true')",
        "rmd.__class__ == 2",
        "[column for column in rmd] == 2",
        "(lambda: 2)() == rmd",
        "rmd if rmd else 2",
        "f'{rmd}' == label_name",
    ],
)
def test_a_condition_runs_no_code(condition: str) -> None:
    with pytest.raises(CleaningError, match="cannot be used"):
        rows_where(condition, TABLE)
