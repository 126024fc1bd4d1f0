"""Every key of the table [data] changes something: two values of it, and the data they give."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from difficulty_service.base.errors import DifficultyError
from trainer.config import Data
from trainer.data import open_splits
from trainer.data.images import LargeImages
from trainer.recipes.tables import TABLES
from trainer.samples import NUM_DRAWS, Samples

CPU = torch.device("cpu")

DATA = TABLES["data"]

KINDS: dict[str, dict[str, Any]] = {
    "probe": {"train": "FEATURES", "kind": "features"},
    "images": {"train": "IMAGES"},
    "text": {"train": "TEXTS", "kind": "text"},
    "table": {"train": "IMAGE_TABLE"},
    "trees": {"train": "TREES", "kind": "trees"},
}
"""Data that the changes apply to, with names in capitals for locations."""

FAIL = {"kind", "format", "max_pixels", "on_error"}
"""Keys whose second value makes these data an error."""


@dataclass(frozen=True)
class Change:
    """Two values of a key.

    Attributes:
        values: The two values.
        kind: A key of KINDS.
        beside: Other keys that the key needs.
    """

    values: tuple[Any, Any]
    kind: str = "text"
    beside: Mapping[str, Any] = field(default_factory=dict)


def change(first: object, second: object, kind: str = "text", **beside: object) -> Change:
    return Change((first, second), kind, beside)


CHANGES = {
    "train": change("FEATURES", "TEST_FEATURES", "probe"),
    "kind": change("features", "images", "probe"),
    "test": change(None, "TEST_FEATURES", "probe"),
    "validation": change(0.1, 0.3, "probe"),
    "format": change("image-folder", "table", "images"),
    "split": change(None, "a"),
    "validation_split": change("a", "b", validation="OTHER_TEXTS"),
    "test_split": change(None, "a", test="TEXTS"),
    "image_column": change("image", "other_image", "table"),
    "text_column": change("text", "other_text"),
    "label_column": change("label", "other_label"),
    "test_label_column": change(None, "other_label", test="TEXTS"),
    "id_column": change("key", "other_key"),
    "distribution_column": change(None, "votes"),
    "labels": change(None, "LABELS", "probe", id_column="id", image_column="image"),
    "limit": change(None, 30),
    "image_size": change(None, 4, "images"),
    "max_pixels": change(64, 10, "images"),
    "pixel_range": change(None, "0:4095", "images", train="DEEP_IMAGES"),
    "bands": change("1,2,3", "3,2,1", "images", train="DEEP_IMAGES"),
    "page": change("first", "last", "images", train="DEEP_IMAGES"),
    "on_error": change("skip", "stop", "images", train="DAMAGED_IMAGES"),
    "augmentation": change("none", "flip", "images"),
    "crop_padding": change(1, 4, "images", augmentation="flip_crop"),
    "label_noise": change(0.0, 0.5, "probe"),
    "text_length": change(2, 4),
    "vocabulary_size": change(3, 30),
    "phrases": Change((True, False), "trees"),
    "in_memory": Change((True, False), "images"),
    "workers": change(1, 2, "images", in_memory=False),
}


def data_with(key: str, value: object, locations: Mapping[str, str]) -> Data:
    values = {"validation": 0.2} | KINDS[CHANGES[key].kind]
    values |= {**CHANGES[key].beside, key: value}
    placed = {name: locations.get(str(setting), setting) for name, setting in values.items()}
    data: Data = DATA.of(placed).model_validate(placed)
    return data


def data_of(config: Data) -> object:
    """What a run would see of its data."""
    splits = open_splits(config, 0, CPU)
    opened = [_seen(each) for each in (splits.train, splits.validation, splits.test) if each]
    return opened, len(splits.all_ids), splits.spec.shape, splits.spec.vocabulary


def _seen(samples: Samples) -> object:
    described = list(samples.sample_ids), samples.labels.tolist(), samples.class_names
    if samples.distributions is not None:
        described = *described, samples.distributions.tolist()
    if isinstance(samples.inputs, LargeImages):  # whose batches start worker processes
        return described, "on disk", samples.inputs.workers
    draws = torch.rand(len(samples), NUM_DRAWS, generator=torch.Generator().manual_seed(0))
    (batch,) = samples.inputs.batches([torch.arange(len(samples))], draws)
    return described, batch.tolist()


def test_every_key_is_changed() -> None:
    assert set(CHANGES) == {*DATA.fields()}


@pytest.mark.parametrize("key", CHANGES)
def test_a_key_changes_the_data(key: str, locations: Mapping[str, str]) -> None:
    first, second = (data_with(key, value, locations) for value in CHANGES[key].values)

    seen = data_of(first)

    assert data_of(first) == seen, "without a change nothing differs"
    if key in FAIL:
        with pytest.raises(DifficultyError):
            data_of(second)
    else:
        assert data_of(second) != seen
