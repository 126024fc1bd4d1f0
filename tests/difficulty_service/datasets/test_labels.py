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


def test_integers_that_occur_are_the_classes_and_their_own_names() -> None:
    assert _index(pa.array([5000, 3, 5000, 630_008])) == (("3", "5000", "630008"), [1, 0, 1, 2])


@pytest.mark.parametrize(
    "texts",
    [
        ["007", "7"],
        ["1E2", "100"],
        ["true", "1"],
        ["10:30", "10:31"],
        ["2024-01-05", "2024-01-06"],
        ["1.0", "1"],
        ["-0", "0"],
        ["1_000", "1000"],
        ["1" * 30, "1"],
    ],
)
def test_texts_that_are_no_plain_numbers_are_classes_as_they_are_written(texts: list[str]) -> None:
    assert _index(pa.array(texts))[0] == tuple(sorted(texts))


def test_texts_that_are_all_plain_numbers_are_in_the_order_of_the_numbers() -> None:
    assert _index(pa.array(["10", "9", " 2", "-1", "10"])) == (("2", "9", "10"), [2, 1, 0, 2])


def test_texts_that_are_all_whole_numbers_with_a_point_are_integers() -> None:
    assert _index(pa.array(["1.0", "2.0", None, "10.0"])) == (("1", "2", "10"), [0, 1, 2])


def test_a_negative_number_beside_names_is_no_label() -> None:
    assert _index(pa.array(["dog", "-1", "cat"])) == (("cat", "dog"), [1, 0])


def test_minus_one_and_one_alone_are_two_classes() -> None:
    column = pa.chunked_array([pa.array([1, -1, -1])])

    indexed = index_labels(column, None, "column 'y'", "row {}".format)

    assert indexed.class_names == ("-1", "1")
    assert indexed.labels.tolist() == [1, 0, 0]
    assert indexed.notes == (
        "column 'y' has the labels -1 and 1 alone, which are read as two classes",
    )


def test_numbers_with_fractions_are_classes_only_where_rows_share_them() -> None:
    shared = pa.chunked_array([pa.array(["0.5", "1.5", "0.5", "1.5"])])
    measured = pa.chunked_array([pa.array(["0.512", "1.5", "0.513", "1.5"])])

    assert index_labels(shared, None, "column 'y'", "row {}".format).class_names == ("0.5", "1.5")
    with pytest.raises(DatasetError, match=r"differ from row to row, such as 0\.512"):
        index_labels(measured, None, "column 'y'", "row {}".format)


def test_declared_names_are_classes_in_their_order_and_other_numbers_follow() -> None:
    column = pa.chunked_array([pa.array([2, 7, 0, -1])])

    indexed = index_labels(column, None, "column 'y'", "row {}".format, ("dog", "cow", "cat"))

    assert indexed.class_names == ("dog", "cow", "cat", "7")
    assert indexed.labels.tolist() == [2, 3, 0]


def test_names_that_differ_in_blanks_or_capitals_are_told_in_one_sentence() -> None:
    column = pa.chunked_array([pa.array(["dog", "dog ", "Cat", "cat", "cow"])])

    indexed = index_labels(column, None, "column 'y'", "row {}".format)

    assert indexed.class_names == ("Cat", "cat", "cow", "dog", "dog ")
    assert indexed.notes == (
        "column 'y' has classes whose names differ only in blanks, capital letters or the encoding "
        "of accents, and each is a class of its own: 'Cat' and 'cat', 'dog' and 'dog '",
    )


def test_names_whose_accents_are_encoded_in_two_ways_are_told_with_their_codes() -> None:
    names = ["caf\u00e9", "cafe\u0301", "cafe", "Th\u00e9", "th\u00e9"]
    column = pa.chunked_array([pa.array(names)])

    indexed = index_labels(column, None, "column 'y'", "row {}".format)

    assert len(indexed.class_names) == 5
    assert indexed.notes == (
        "column 'y' has classes whose names differ only in blanks, capital letters or the encoding "
        "of accents, and each is a class of its own: 'Th\u00e9' and 'th\u00e9', "
        r"'cafe\u0301' and 'caf\xe9'",
    )


@pytest.mark.parametrize(
    ("values", "pairs"),
    [
        (["1", "1.0", "x"], "'1' and '1.0'"),
        (["007", "7", "8"], "'007' and '7'"),
        (["-0", "0"], "'-0' and '0'"),
    ],
)
def test_names_that_are_the_same_number_are_told_in_one_sentence(
    values: list[str], pairs: str
) -> None:
    column = pa.chunked_array([pa.array(values)])

    indexed = index_labels(column, None, "column 'y'", "row {}".format)

    assert indexed.class_names == tuple(sorted(values))
    assert indexed.notes == (
        "column 'y' has classes whose names are the same numbers, and each is a class of its own: "
        f"{pairs}",
    )


@pytest.mark.parametrize("name", ["nan", "NaN", "<NA>", "NA", "None"])
def test_a_class_called_as_programs_write_no_label_is_told(name: str) -> None:
    column = pa.chunked_array([pa.array(["cat", name, "missing"])])

    (note,) = index_labels(column, None, "column 'y'", "row {}".format).notes

    assert note == (
        f"column 'y' has the class {name!r}, which programs write where there is no label; leave "
        "these cells empty if they have none"
    )


def test_all_classes_called_so_are_told_at_once() -> None:
    column = pa.chunked_array([pa.array(["cat", "NA", "null"])])

    (note,) = index_labels(column, None, "column 'y'", "row {}".format).notes

    assert "has the classes 'NA', 'null', which programs write" in note


def test_views_of_text_are_labels_as_other_text_is() -> None:
    assert _index(pa.array(["cat", "dog", "cat"], pa.string_view()))[0] == ("cat", "dog")


def test_a_name_may_be_null_if_another_row_names_the_class() -> None:
    assert _index(pa.array([0, 0, 1]), pa.array([None, "cat", None])) == (("cat", "1"), [0, 0, 1])


def test_two_classes_may_share_a_name() -> None:
    assert _index(pa.array([0, 1]), pa.array(["crane", "crane"]))[0] == ("crane", "crane")


@pytest.mark.parametrize(
    ("values", "names", "message"),
    [
        (pa.array([None, -1, None]), None, "holds no label: all 3 values are missing or negative"),
        (pa.array([None, None]), None, "holds no label: all 2 values"),
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
