"""How much better the name of another class fits, from cosines and by a small CLIP."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from difficulty_service.base.errors import BackboneError
from difficulty_service.features.store import open_store
from difficulty_service.interface.score import score_dataset
from difficulty_service.interface.scores import Scores
from difficulty_service.scorers import ScorerInput, label_names
from difficulty_service.scorers.label_names import name_margins, score_samples
from difficulty_service.scoring.pipeline import ScoreRequest, score_features
from difficulty_service.settings.options import ScoringOptions
from tests.small_clip import BACKBONE, NAME, known_to_open_clip, write_weights

CLASSES = ("a black car", "bright sky")
SCORERS = "rmd,name_margin"


def test_the_margin_is_the_best_other_name_less_the_own_one() -> None:
    cosines = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(40) % 5

    margins = name_margins(cosines, labels)

    for row, label in enumerate(labels.tolist()):
        others = [float(cosines[row, place]) for place in range(5) if place != label]
        assert float(margins[row]) == pytest.approx(max(others) - float(cosines[row, label]))


def test_one_class_has_no_other_name() -> None:
    assert name_margins(torch.ones(3, 1), torch.zeros(3, dtype=torch.int64)).isnan().all()


def test_a_few_rows_at_a_time_give_the_same_margins(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(50, 4, generator=generator), torch.arange(50) % 4
    samples = ScorerInput(features, labels, 4, 0, cosines=lambda rows: rows / 9)
    at_once = score_samples(samples)

    monkeypatch.setattr(label_names, "COSINES_AT_ONCE", 28)

    assert torch.equal(score_samples(samples), at_once)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of dark images and one of bright ones."""
    folder = tmp_path_factory.mktemp("named") / "photos"
    generator = np.random.default_rng(0)
    for level, name in zip((40, 200), CLASSES, strict=True):
        (folder / name).mkdir(parents=True)
        for number in range(12):
            pixels = (level + generator.integers(-40, 40, (32, 32, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Weights of a small CLIP that open_clip knows meanwhile."""
    folder = tmp_path_factory.mktemp("clip")
    with known_to_open_clip(folder):
        yield write_weights(folder / "clip.safetensors")


def scored(folder: Path, out: Path, weights: Path, features: str) -> Scores:
    return score_dataset(
        folder,
        out=out,
        backbone=BACKBONE,
        weights=weights,
        features=features,
        scorers=SCORERS,
        device="cpu",
        progress=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("features", ["penultimate", "projected"])
def test_names_and_images_are_compared_as_by_open_clip(
    folder: Path, weights: Path, tmp_path: Path, features: str
) -> None:
    scores = scored(folder, tmp_path / "scores.parquet", weights, features)

    scored(folder, tmp_path / "projected.parquet", weights, "projected")
    store = open_store(tmp_path / "projected.features")
    network = open_clip.create_model(NAME)
    open_clip.load_checkpoint(network, str(weights))
    with torch.inference_mode():
        tokens = open_clip.get_tokenizer(NAME)([f"a photo of a {name}" for name in CLASSES])
        words = F.normalize(network.eval().encode_text(tokens), dim=1)
    cosines = F.normalize(store.open_shard(0).features(), dim=1) @ words.T
    labels = scores["label"].to_numpy()
    expected = np.where(labels == 0, 1, -1) * (cosines[:, 1] - cosines[:, 0]).numpy()
    np.testing.assert_allclose(scores["name_margin"].to_numpy(), expected, atol=2e-6)
    assert scores["name_margin"].type == "float"


@pytest.mark.slow
def test_a_moved_image_has_the_margin_of_its_new_name(
    folder: Path, weights: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "photos"
    shutil.copytree(folder, moved)
    (moved / CLASSES[0] / "0.png").rename(moved / CLASSES[1] / "moved.png")

    before, after = (
        dict(zip(scores["sample_id"].to_pylist(), scores["name_margin"].to_pylist(), strict=True))
        for scores in (
            scored(place, tmp_path / f"{number}.parquet", weights, "penultimate")
            for number, place in enumerate((folder, moved))
        )
    )

    was = before[f"{CLASSES[0]}/0.png"]
    assert after[f"{CLASSES[1]}/moved.png"] == pytest.approx(-was, abs=1e-6)


def test_a_backbone_without_words_is_refused_before_it_encodes_images(folder: Path) -> None:
    with pytest.raises(BackboneError, match=r"leave out the scorer name_margin"):
        score_dataset(folder, backbone="builtin", scorers=SCORERS, device="cpu", progress=False)


@pytest.mark.slow
def test_features_of_other_weights_are_refused(folder: Path, weights: Path, tmp_path: Path) -> None:
    scored(folder, tmp_path / "scores.parquet", weights, "penultimate")
    other = write_weights(tmp_path / "other.safetensors", seed=1)

    with pytest.raises(BackboneError, match="not those that made the features"):
        score_features(
            open_store(tmp_path / "scores.features"),
            ScoreRequest(
                tmp_path / "other.parquet",
                ScoringOptions(scorers=("rmd", "name_margin")),
                weights=str(other),
            ),
        )
