"""The map: which samples lie where."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from difficulty_service.base.errors import ReportError
from difficulty_service.features.store import FeatureStore
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.review import map as image_map
from difficulty_service.review.assemble import ReportOptions, make_report
from difficulty_service.review.map import draw_map, place_samples, placed_map
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.fit_store import fit_store
from difficulty_service.scores.samples import to_samples
from tests.factories import store_of

MakeScores = Callable[..., ScoreFile]
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


def test_samples_lie_beside_those_of_their_class(
    store: FeatureStore, make_scores: MakeScores, method: str
) -> None:
    samples = to_samples(make_scores(300, names=NAMES))

    drawn = draw_map(samples, store)

    assert drawn is not None
    assert method in drawn.method
    assert drawn.rows.tolist() == list(range(300))
    assert (drawn.positions.min(), drawn.positions.max()) == (0, 1)
    distances = np.linalg.norm(drawn.positions[:, None] - drawn.positions[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    neighbours = samples.labels[np.argsort(distances, axis=1)[:, :5]]
    assert (neighbours == samples.labels[:, None]).mean() > 0.95


def test_points_carry_the_row_class_and_difficulty_of_their_sample(
    store: FeatureStore, make_scores: MakeScores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_map, "has_tsne", lambda: False)
    monkeypatch.setattr(image_map, "MAX_POINTS", 100)
    samples = to_samples(make_scores(200, ids=[f"{row:07d}.png" for row in range(100, 300)]))

    drawn = draw_map(samples, store)

    assert drawn is not None
    data = drawn.data(samples)
    assert (len(drawn.rows), drawn.num_samples) == (100, 200)
    assert data["ids"] == [f"{100 + row:07d}.png" for row in drawn.rows.tolist()]
    assert data["labels"] == (drawn.rows % 3).tolist()
    assert sorted(data["classes"]) == ["class-00000", "class-00001", "class-00002"]


def test_two_classes_have_no_plane_and_a_missing_folder_is_named(
    tmp_path: Path, make_scores: MakeScores
) -> None:
    with pytest.raises(ReportError, match=r"elsewhere holds none"):
        make_report(
            make_scores(60), tmp_path / "r.html", ReportOptions(features=tmp_path / "elsewhere")
        )


def test_placed_samples_lie_where_a_map_without_tsne_has_them(
    store: FeatureStore, make_scores: MakeScores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_map, "has_tsne", lambda: False)
    samples = to_samples(make_scores(300, names=NAMES))
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
    monkeypatch.setattr(image_map, "MAX_POINTS", 80)

    placed = place_samples(store, fit_store(store, FitOptions("auto", "auto")).gaussians)

    assert placed is not None
    assert placed["sample_id"].to_pylist() == [f"{row:07d}.png" for row in range(0, 300, 4)]


def test_samples_are_found_in_scores_of_another_order(
    store: FeatureStore, make_scores: MakeScores
) -> None:
    scores = make_scores(300, names=NAMES)
    placed = place_samples(store, fit_store(store, FitOptions("auto", "auto")).gaussians)
    assert placed is not None
    reversed_scores = ScoreFile(scores.table.take(list(range(299, 49, -1))), scores.provenance)

    mapped = placed_map(placed, to_samples(scores))
    other = placed_map(placed, to_samples(reversed_scores))

    assert mapped.rows.tolist() == list(range(300))
    assert other.rows.tolist() == list(range(250))
    np.testing.assert_array_equal(other.positions, mapped.positions[:49:-1])
