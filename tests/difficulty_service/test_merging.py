"""What several runs made is joined into what one run would have made, or refused by name."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from difficulty_service.base.checksums import load_checked
from difficulty_service.base.errors import FeatureStoreError, StatisticsError
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.plan import Plan, ShardSubset
from difficulty_service.features.errors_file import read_errors
from difficulty_service.features.merging import merge_stores
from difficulty_service.features.store import FeatureStore
from difficulty_service.gaussians.fit_options import FitOptions, Shrinkage
from difficulty_service.gaussians.fitting import fit
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.fitted_gaussians import FittedGaussians, merge_gaussians
from difficulty_service.scoring.pipeline import execute
from tests.factories import store_of, write_image_folder

NUM_SUBSETS = 3


@pytest.fixture(scope="module")
def whole_plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Extraction of a small folder of images, one of them damaged, in seven shards."""
    folder = tmp_path_factory.mktemp("photos")
    write_image_folder(folder, ("cat", "dog"), each=10, size=(12, 12))
    (folder / "dog" / "damaged.png").write_bytes(b"no image")
    (folder / "cow").mkdir()
    options = DatasetOptions(shard_size=3)
    return Plan(str(folder), folder.parent / "whole", "builtin", dataset=options)


@pytest.fixture
def subsets(whole_plan: Plan, tmp_path: Path) -> list[Path]:
    folders = [tmp_path / f"subset{index}" for index in range(NUM_SUBSETS)]
    for index, folder in enumerate(folders):
        execute(replace(whole_plan, out=folder, subset=ShardSubset(index, NUM_SUBSETS)))
    return folders


def test_subsets_together_are_the_store_of_one_run_byte_for_byte(
    whole_plan: Plan, subsets: list[Path], tmp_path: Path
) -> None:
    whole = execute(whole_plan)

    merged = merge_stores(subsets, tmp_path / "merged")

    names = sorted(path.name for path in whole.store.folder.iterdir())
    assert sorted(path.name for path in merged.folder.iterdir()) == names
    for name in names:
        assert (merged.folder / name).read_bytes() == (whole.store.folder / name).read_bytes()
    assert [bad.sample_id for bad in merged.bad_images()] == ["dog/damaged.png"]
    assert [error.sample_id for error in read_errors(merged.folder)] == ["cow", "dog/damaged.png"]
    assert merged.warnings == ("1 entry is skipped (an empty class folder): 'cow'",)


def test_a_subset_counts_its_own_images(whole_plan: Plan, tmp_path: Path) -> None:
    made = [
        execute(
            replace(whole_plan, out=tmp_path / str(index), subset=ShardSubset(index, NUM_SUBSETS))
        )
        for index in range(NUM_SUBSETS)
    ]

    assert sum(each.num_samples for each in made) == 21
    assert sum(len(each.bad_images) for each in made) == 1


def test_shards_that_no_run_extracted_are_missed_by_name(
    subsets: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(FeatureStoreError, match=r"2 of 7 shards.*part-00001\.arrow"):
        merge_stores([subsets[0], subsets[2]], tmp_path / "merged")


def test_a_merge_that_was_killed_is_completed(subsets: list[Path], tmp_path: Path) -> None:
    merged = merge_stores(subsets, tmp_path / "merged")
    lost = merged.shard_file(4)
    content = lost.read_bytes()
    lost.unlink()

    merge_stores(subsets, tmp_path / "merged")

    assert lost.read_bytes() == content


def test_stores_of_other_settings_are_refused_with_what_differs(
    subsets: list[Path], tmp_path: Path
) -> None:
    described = load_checked((subsets[1] / "store.json").read_text())
    described |= {"backbone": "timm:resnet18", "class_names": ["cat", "fox"]}
    (subsets[1] / "store.json").write_text(json.dumps(described))

    with pytest.raises(FeatureStoreError, match=r"backbone: .*class_names: .*fox") as raised:
        merge_stores(subsets, tmp_path / "merged")

    assert f'"timm:resnet18" in {subsets[1]}' in str(raised.value)
    assert not (tmp_path / "merged").exists()


def features(seed: int, rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 6, generator=generator) + seed, torch.arange(rows) % 3


def features_of(folder: Path, seed: int, rows: int, **described: object) -> FeatureStore:
    own = {"dataset": folder.name, "fingerprint": folder.name, "backbone": "x"}
    ids = [f"{folder.name}{row}" for row in range(rows)]
    return store_of(folder, *features(seed, rows), ids, 4096, **own | described)


def fitted(
    folder: Path, seed: int, rows: int, shrinkage: Shrinkage = "none", **described: object
) -> Path:
    store = features_of(folder, seed, rows, **described)
    path = folder.with_suffix(".safetensors")
    fit_store(store, FitOptions(shrinkage, "float64")).save(path)
    return path


def test_merged_gaussians_are_those_of_all_samples_at_once(tmp_path: Path) -> None:
    files = [fitted(tmp_path / "one", 1, 200), fitted(tmp_path / "two", 2, 90)]
    pairs = [features(1, 200), features(2, 90)]
    values, labels = (torch.cat(each) for each in zip(*pairs, strict=True))

    fitted_to_both = merge_gaussians(files)

    merged, description = fitted_to_both.gaussians, fitted_to_both.description
    at_once = fit(values, labels, 3, FitOptions("none", "float64"))
    torch.testing.assert_close(merged.class_means, at_once.class_means, rtol=1e-12, atol=1e-12)
    for name in ("within", "agnostic"):
        whitening = getattr(merged, name).whitening
        expected = getattr(at_once, name).whitening
        torch.testing.assert_close(
            whitening @ whitening.T, expected @ expected.T, rtol=1e-9, atol=1e-12
        )
    assert description.num_samples == 290
    assert description.dataset == "one + two"
    assert description.fingerprint not in ("one", "two")


@pytest.mark.parametrize(
    ("described", "named"),
    [
        ({"backbone": "y"}, "backbone"),
        ({"class_names": ["a", "b", "d"]}, "class_names"),
        ({"precision": "bfloat16"}, "precision"),
    ],
)
def test_gaussians_of_other_features_are_refused_with_what_differs(
    tmp_path: Path, described: dict[str, Any], named: str
) -> None:
    files = [fitted(tmp_path / "one", 1, 60), fitted(tmp_path / "two", 2, 60, **described)]

    with pytest.raises(StatisticsError, match=named):
        merge_gaussians(files)


def test_gaussians_of_precisions_that_were_compared_can_be_merged(tmp_path: Path) -> None:
    pilot = {"num_images": 9, "float32": 1.0, "bfloat16": 2.0, "agreement": 0.9999}
    half = {"precision": "bfloat16", "precision_pilot": pilot}
    files = [
        fitted(tmp_path / "one", 1, 60, precision="float32"),
        fitted(tmp_path / "two", 2, 60, **half),
    ]

    assert merge_gaussians(files).description.num_samples == 120


def test_an_intensity_that_needs_the_features_is_not_made_up(tmp_path: Path) -> None:
    files = [fitted(tmp_path / name, 1, 60, "ledoit-wolf") for name in ("one", "two")]

    with pytest.raises(StatisticsError, match="pass over the features"):
        merge_gaussians(files)


def test_gaussians_of_few_samples_become_plain_ones_when_there_are_enough(tmp_path: Path) -> None:
    files = [fitted(tmp_path / "one", 1, 200, "auto"), fitted(tmp_path / "two", 2, 190, "auto")]
    pairs = [features(1, 200), features(2, 190)]
    values, labels = (torch.cat(each) for each in zip(*pairs, strict=True))

    merged = merge_gaussians(files).gaussians

    at_once = fit(values, labels, 3, FitOptions("none", "float64"))
    assert FittedGaussians.load(files[0]).gaussians.within.ridge > 0
    assert merged.within.ridge == 0
    assert merged.centre is None
    torch.testing.assert_close(merged.within.whitening, at_once.within.whitening)


def test_gaussians_of_too_few_samples_keep_the_smallest_ridge(tmp_path: Path) -> None:
    files = [fitted(tmp_path / "one", 1, 20, "auto"), fitted(tmp_path / "two", 2, 90, "auto")]
    ridges = [FittedGaussians.load(file).gaussians.within.ridge for file in files]

    merged = merge_gaussians(files).gaussians

    assert merged.within.ridge == min(ridges) > 0
    assert merged.centre is None
