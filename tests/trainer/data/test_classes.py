"""Consistency of two datasets."""

import pytest
import torch
from torch import Tensor

from difficulty_service.errors import DatasetError
from trainer.data.classes import match_classes, refuse_shared_ids
from trainer.data.features import FeatureInputs
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
        (("0", "1"), ("0", "1", "2")),
    ],
)
def test_numbers_without_names_are_the_indices(
    class_names: tuple[str, ...], others: tuple[str, ...]
) -> None:
    assert matched(class_names, [1, 0], others).tolist() == [1, 0]


def test_more_numbers_than_classes_are_refused() -> None:
    with pytest.raises(DatasetError, match="'test' has 3 classes and the training dataset 2"):
        match_classes(samples_of(("0", "1", "2"), [0]), ("cat", "dog"), "test")


def test_unknown_classes_are_refused_by_name() -> None:
    with pytest.raises(DatasetError, match=r"1 classes .* \['cow'\], and lacks 2 .*'bird', 'dog'"):
        match_classes(samples_of(("cat", "cow"), [0]), ("bird", "cat", "dog"), "test")


def test_shared_samples_are_refused_with_examples() -> None:
    with pytest.raises(DatasetError, match=r"2 samples of 'here' .*\['b', 'c'\]"):
        refuse_shared_ids(["a", "b", "c"], ["c", "b", "d"], "here")
