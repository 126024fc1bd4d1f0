"""Feature stores of random views say what the views show."""

import json
from pathlib import Path

import pytest
import torch

from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.extraction.plan import Plan
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.features.store import FeatureStore
from difficulty_service.images.views import ViewKind
from difficulty_service.scoring.pipeline import execute
from tests.factories import write_image_folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with two images of noise."""
    return write_image_folder(tmp_path / "photos", ["cat"], 2, size=(40, 48))


def extract(photos: Path, out: str, kind: ViewKind, runs: int = 2) -> FeatureStore:
    """Features of the views of a kind."""
    options = ExtractOptions(augment_runs=runs, augmentation_kind=kind)
    return execute(Plan(str(photos), photos.parent / out, "builtin", options=options)).store


def described(store: FeatureStore) -> dict[str, object]:
    values: dict[str, object] = json.loads((store.folder / "store.json").read_text())
    return values


def test_a_store_says_what_its_views_show_where_that_is_not_the_usual(photos: Path) -> None:
    usual = extract(photos, "usual", "crop")
    moved = extract(photos, "moved", "flip_crop")
    plain = extract(photos, "plain", "flip_crop", runs=0)

    assert described(moved)["augmentation"] == "flip_crop"
    assert "augmentation" not in {*described(usual), *described(plain)}
    assert not torch.equal(usual.read_shard(0).features, moved.read_shard(0).features)


def test_a_store_of_other_views_is_not_resumed(photos: Path) -> None:
    extract(photos, "store", "random_resized_crop")

    with pytest.raises(FeatureStoreError, match="augmentation"):
        extract(photos, "store", "flip_crop")


def test_the_same_seed_gives_the_same_features(photos: Path) -> None:
    first, again = (extract(photos, out, "flip_crop").read_shard(0) for out in ("one", "two"))

    assert torch.equal(first.features, again.features)
