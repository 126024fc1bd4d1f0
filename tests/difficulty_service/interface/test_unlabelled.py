"""Images without labels are scored by what needs none, and labels are made for them where asked."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.clip_text import load_text_encoder
from difficulty_service.base.errors import (
    BackboneError,
    ConfigError,
    DatasetError,
    ScoreFileError,
)
from difficulty_service.features.store import open_store
from difficulty_service.interface.score import score_dataset
from difficulty_service.interface.scores import Scores
from difficulty_service.scores.file import read_scores
from difficulty_service.scores.score_columns import OF_CLASSES
from difficulty_service.scoring.made_labels import find_clusters, suitable_clusters
from difficulty_service.scoring.words import PROMPT
from tests.dataset_files import dataset_of
from tests.small_clip import BACKBONE, known_to_open_clip, write_weights

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

EACH = 12
ODD = "odd.png"
OPTIONS: dict[str, Any] = {"progress": False, "device": "cpu"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of two kinds in one folder, one of no kind, a copy, and a file that is no image."""
    folder = tmp_path_factory.mktemp("flat") / "photos"
    folder.mkdir()
    generator = np.random.default_rng(0)
    rows, columns = np.indices((32, 32))
    for kind, pattern in {
        "striped": 200 * (columns // 4 % 2),
        "round": 255 - 9 * abs(rows - 16),
    }.items():
        (folder.parent / "classes" / kind).mkdir(parents=True)
        for number in range(EACH):
            grey = (pattern + generator.integers(0, 30, (32, 32))).clip(0, 255).astype(np.uint8)
            Image.fromarray(grey).convert("RGB").save(folder / f"{kind} {number}.png")
            shutil.copy(folder / f"{kind} {number}.png", folder.parent / "classes" / kind)
    noise = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / ODD)
    shutil.copy(folder / "striped 0.png", folder / "zzz copy.png")
    (folder / "notes.txt").write_text("no image")
    return folder


@pytest.fixture(scope="module")
def scores(folder: Path) -> Scores:
    return score_dataset(folder, out=folder.parent / "scores.parquet", **OPTIONS)


def test_a_folder_of_images_gets_what_needs_no_labels(scores: Scores) -> None:
    columns = set(scores.table.column_names)
    rows = {row["sample_id"]: row for row in scores.table.to_pylist()}

    assert columns >= {"md_agnostic", "percentile", "duplicate_of", "image_fault"}
    assert not columns & {*OF_CLASSES}
    assert {row["label_name"] for row in rows.values()} == {"unlabelled"}
    assert rows["zzz copy.png"]["duplicate_of"] == "striped 0.png"
    assert scores.bad_images["sample_id"].to_pylist() == ["notes.txt"]
    assert any("there are no labels" in warning for warning in scores.warnings)


def test_what_is_unlike_all_others_is_the_hardest(scores: Scores) -> None:
    ordered = scores.table.sort_by([("md_agnostic", "descending")])

    assert ordered["sample_id"][0].as_py() == ODD
    assert ordered["percentile"].to_numpy().argmax() == 0


def test_who_asks_for_a_column_of_labels_is_told_what_makes_them(folder: Path) -> None:
    with pytest.raises(ScoreFileError, match=r"classes='cat,dog'.*clusters='auto'"):
        read_scores(folder.parent / "scores.parquet", ["suspicion"])


@pytest.mark.parametrize("packed", ["zip", "tar"])
def test_an_archive_of_images_has_no_labels_either(
    folder: Path, tmp_path: Path, packed: str
) -> None:
    images = tmp_path / "images"
    shutil.copytree(folder, images, ignore=shutil.ignore_patterns("*.txt"))
    archive = shutil.make_archive(str(tmp_path / "photos"), packed, images)

    dataset = dataset_of(archive)

    assert dataset.class_names == ("unlabelled",)
    assert len(dataset.labels) == 2 * EACH + 2


def test_labels_are_ignored_where_a_person_says_so(folder: Path) -> None:
    classes = folder.parent / "classes"

    below = dataset_of(classes, unlabelled=True)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 3), dtype=np.uint8)
    held = score_dataset(list(pixels), unlabelled=True, **OPTIONS)
    pairs = score_dataset(list(zip(pixels, "abababab", strict=True)), unlabelled=True, **OPTIONS)

    assert not below.has_labels
    assert below.sample_ids[0] == "round/round 0.png"
    assert held["label_name"].to_pylist() == ["unlabelled"] * 8
    assert pairs["md_agnostic"].equals(held["md_agnostic"])


def test_a_table_without_labels_is_read_where_a_person_says_so(
    folder: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table.csv"
    paths = sorted(str(path) for path in folder.glob("*.png"))
    pyarrow.csv.write_csv(pa.table({"path": paths, "camera": ["A"] * len(paths)}), table)

    with pytest.raises(DatasetError, match="score without labels by unlabelled=True"):
        dataset_of(table)
    with pytest.raises(DatasetError, match="leave out label_column"):
        dataset_of(table, unlabelled=True, label_column="camera")
    dataset = dataset_of(table, unlabelled=True)
    parquet = tmp_path / "table.parquet"
    pa.parquet.write_table(pyarrow.csv.read_csv(table), parquet)

    assert list(dataset.sample_ids) == paths
    assert len(dataset_of(parquet, unlabelled=True).labels) == len(paths)


@pytest.mark.slow
def test_images_without_labels_are_dropped_and_named_by_marks(folder: Path, scores: Scores) -> None:
    marks = pa.table(
        {
            "sample_id": [ODD, *(f"striped {number}.png" for number in range(4))],
            "mark": ["drop", *["relabel"] * 4],
            "label": [None, *["night"] * 4],
        }
    )

    again = score_dataset(folder, marks=marks, **OPTIONS)

    assert len(again) == len(scores) - 1
    names = dict(zip(again["sample_id"].to_pylist(), again["label_name"].to_pylist(), strict=True))
    assert names["striped 0.png"] == "night"
    assert "rmd" in again.table.column_names


@pytest.mark.slow
def test_clusters_become_classes_that_are_scored_like_others(folder: Path) -> None:
    out = folder.parent / "clusters.parquet"

    first, again = (score_dataset(folder, out=out, clusters=2, **OPTIONS) for _ in range(2))

    names = dict(zip(first["sample_id"].to_pylist(), first["label_name"].to_pylist(), strict=True))
    kinds = [
        {names[f"{kind} {number}.png"] for number in range(EACH)} for kind in ("striped", "round")
    ]
    assert sorted(map(tuple, kinds)) == [("cluster 1",), ("cluster 2",)]
    assert first.table.equals(again.table)
    assert "rmd" in first.table.column_names
    made = read_scores(out).provenance.made_labels
    assert made is not None
    assert made.clusters == 2
    assert any("2 clusters" in warning for warning in first.warnings)


def test_the_largest_cluster_is_the_first() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes, centres = (5, 40, 20), 9 * torch.eye(3)
    features = torch.cat(
        [
            centre + torch.randn(size, 3, generator=generator) / 9
            for centre, size in zip(centres, sizes, strict=True)
        ]
    )

    found = find_clusters(features, 3, seed=0)

    assert found.tolist() == [2] * 5 + [0] * 40 + [1] * 20


@pytest.mark.parametrize(("samples", "clusters"), [(3, 2), (200, 10), (10**6, 100)])
def test_the_number_of_clusters_grows_with_the_samples(samples: int, clusters: int) -> None:
    assert suitable_clusters(samples) == clusters


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clusters": 2, "classes": "a,b"}, "give one of them"),
        ({"classes": ["a"]}, "'a' has no two names"),
        ({"clusters": 1}, "clusters=1"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    folder: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        score_dataset(folder, **options, **OPTIONS)


def test_labels_are_not_replaced_unless_they_are_ignored(folder: Path) -> None:
    classes = folder.parent / "classes"

    with pytest.raises(DatasetError, match=r"2 classes, and clusters would .* unlabelled=True"):
        score_dataset(classes, clusters=2, **OPTIONS)


def test_a_backbone_that_knows_no_words_is_refused_before_it_encodes_images(folder: Path) -> None:
    with pytest.raises(BackboneError, match=r"backbone='clip-vit-b16'.* clusters='auto'"):
        score_dataset(folder, classes=["cat", "dog"], backbone="builtin", **OPTIONS)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Weights of a small CLIP that open_clip knows meanwhile."""
    folder = tmp_path_factory.mktemp("clip")
    with known_to_open_clip(folder):
        yield write_weights(folder / "clip.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("features", ["penultimate", "projected"])
def test_each_image_gets_the_name_that_its_features_are_closest_to(
    folder: Path, weights: Path, tmp_path: Path, features: str
) -> None:
    out = tmp_path / "scores.parquet"
    clip = {"backbone": BACKBONE, "weights": weights}
    names = ["cat", "dog", "a red car"]

    scores = score_dataset(folder, out=out, features=features, classes=names, **clip, **OPTIONS)

    score_dataset(folder, out=tmp_path / "p.parquet", features="projected", **clip, **OPTIONS)
    store = open_store(tmp_path / "p.features")
    images = F.normalize(store.open_shard(0).features(), dim=1)
    network = BackboneOptions(str(weights), "projected", torch.device("cpu"))
    phrases = load_text_encoder(BACKBONE, network).encode([PROMPT.format(name) for name in names])
    expected = [names[place] for place in (images @ phrases.T).argmax(dim=1).tolist()]
    assert scores["label_name"].to_pylist() == expected
    made = read_scores(out).provenance.made_labels
    assert made is not None
    assert (made.classes, made.prompt) == (tuple(names), PROMPT)
