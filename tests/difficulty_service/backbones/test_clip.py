"""CLIP towers against open_clip's own forward, through files of random weights."""

from dataclasses import replace
from pathlib import Path

import open_clip
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import Backbone, BackboneOptions
from difficulty_service.base.errors import BackboneError
from difficulty_service.base.files import file_sha256
from tests.small_clip import BACKBONE, NAME, known_to_open_clip, write_weights

IMAGES = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))


def random_model(architecture: str) -> nn.Module:
    """The whole model of open_clip with the activation of OpenAI's weights, in eval mode."""
    torch.manual_seed(0)
    return open_clip.create_model(architecture, force_quick_gelu=True).eval()


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    """ViT-B/32, and a safetensors file of the whole model."""
    model = random_model("ViT-B-32")
    path = tmp_path_factory.mktemp("vit") / "clip.safetensors"
    save_file(model.state_dict(), path)
    return model, path


@pytest.fixture(scope="module")
def penultimate(vit: tuple[nn.Module, Path]) -> Backbone:
    """The features of that model before its projection."""
    return load_backbone("clip-vit-b32", BackboneOptions(weights=str(vit[1])))


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    """RN50, and a PyTorch file of the image tower alone."""
    model = random_model("RN50")
    path = tmp_path_factory.mktemp("resnet") / "tower.pt"
    torch.save(model.visual.state_dict(), path)
    return model, path


@torch.inference_mode()
def before_projection(visual: nn.Module, images: Tensor) -> Tensor:
    """The pooled features, recovered by solving for the input of the linear projection."""
    projected = visual(images).double()
    if hasattr(visual, "attnpool"):
        projection = visual.attnpool.c_proj
        captured: list[Tensor] = []
        weight, bias = projection.weight.double(), projection.bias.double()
        handle = visual.layer4.register_forward_hook(lambda *hooked: captured.append(hooked[2]))
        visual(images)
        handle.remove()
        pooled = attention_by_hand(visual.attnpool, captured[0])
        torch.testing.assert_close(pooled @ weight.T + bias, projected, rtol=1e-4, atol=1e-4)
        return pooled.float()
    tokens: list[Tensor] = []
    handle = visual.ln_post.register_forward_hook(lambda *hooked: tokens.append(hooked[2]))
    visual(images)
    handle.remove()
    return tokens[0][:, 0] if tokens[0].ndim == 3 else tokens[0]


def attention_by_hand(pool: nn.Module, grid: Tensor) -> Tensor:
    """Multi-head attention of the mean token to all, without the output projection."""
    tokens = grid.double().flatten(2).transpose(1, 2)
    tokens = torch.cat([tokens.mean(dim=1, keepdim=True), tokens], dim=1)
    tokens = tokens + pool.positional_embedding.double()
    pool = pool.double()
    heads = [
        layer(part).unflatten(-1, (pool.num_heads, -1)).transpose(1, 2)
        for layer, part in (
            (pool.q_proj, tokens[:, :1]),
            (pool.k_proj, tokens),
            (pool.v_proj, tokens),
        )
    ]
    pool.float()
    query, key, value = heads
    attention = (query @ key.transpose(2, 3) / query.shape[-1] ** 0.5).softmax(dim=-1)
    return (attention @ value).transpose(1, 2).flatten(2)[:, 0]


@pytest.mark.long
def test_projected_features_of_a_vit_are_those_of_open_clip(vit: tuple[nn.Module, Path]) -> None:
    model, path = vit
    options = BackboneOptions(weights=str(path), features="projected")

    backbone = load_backbone("clip-vit-b32", options)
    features = backbone.encode(IMAGES)

    with torch.inference_mode():
        expected = model.encode_image(IMAGES)
    assert backbone.feature_dim == features.shape[1] == 512
    torch.testing.assert_close(features, expected)


@pytest.mark.slow
def test_penultimate_features_of_a_vit_come_before_the_projection(
    vit: tuple[nn.Module, Path], penultimate: Backbone
) -> None:
    model, path = vit

    features = penultimate.encode(IMAGES)

    assert penultimate.feature_dim == 768
    assert penultimate.weights_sha256 == file_sha256(path)
    torch.testing.assert_close(features, before_projection(model.visual, IMAGES))


@pytest.mark.long
def test_features_of_a_resnet_with_and_without_the_projection(
    resnet: tuple[nn.Module, Path],
) -> None:
    model, path = resnet

    penultimate = load_backbone("clip-rn50", BackboneOptions(weights=str(path)))
    projected = load_backbone("clip-rn50", BackboneOptions(str(path), "projected"))

    with torch.inference_mode():
        expected = model.encode_image(IMAGES)
    assert (penultimate.feature_dim, projected.feature_dim) == (2048, 1024)
    torch.testing.assert_close(projected.encode(IMAGES), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        penultimate.encode(IMAGES), before_projection(model.visual, IMAGES), rtol=1e-3, atol=1e-4
    )


@pytest.mark.slow
def test_half_precision_changes_the_features_little_and_returns_float32(
    vit: tuple[nn.Module, Path], penultimate: Backbone
) -> None:
    _, path = vit

    half = load_backbone(
        "clip-vit-b32", BackboneOptions(weights=str(path), precision=torch.bfloat16)
    )
    features = half.encode(IMAGES)

    assert features.dtype == torch.float32
    assert torch.cosine_similarity(features, penultimate.encode(IMAGES)).min() > 0.995


@pytest.mark.slow
def test_weights_of_another_network_are_refused_with_both_shapes(
    vit: tuple[nn.Module, Path],
) -> None:
    _, path = vit

    with pytest.raises(BackboneError, match="of another network") as caught:
        load_backbone("clip-vit-b16", BackboneOptions(weights=str(path)))

    assert "conv1.weight 768x3x32x32 instead of 768x3x16x16" in str(caught.value)
    assert "clip-vit-b16" in str(caught.value)


@pytest.mark.slow
def test_preprocessing_equals_that_of_open_clip(penultimate: Backbone) -> None:
    preprocessing = penultimate.preprocessing

    expected = open_clip.pretrained.get_pretrained_cfg("ViT-B-32", "openai")
    assert (preprocessing.size, preprocessing.resize) == (224, 224)
    assert preprocessing.interpolation == expected["interpolation"]
    assert (preprocessing.mean, preprocessing.std) == (expected["mean"], expected["std"])


def test_an_unknown_architecture_raises_an_error_with_the_known_ones() -> None:
    with pytest.raises(BackboneError, match=r"no architecture 'ViT-X-9'.*ViT-B-16"):
        load_backbone("open_clip:ViT-X-9/openai", BackboneOptions())


def test_an_unknown_pretraining_raises_an_error_with_the_known_ones() -> None:
    with pytest.raises(BackboneError, match=r"ViT-B-32 has no pretraining 'nowhere'.*openai"):
        load_backbone("open_clip:ViT-B-32/nowhere", BackboneOptions())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model", "dim", "size"),
    [
        ("mobileclip2-s0", "fastvit_mci0", 512, 64),
        ("pe-core-vit-s16", "vit_pe_core_small_patch16_384", 512, 96),
    ],
)
def test_named_towers_give_the_features_of_timm_at_any_size(
    tmp_path: Path, name: str, model: str, dim: int, size: int
) -> None:
    torch.manual_seed(0)
    network = timm.create_model(model, num_classes=dim).eval()
    tensors = {f"visual.trunk.{key}": value for key, value in network.state_dict().items()}
    save_file(tensors, tmp_path / "clip.safetensors")
    pooled = BackboneOptions(weights=str(tmp_path / "clip.safetensors"), image_size=size)
    projected = replace(pooled, features="projected")
    images = nn.functional.interpolate(IMAGES[:1], size)

    features = load_backbone(name, pooled).encode(images)
    if hasattr(network, "set_input_size"):
        network.set_input_size((size, size))
    with torch.inference_mode():
        tokens = network.forward_features(images)
        expected = network.forward_head(tokens, pre_logits=True)
        expected_projected = network(images)

    torch.testing.assert_close(features, expected, rtol=1e-3, atol=1e-4)
    features = load_backbone(name, projected).encode(images)
    torch.testing.assert_close(features, expected_projected, rtol=1e-3, atol=1e-4)


def test_a_transformer_of_open_clip_takes_another_size_as_open_clip_does(tmp_path: Path) -> None:
    with known_to_open_clip(tmp_path):
        path = write_weights(tmp_path / "clip.safetensors")
        model = open_clip.create_model(NAME, pretrained=str(path), force_image_size=64).eval()
        images = nn.functional.interpolate(IMAGES, 64)

        backbone = load_backbone(BACKBONE, BackboneOptions(str(path), "projected", image_size=64))

    assert backbone.preprocessing.size == 64
    with torch.inference_mode():
        expected = model.encode_image(images)
    torch.testing.assert_close(backbone.encode(images), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_tower_of_timm_inside_open_clip_loses_its_projection(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = open_clip.create_model("PE-Core-T-16-384").eval()
    save_file(model.visual.state_dict(), tmp_path / "tower.safetensors")
    name, path = "open_clip:PE-Core-T-16-384/meta", str(tmp_path / "tower.safetensors")
    images = torch.nn.functional.interpolate(IMAGES, 384)

    projected = load_backbone(name, BackboneOptions(path, "projected")).encode(images)
    penultimate = load_backbone(name, BackboneOptions(path)).encode(images)

    trunk = model.visual.trunk
    with torch.inference_mode():
        pooled = trunk.forward_head(trunk.forward_features(images), pre_logits=True)
        expected = model.encode_image(images)
    torch.testing.assert_close(projected, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(penultimate, pooled, rtol=1e-4, atol=1e-4)
