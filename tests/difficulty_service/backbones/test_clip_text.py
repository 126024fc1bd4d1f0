"""CLIP text towers against open_clip's own forward, through files of random weights."""

from pathlib import Path

import open_clip
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.clip_text import load_text_encoder
from difficulty_service.base.errors import BackboneError
from difficulty_service.base.files import file_sha256

PHRASES = ["a blurry photo", "a drawing of a cat that sleeps behind a tree in the rain", "text"]


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    """ViT-B/32 with the activation of OpenAI's weights, and a file of the whole model."""
    torch.manual_seed(0)
    model = open_clip.create_model("ViT-B-32", force_quick_gelu=True).eval()
    path = tmp_path_factory.mktemp("vit") / "clip.safetensors"
    save_file(model.state_dict(), path)
    return model, path


@pytest.mark.long
def test_features_of_phrases_are_those_of_open_clip_at_unit_length(
    vit: tuple[nn.Module, Path],
) -> None:
    model, path = vit

    encoder = load_text_encoder("clip-vit-b32", BackboneOptions(weights=str(path)))
    features = encoder.encode(PHRASES)

    with torch.inference_mode():
        expected = model.encode_text(open_clip.get_tokenizer("ViT-B-32")(PHRASES), normalize=True)
    assert encoder.weights_sha256 == file_sha256(path)
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_phrases_share_a_space_with_projected_images(vit: tuple[nn.Module, Path]) -> None:
    options = BackboneOptions(weights=str(vit[1]), features="projected")

    phrases = load_text_encoder("clip-vit-b32", options).encode(PHRASES)

    assert phrases.shape == (3, load_backbone("clip-vit-b32", options).feature_dim)


@pytest.mark.slow
def test_short_phrases_after_a_long_one_have_the_same_features(
    vit: tuple[nn.Module, Path],
) -> None:
    encoder = load_text_encoder("clip-vit-b32", BackboneOptions(weights=str(vit[1])))

    alone = encoder.encode(PHRASES[:1])
    together = encoder.encode(PHRASES)
    again = encoder.encode(PHRASES[:1])

    torch.testing.assert_close(alone, together[:1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(alone, again)


@pytest.mark.slow
def test_the_text_tower_of_a_model_that_keeps_it_under_a_prefix(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = open_clip.create_model("PE-Core-T-16-384").eval()
    save_file(model.state_dict(), tmp_path / "clip.safetensors")

    options = BackboneOptions(weights=str(tmp_path / "clip.safetensors"))
    encoder = load_text_encoder("open_clip:PE-Core-T-16-384/meta", options)

    with torch.inference_mode():
        tokens = open_clip.get_tokenizer("PE-Core-T-16-384")(PHRASES)
        expected = model.encode_text(tokens, normalize=True)
    torch.testing.assert_close(encoder.encode(PHRASES), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_file_of_the_image_tower_alone_is_refused(
    vit: tuple[nn.Module, Path], tmp_path: Path
) -> None:
    save_file(vit[0].visual.state_dict(), tmp_path / "tower.safetensors")

    with pytest.raises(BackboneError, match="holds no text encoder; give a file of the whole CLIP"):
        load_text_encoder(
            "clip-vit-b32", BackboneOptions(weights=str(tmp_path / "tower.safetensors"))
        )


@pytest.mark.parametrize("name", ["builtin", "dinov2-vit-s14", "timm:resnet18"])
def test_a_backbone_without_words_is_refused_with_one_that_has_them(name: str) -> None:
    with pytest.raises(BackboneError, match=r"no text encoder; use a CLIP.*clip-vit-b16"):
        load_text_encoder(name, BackboneOptions())


def test_a_text_encoder_of_another_package_is_refused() -> None:
    with pytest.raises(BackboneError, match="needs another package"):
        load_text_encoder("open_clip:roberta-ViT-B-32/laion2b_s12b_b32k", BackboneOptions())


def test_missing_weights_are_not_answered_with_a_network_that_knows_no_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")

    with pytest.raises(BackboneError, match="weights of clip-vit-b16 are missing") as caught:
        load_text_encoder("clip-vit-b16", BackboneOptions())

    assert "give a file of these weights" in str(caught.value)
    assert "builtin" not in str(caught.value)
