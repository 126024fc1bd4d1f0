"""Whoever names no backbone gets the best one that can be had."""

from pathlib import Path

import pytest

from difficulty_service.backbones import BACKBONES, DEFAULT_BACKBONE
from difficulty_service.pipeline import default_backbone


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache, empty, on a machine without a network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path


def test_without_network_and_cache_it_is_the_built_in_network_with_a_warning() -> None:
    name, warnings = default_backbone()

    assert name == "builtin"
    assert len(warnings) == 1
    assert f"the weights of {DEFAULT_BACKBONE} are missing" in warnings[0]
    assert "the backbone is therefore builtin" in warnings[0]


def test_with_cached_weights_it_is_clip_without_a_word(cache: Path) -> None:
    repository = str(BACKBONES[DEFAULT_BACKBONE].repository)
    folder = cache / f"models--{repository.replace('/', '--')}"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc" / "open_clip_model.safetensors").write_bytes(b"")

    assert default_backbone() == (DEFAULT_BACKBONE, [])
