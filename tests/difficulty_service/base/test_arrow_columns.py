"""Columns cross between Python and Arrow unchanged, with NaN for null."""

import numpy as np
import pyarrow as pa
import pytest

from difficulty_service.base.tables import strings_to_arrow, to_arrow, to_numpy


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 1000])
def test_nan_is_null_and_null_is_nan(dtype: type, length: int) -> None:
    numbers = np.arange(length).astype(dtype)
    numbers[::3] = np.nan

    column = to_arrow(numbers)

    column.validate(full=True)
    assert column.equals(pa.array(numbers, from_pandas=True))
    np.testing.assert_array_equal(to_numpy(column), numbers)
    np.testing.assert_array_equal(to_numpy(column[length // 2 :]), numbers[length // 2 :])


def test_whole_numbers_keep_their_type_and_a_stride_is_no_matter() -> None:
    numbers = np.arange(20, dtype=np.int32)[::2]

    column = to_arrow(numbers)

    assert column.equals(pa.array(numbers))
    assert to_numpy(column).tolist() == numbers.tolist()


@pytest.mark.parametrize("strings", [[], [""], ["cat", "", "Bär", "猫", "a\x00b"]])
def test_strings_of_any_language_stay_as_they_are(strings: list[str]) -> None:
    column = strings_to_arrow(strings)

    column.validate(full=True)
    assert column.equals(pa.array(strings, pa.string()))
