"""Labels of every type to class names and indices."""

import pyarrow as pa
import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.labels import index_labels, label_like


def _index(values: pa.Array, names: pa.Array | None = None) -> tuple[tuple[str, ...], list[int]]:
    beside = None if names is None else pa.chunked_array([names])
    column = pa.chunked_array([values[:1], values[1:]])
    indexed = index_labels(column, beside, "column 'y'", "row {}".format)
    return indexed.class_names, indexed.labels.tolist()


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
        (pa.array([None, -1, None]), None, "holds no label: all 3 values are missing or negative"),
        (pa.array([None, None]), None, "holds no label: all 2 values"),
        (pa.array([None, 0, 1_000_001]), None, "holds 1000001 at row 2"),
        (pa.array([0.5, 1.0]), None, "of type double"),
        (pa.array([[2], [1, 2]]), None, "has 2 labels at row 1: 1, 2"),
        (pa.array([4, 4]), pa.array(["cat", "dog"]), "two names for label 4, 'cat' and 'dog'"),
    ],
)
def test_invalid_labels_are_named(values: pa.Array, names: pa.Array | None, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        _index(values, names)


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        (pa.array([1, None, 0, None]), "the label is missing"),
        (pa.array([1, -1, 0, -1]), "the label is -1"),
        (pa.array([1.0, float("nan"), 0.0, None]), "the label is missing"),
        (pa.array(["b", "", "a", " "]), "the label is missing"),
        (pa.array(["b", None, "a", None]).dictionary_encode(), "the label is missing"),
    ],
)
def test_rows_without_a_label_are_listed_and_the_others_kept(
    values: pa.Array, missing: str
) -> None:
    column = pa.chunked_array([values[:1], values[1:]])

    indexed = index_labels(column, None, "column 'y'", "row {}".format)

    assert indexed.labels.tolist() == [1, 0]
    assert indexed.rows.tolist() == [0, 2]
    assert list(indexed.unlabelled) == [(1, missing), (3, missing)]


def test_names_stay_with_their_labels_where_rows_are_left_out() -> None:
    assert _index(pa.array([None, 1, 0]), pa.array(["none", "dog", "cat"])) == (
        ("cat", "dog"),
        [1, 0],
    )


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["id", "label", "noisy_label"], ["label", "noisy_label"]),
        (["coarse_label", "fine_label"], ["fine_label", "coarse_label"]),
        (["given label", "True-Class", "label_name", "labelled_by"], ["given label", "True-Class"]),
    ],
)
def test_columns_that_look_like_labels_follow_the_usual_names(
    names: list[str], expected: list[str]
) -> None:
    assert label_like(names) == expected
