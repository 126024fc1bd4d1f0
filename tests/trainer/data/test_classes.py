"""Consistency of two datasets."""

import re

import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import DatasetError
from trainer.data.features import FeatureInputs
from trainer.data.splits import match_classes, refuse_shared_ids
from trainer.samples import Samples


def samples_of(class_names: tuple[str, ...], labels: list[int]) -> Samples:
    inputs = FeatureInputs(torch.zeros(len(labels), 2), torch.arange(len(labels)))
    return Samples([str(label) for label in labels], torch.tensor(labels), class_names, inputs)


def matched(class_names: tuple[str, ...], labels: list[int], others: tuple[str, ...]) -> Tensor:
    samples = match_classes(samples_of(class_names, labels), others, "test")
    assert samples.class_names == others
    return samples.labels


def test_equal_classes_keep_their_labels() -> None:
    assert matched(("cat", "dog"), [1, 0], ("cat", "dog")).tolist() == [1, 0]


def test_classes_are_matched_by_name_where_some_are_absent() -> None:
    labels = matched(("cat", "dog"), [0, 1, 1], ("bird", "cat", "cow", "dog"))

    assert labels.tolist() == [1, 3, 3]


@pytest.mark.parametrize(
    ("class_names", "others"),
    [
        (("0", "1"), ("cat", "dog")),
        (("cat", "dog"), ("0", "1")),
        (("0", "1"), ("cat", "cow", "dog")),
    ],
)
def test_numbers_without_names_are_the_indices(
    class_names: tuple[str, ...], others: tuple[str, ...]
) -> None:
    assert matched(class_names, [1, 0], others).tolist() == [1, 0]


def test_a_match_by_order_is_a_warning_that_names_the_pairs() -> None:
    samples = match_classes(samples_of(("cat", "dog"), [1, 0]), ("0", "1"), "test")
    fewer = match_classes(samples_of(("0", "1"), [1, 0]), ("cat", "cow", "dog"), "test")
    numbers = match_classes(samples_of(("0", "1"), [1, 0]), ("0", "1", "2"), "test")

    assert "matched in their order: 0 = cat, 1 = dog" in samples.warnings[0]
    assert "matched in their order: cat = 0, cow = 1" in fewer.warnings[0]
    assert numbers.warnings == ()


def test_names_that_are_fewer_than_the_numbers_of_the_model_are_refused() -> None:
    numbers = tuple(map(str, range(10)))

    with pytest.raises(DatasetError, match=r"\['cat', 'dog'\] .* 10 numbers .* matched by name"):
        match_classes(samples_of(("cat", "dog"), [0, 1]), numbers, "test")


def test_classes_that_overlap_in_part_are_refused() -> None:
    with pytest.raises(DatasetError, match=r"1 classes that the training dataset lacks.*'owl'"):
        match_classes(samples_of(("cat", "dog", "owl"), [0, 1, 2]), ("cat", "cow", "dog"), "test")


def test_more_numbers_than_classes_are_refused() -> None:
    with pytest.raises(DatasetError, match="'test' has 3 classes and the training dataset 2"):
        match_classes(samples_of(("0", "1", "2"), [0]), ("cat", "dog"), "test")


def test_unknown_classes_are_refused_by_name() -> None:
    with pytest.raises(DatasetError, match=r"1 classes .* \['cow'\], and lacks 2 .*'bird', 'dog'"):
        match_classes(samples_of(("cat", "cow"), [0, 1]), ("bird", "cat", "dog"), "test")


def test_shared_samples_are_refused_with_examples() -> None:
    with pytest.raises(DatasetError, match=r"2 samples of 'here' .*\['b', 'c'\]"):
        refuse_shared_ids(["a", "b", "c"], ["c", "b", "d"], "here")


def test_numbers_that_are_names_are_matched_by_name_where_the_first_are_absent() -> None:
    assert matched(("1", "2"), [0, 1, 1], ("0", "1", "2")).tolist() == [1, 2, 2]


@pytest.mark.parametrize(
    ("class_names", "others"),
    [
        (("0", "1", "2"), ("0", "1", "3")),
        (("1", "2", "3", "4"), ("0", "1", "2", "3")),
        (("0", "2"), ("cat", "dog", "owl")),
        (("cat", "dog", "owl"), ("0", "1", "3")),
    ],
)
def test_numbers_that_the_model_does_not_know_are_refused_and_not_counted(
    class_names: tuple[str, ...], others: tuple[str, ...]
) -> None:
    labels = list(range(len(class_names)))
    unknown = [name for name in class_names if name not in others]

    with pytest.raises(DatasetError, match=re.escape(f"lacks, first {unknown}")):
        match_classes(samples_of(class_names, labels), others, "test")


def test_a_name_without_samples_need_not_be_known() -> None:
    assert matched(("bird", "cat", "dog"), [1, 2], ("cat", "dog")).tolist() == [0, 1]


def test_classes_that_share_a_name_are_matched_in_their_order() -> None:
    assert matched(("crane", "cat", "crane"), [0, 1, 2], ("cat", "crane", "crane")).tolist() == [
        *(1, 0, 2)
    ]
    with pytest.raises(DatasetError, match=r"1 classes of the name 'crane', and .* has 2"):
        match_classes(samples_of(("crane",), [0]), ("cat", "crane", "crane"), "test")
