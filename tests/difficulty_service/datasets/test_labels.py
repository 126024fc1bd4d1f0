"""Labels of every type to class names and indices."""

import pyarrow as pa
import pytest

from difficulty_service.datasets.labels import index_labels
from difficulty_service.errors import DatasetError


def _index(values: pa.Array, names: pa.Array | None = None) -> tuple[tuple[str, ...], list[int]]:
    beside = None if names is None else pa.chunked_array([names])
    column = pa.chunked_array([values[:1], values[1:]])
    class_names, labels = index_labels(column, beside, "column 'y'", "row {}".format)
    return class_names, labels.tolist()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_becomes_indices_into_the_sorted_names(kind: pa.DataType) -> None:
    assert _index(pa.array(["b", "ä", "B", "b"], kind)) == (("B", "b", "ä"), [1, 2, 0, 1])


def test_dictionary_encoded_text_is_sorted_too() -> None:
    values = pa.array(["dog", "cat", "dog"]).dictionary_encode()

    assert _index(values) == (("cat", "dog"), [1, 0, 1])


def test_booleans_are_zero_and_one() -> None:
    assert _index(pa.array([True, False])) == (("0", "1"), [1, 0])


def test_integers_stay_and_gaps_are_classes_without_samples() -> None:
    assert _index(pa.array([3, 0], pa.uint8())) == (("0", "1", "2", "3"), [3, 0])


def test_a_name_may_be_null_if_another_row_names_the_class() -> None:
    assert _index(pa.array([0, 0, 1]), pa.array([None, "cat", None])) == (("cat", "1"), [0, 0, 1])


def test_two_classes_may_share_a_name() -> None:
    assert _index(pa.array([0, 1]), pa.array(["crane", "crane"]))[0] == ("crane", "crane")


@pytest.mark.parametrize(
    ("values", "names", "message"),
    [
        (pa.array([0, None, None]), None, "null 2 times, first at row 1"),
        (pa.array([0, -1]), None, "holds -1 at row 1"),
        (pa.array([0, 1_000_001]), None, "holds 1000001 at row 1"),
        (pa.array([0.5, 1.0]), None, "of type double"),
        (pa.array([[1], [2]]), None, "of type list"),
        (pa.array([4, 4]), pa.array(["cat", "dog"]), "two names for label 4, 'cat' and 'dog'"),
    ],
)
def test_invalid_labels_are_named(values: pa.Array, names: pa.Array | None, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        _index(values, names)
