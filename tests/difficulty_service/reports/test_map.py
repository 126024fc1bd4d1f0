"""The map: which samples lie where."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from difficulty_service.base.errors import ReportError
from difficulty_service.features.store import FeatureStore
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.reports import map as image_map
from difficulty_service.reports import tsne
from difficulty_service.reports.assemble import ReportOptions, make_report
from difficulty_service.reports.map import (
    BORDER,
    EDGE,
    draw_map,
    place_samples,
    placed_map,
    tsne_input,
    within_unit,
)
from difficulty_service.reports.map_points import NO_LEVEL, MapPoints
from difficulty_service.reports.similar import map_vectors, write_vectors
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.samples import to_samples
from difficulty_service.scoring.fit_store import fit_store
from tests.factories import store_of, unpack_map
from tests.score_files import random_scores

NAMES = ("bird", "cat", "dog")


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    """Features of three separate classes in two parts, of two augmentation runs."""
    ids, labels = [f"{row:07d}.png" for row in range(300)], torch.arange(300) % 3
    noise = torch.randn(300, 2, 6, generator=torch.Generator().manual_seed(0))
    features = noise + 6 * F.one_hot(labels, 6)[:, None]
    return store_of(tmp_path / "scores.features", features, labels, ids, 150, class_names=NAMES)


@pytest.fixture(params=["t-SNE", "two directions"])
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "t-SNE":
        pytest.importorskip("openTSNE", reason="the extra `map` is not installed")
    else:
        monkeypatch.setattr(image_map, "has_tsne", lambda: False)
    return str(request.param)


def test_samples_lie_beside_those_of_their_class(store: FeatureStore, method: str) -> None:
    samples = to_samples(random_scores(300, names=NAMES))

    drawn = draw_map(samples, store)

    assert drawn is not None
    assert method in drawn.method
    assert drawn.rows.tolist() == list(range(300))
    assert 0 < drawn.positions.min() < drawn.positions.max() < 1
    distances = np.linalg.norm(drawn.positions[:, None] - drawn.positions[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    neighbours = samples.labels[np.argsort(distances, axis=1)[:, :5]]
    assert (neighbours == samples.labels[:, None]).mean() > 0.95


def test_points_carry_the_row_class_and_difficulty_of_their_sample(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_map, "has_tsne", lambda: False)
    monkeypatch.setattr(tsne, "MAX_POINTS", 100)
    scores = random_scores(200, ids=[f"{row:07d}.png" for row in range(100, 300)])
    samples = to_samples(scores)
    unscored = np.where(np.arange(200) == 0, np.nan, samples.percentiles)
    samples = replace(samples, percentiles=unscored)

    drawn = draw_map(samples, store)

    assert drawn is not None
    points = MapPoints.of(drawn, samples)
    packed = points.packed_json(samples, drawn)
    assert (len(drawn.rows), drawn.num_samples) == (100, 200)
    assert packed["ids"] == [f"{100 + row:07d}.png" for row in drawn.rows.tolist()]
    assert points.columns["labels"].tolist() == (drawn.rows % 3).tolist()
    assert sorted(packed["names"].values()) == ["class-00000", "class-00001", "class-00002"]
    levels = points.columns["percentiles"]
    assert levels[0] == NO_LEVEL
    np.testing.assert_allclose(levels[1:] / 254, samples.percentiles[drawn.rows[1:]], atol=0.002)


def test_packed_columns_are_those_of_the_points(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_map, "has_tsne", lambda: False)
    samples = to_samples(random_scores(300, names=NAMES))
    drawn = draw_map(samples, store)
    assert drawn is not None
    uneven = replace(drawn, rows=drawn.rows[[0, 2, 3]], positions=drawn.positions[[0, 2, 3]])

    for shown in (drawn, uneven):
        points = MapPoints.of(shown, samples, "/images")
        content = points.packed_bytes()
        unpacked = unpack_map(content)
        for name, values in points.columns.items():
            np.testing.assert_array_equal(unpacked[name], values)
        assert (unpacked["count"], unpacked["address"]) == (len(shown.rows), "/images")
        assert unpacked["rows"].tolist() == shown.rows.tolist()


def test_outliers_lie_in_the_border_in_their_order() -> None:
    generator = np.random.default_rng(0)
    plane = generator.standard_cauchy((2000, 2))

    positions = within_unit(plane)

    for axis in range(2):
        values = plane[:, axis]
        low, high = np.quantile(values, [EDGE, 1 - EDGE])
        for value, position in zip(values.tolist(), positions[:, axis].tolist(), strict=True):
            share = (value - low) / (high - low)
            beyond = max(share - 1, -share, 0) / BORDER
            shrunk = BORDER * beyond / (1 + beyond)
            expected = -shrunk if share < 0 else min(share, 1) + shrunk
            assert position == pytest.approx((expected + BORDER) / (1 + 2 * BORDER))
        order = np.argsort(values)
        assert (np.diff(positions[order, axis]) > 0).all()
    assert 0 < positions.min() < positions.max() < 1


def test_the_input_of_a_tsne_is_of_unit_length_and_without_unknown_rows(
    store: FeatureStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaussians = fit_store(store, FitOptions("auto", "auto")).gaussians
    write_vectors(tmp_path / "vectors.npy", store, gaussians, 300)
    vectors = np.array(map_vectors(tmp_path / "vectors.npy"))
    vectors[7] = np.nan
    monkeypatch.setattr(tsne, "MAX_POINTS", 100)

    given = tsne_input(vectors, 3)

    assert given is not None
    rows, places = given
    expected = np.linspace(0, 299, 100).astype(int)
    assert rows.tolist() == [row for row in expected.tolist() if row != 7]
    directions = vectors[rows, :2].astype(float)
    naive = [each / np.sqrt((each**2).sum()) for each in directions]
    np.testing.assert_allclose(places, naive, rtol=1e-3)
    assert tsne_input(vectors[:9], 3) is None


def test_a_tsne_tells_its_progress_and_is_the_same_again() -> None:
    pytest.importorskip("openTSNE", reason="the extra `map` is not installed")
    places = np.random.default_rng(0).normal(size=(40, 3))
    shares: list[float] = []

    first, again = tsne.embed(places, shares.append), tsne.embed(places)

    np.testing.assert_array_equal(first, again)
    assert shares == sorted(shares)
    assert len(shares) == 35
    assert 0 < shares[0] < shares[-1] == 1


def test_two_classes_have_no_plane_and_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"elsewhere holds none"):
        make_report(
            random_scores(60), tmp_path / "r.html", ReportOptions(features=tmp_path / "elsewhere")
        )


def test_placed_samples_lie_where_a_map_without_tsne_has_them(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_map, "has_tsne", lambda: False)
    samples = to_samples(random_scores(300, names=NAMES))
    drawn = draw_map(samples, store)
    assert drawn is not None

    placed = place_samples(store, fit_store(store, FitOptions("auto", "auto")).gaussians)

    assert placed is not None
    again = placed_map(placed, samples)
    assert again.rows.tolist() == drawn.rows.tolist()
    np.testing.assert_allclose(again.positions, drawn.positions, atol=1e-6)


def test_of_many_samples_evenly_spaced_ones_are_placed(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_map, "MAX_PLACED", 80)

    placed = place_samples(store, fit_store(store, FitOptions("auto", "auto")).gaussians)

    assert placed is not None
    assert placed["sample_id"].to_pylist() == [f"{row:07d}.png" for row in range(0, 300, 4)]


def test_samples_are_found_in_scores_of_another_order(store: FeatureStore) -> None:
    scores = random_scores(300, names=NAMES)
    placed = place_samples(store, fit_store(store, FitOptions("auto", "auto")).gaussians)
    assert placed is not None
    reversed_scores = ScoreFile(scores.table.take(list(range(299, 49, -1))), scores.provenance)

    mapped = placed_map(placed, to_samples(scores))
    other = placed_map(placed, to_samples(reversed_scores))

    assert mapped.rows.tolist() == list(range(300))
    assert other.rows.tolist() == list(range(250))
    np.testing.assert_array_equal(other.positions, mapped.positions[:49:-1])
