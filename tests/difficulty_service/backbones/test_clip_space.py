"""Pooled features of CLIPs lead to the space shared with words, as their own projections."""

from pathlib import Path
from typing import Any

import pytest
import torch

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.clip_space import leads_to_words, load_projection
from difficulty_service.base.errors import BackboneError
from tests.small_clip import BACKBONE, VISION, known_to_open_clip, write_weights

RESNET = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 16, "patch_size": None}
TIMM = {"timm_model_name": "test_vit", "image_size": 160, "timm_pool": "token"}


@pytest.mark.parametrize(
    "vision",
    [VISION, RESNET, TIMM | {"timm_proj": "linear"}, TIMM | {"timm_proj": None}],
    ids=["transformer", "resnet", "timm", "timm-classifier"],
)
def test_the_projection_of_pooled_features_gives_the_projected_ones(
    tmp_path: Path, vision: dict[str, Any]
) -> None:
    with known_to_open_clip(tmp_path, vision):
        weights = str(write_weights(tmp_path / "clip.safetensors"))
        pooled, projected = (
            BackboneOptions(weights, features, flip=True)
            for features in ("penultimate", "projected")
        )
        images = torch.randn(4, 3, vision["image_size"], vision["image_size"])

        features = load_backbone(BACKBONE, pooled).encode(images)
        expected = load_backbone(BACKBONE, projected).encode(images)
        placed = load_projection(BACKBONE, pooled)(features)
        same = load_projection(BACKBONE, projected)(expected)

        assert leads_to_words(BACKBONE, "penultimate")
    assert features.shape != placed.shape
    torch.testing.assert_close(placed, expected, rtol=1e-4, atol=1e-5)
    assert same is expected


def test_pooled_features_of_a_network_without_projection_are_there_already(tmp_path: Path) -> None:
    with known_to_open_clip(tmp_path, TIMM | {"timm_proj": "none"}):
        weights = str(write_weights(tmp_path / "clip.safetensors"))
        features = torch.randn(4, 64)

        placed = load_projection(BACKBONE, BackboneOptions(weights))(features)

        assert leads_to_words(BACKBONE, "penultimate")
    assert placed is features


def test_no_pooled_features_lead_through_a_projection_that_is_not_linear(tmp_path: Path) -> None:
    with known_to_open_clip(tmp_path, TIMM | {"timm_proj": "mlp"}):
        weights = str(write_weights(tmp_path / "clip.safetensors"))

        assert not leads_to_words(BACKBONE, "penultimate")
        assert leads_to_words(BACKBONE, "projected")
        with pytest.raises(BackboneError, match="no linear map leads from pooled"):
            load_projection(BACKBONE, BackboneOptions(weights))


@pytest.mark.parametrize(
    "backbone",
    [
        None,
        "builtin",
        "resnet50",
        "builtin-text",
        "open_clip:roberta-ViT-B-32/laion2b_s12b_b32k",
        "open_clip:none/none",
    ],
)
def test_features_of_other_backbones_lead_to_no_words(backbone: str | None) -> None:
    assert not leads_to_words(backbone, "penultimate")
    assert leads_to_words("clip-vit-b16", "penultimate")
    assert leads_to_words("open_clip:ViT-B-16-SigLIP/webli", "penultimate")
