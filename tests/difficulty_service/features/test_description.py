"""The description of features: its bytes on disk, what must agree, and values of another type."""

import json
from pathlib import Path
from typing import Any

import pytest

from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.features.description import (
    AgreementMark,
    FeatureDescription,
    PrecisionPilot,
    RecordedOptions,
    read_description,
)
from difficulty_service.features.store import create_store

WRITTEN = """{
 "with_checksum": true,
 "augment_runs": 0,
 "backbone": "builtin",
 "class_names": [
  "cat",
  "d\\u00f6g"
 ],
 "containers": "c0",
 "corruption": "fog:3",
 "dataset": "photos",
 "dataset_options": {
  "limit": 6,
  "split": "test"
 },
 "decoder": "pillow",
 "feature_dim": 896,
 "features": "penultimate",
 "fingerprint": "f0",
 "flip": false,
 "format_version": 2,
 "max_pixels": 50000000,
 "mode": "exact",
 "num_samples": 6,
 "num_shards": 1,
 "package_version": "0.1.0",
 "precision": "bfloat16",
 "precision_pilot": {
  "agreement": null,
  "bfloat16": 60.5,
  "float32": 20.0,
  "num_images": 512
 },
 "preprocessing": {
  "mean": [
   0.5
  ],
  "size": 32
 },
 "seed": 0,
 "shard_size": 4096,
 "weights_sha256": "a0",
 "checksum": "xxh3-128:1b5dd8d0b67d523e6593afdea14cce46"
}"""
"""What version 0.1.0 wrote before descriptions were a class."""

DESCRIPTION = FeatureDescription(
    dataset="photos",
    dataset_options=RecordedOptions(split="test", limit=6),
    fingerprint="f0",
    containers="c0",
    class_names=("cat", "dög"),
    num_samples=6,
    num_shards=1,
    shard_size=4096,
    backbone="builtin",
    weights_sha256="a0",
    features="penultimate",
    feature_dim=896,
    precision="bfloat16",
    precision_pilot=PrecisionPilot(num_images=512, float32=20, bfloat16=60.5, agreement=None),
    flip=False,
    preprocessing={"size": 32, "mean": [0.5]},
    mode="exact",
    decoder="pillow",
    max_pixels=50_000_000,
    corruption="fog:3",
    augment_runs=0,
    seed=0,
    package_version="0.1.0",
)


def test_the_file_of_a_store_has_the_same_bytes_as_ever(tmp_path: Path) -> None:
    create_store(tmp_path, DESCRIPTION)

    assert (tmp_path / "store.json").read_text() == WRITTEN


def test_a_description_that_is_read_and_written_stays_the_same(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text(WRITTEN)

    described = read_description(tmp_path)

    assert described == DESCRIPTION
    create_store(tmp_path / "copy", described)
    assert (tmp_path / "copy" / "store.json").read_text() == WRITTEN


def test_keys_without_a_field_are_kept_and_must_agree_between_stores() -> None:
    own = FeatureDescription.of(DESCRIPTION.to_json() | {"camera": "left"})

    assert own.to_json()["camera"] == "left"
    assert own.store_differences(DESCRIPTION) == ['camera: "left" then, none now']


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("num_shards", "two", r"has 'two' as num_shards: .*valid integer"),
        ("class_names", ["cat", 3], r"has 3 as class_names\.1: .*valid string"),
        ("flip", 1, r"has 1 as flip: .*valid boolean"),
        ("mode", "slow", r"has 'slow' as mode: .*'fast', 'exact' or 'gpu'"),
        ("precision_pilot", {"num_images": 512}, r"lacks the keys \['float32', 'agr"),
    ],
)
def test_a_value_of_another_type_is_named(
    tmp_path: Path, key: str, value: object, fault: str
) -> None:
    described = DESCRIPTION.to_json() | {"format_version": 2, key: value}
    (tmp_path / "store.json").write_text(json.dumps(described))

    with pytest.raises(FeatureStoreError, match=f"the description of the features {fault}"):
        read_description(tmp_path)


CHANGES: dict[str, Any] = {
    "class_names": ["cat"],
    "dataset_options": {"split": "train"},
    "preprocessing": {"size": 64},
    "precision_pilot": None,
    "image_sizes": {"num_images": 32, "median_side": 375.0},
    "made_labels": {"clusters": 20},
    "modality": "text",
    "mode": "fast",
    "flip": True,
    "boxes": True,
    "warnings": ["one image is bad"],
}


@pytest.mark.parametrize("name", FeatureDescription.model_fields)
def test_each_field_must_agree_where_its_mark_says(name: str) -> None:
    values = DESCRIPTION.to_json()
    plain = 1 + values[name] if isinstance(values.get(name), int) else "other"
    changed = FeatureDescription.of(values | {name: CHANGES.get(name, plain)})
    between = ("here", "there")
    (agreement,) = (
        mark
        for mark in FeatureDescription.model_fields[name].metadata
        if isinstance(mark, AgreementMark)
    )

    refused = (
        bool(DESCRIPTION.kind_differences(changed, between)),
        bool(DESCRIPTION.store_differences(changed, other_dataset=True)),
        bool(DESCRIPTION.store_differences(changed)),
    )

    assert (
        refused
        == {
            AgreementMark.MUST_AGREE: (True, True, True),
            AgreementMark.STORES: (False, True, True),
            AgreementMark.SAME_DATASET: (False, False, True),
            AgreementMark.MAY_CHANGE: (False, False, False),
        }[agreement]
    )


def test_a_description_that_is_nested_without_end_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"a": ' + 200_000 * "[")

    with pytest.raises(FeatureStoreError, match=r"store\.json is damaged: .* nested too deeply"):
        read_description(tmp_path)
