"""Networks of timm against timm's own forward, and one with its real weights on real images."""

import io
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from difficulty_service.backbones import BACKBONES, load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.base.errors import BackboneError
from difficulty_service.features.description import FeatureKind
from difficulty_service.images.preparation import normalise, prepare

IMAGES = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))


def random_network(model: str, **arguments: object) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(model, **arguments).eval()


def saved(network: nn.Module, path: Path) -> BackboneOptions:
    save_file(network.state_dict(), path)
    return BackboneOptions(weights=str(path))


@pytest.mark.slow
def test_dinov2_resamples_its_position_embeddings_as_timm_does(tmp_path: Path) -> None:
    model = "vit_small_patch14_dinov2.lvd142m"
    large = random_network(model, num_classes=0)
    options = saved(large, tmp_path / "dino.safetensors")

    backbone = load_backbone("dinov2-vit-s14", options)
    features = backbone.encode(IMAGES)

    large.set_input_size((224, 224))
    with torch.inference_mode():
        expected = large(IMAGES)
    assert (backbone.feature_dim, backbone.preprocessing.size) == (384, 224)
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "model", "classes"),
    [
        pytest.param("mae-vit-b16", "vit_base_patch16_224.mae", 0, marks=pytest.mark.slow),
        pytest.param(
            "vit-b16-in21k", "vit_base_patch16_224.augreg_in21k", 21_843, marks=pytest.mark.slow
        ),
        ("timm:vit_tiny_patch16_224", "vit_tiny_patch16_224", 1000),
        ("resnet34", "resnet34.tv_in1k", 1000),
        ("timm:deit_tiny_distilled_patch16_224", "deit_tiny_distilled_patch16_224", 1000),
        ("timm:levit_128s", "levit_128s", 1000),
        ("timm:mobilenetv3_small_050", "mobilenetv3_small_050", 1000),
    ],
)
def test_features_equal_those_of_timm_without_its_classifier(
    tmp_path: Path, name: str, model: str, classes: int
) -> None:
    network = random_network(model, num_classes=classes)
    options = saved(network, tmp_path / "weights.safetensors")

    backbone = load_backbone(name, options)
    features = backbone.encode(IMAGES)

    network.reset_classifier(0)
    with torch.inference_mode():
        expected = network(IMAGES)
    assert features.shape == (2, backbone.feature_dim)
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("dinov2-reg-vit-s14", 112),
        ("dinov3-vit-s16", 128),
        ("dinov3-convnext-tiny", 96),
        pytest.param("c-radio-v3-vit-b16", 128, marks=pytest.mark.slow),
    ],
)
def test_named_networks_give_the_features_of_timm_at_any_size(
    tmp_path: Path, name: str, size: int
) -> None:
    spec = BACKBONES[name]
    network = random_network(spec.load.keywords["model"], num_classes=0)
    options = saved(network, tmp_path / "weights.safetensors")
    images = nn.functional.interpolate(IMAGES[:1], size)

    backbone = load_backbone(name, replace(options, image_size=size))
    features = backbone.encode(images)

    if network.pretrained_cfg["fixed_input_size"]:
        network.set_input_size((size, size))
    with torch.inference_mode():
        expected = network(images)
    assert (backbone.feature_dim, backbone.preprocessing.size) == (spec.facts.feature_dim, size)
    torch.testing.assert_close(features, expected, rtol=1e-3, atol=1e-4)


def test_another_size_changes_the_margin_of_the_centre_crop_with_it() -> None:
    backbone = load_backbone("resnet34", BackboneOptions(image_size=112, random=True))

    assert (backbone.preprocessing.size, backbone.preprocessing.resize) == (112, 128)
    assert backbone.encode(torch.zeros(1, 3, 112, 112)).shape == (1, 512)


@pytest.mark.parametrize(
    ("name", "size", "said"),
    [
        ("dinov2-vit-s14", 230, r"multiple of 14 pixels, and 230 is none; use image_size=224"),
        ("timm:vit_base_patch16_sapiens2", 100, "multiple of 16 pixels, and 100 is none; use .*96"),
        ("timm:levit_128s", 256, r"takes images of 224 pixels only; use image_size=224"),
        ("builtin", 64, r"builtin takes images of 32 pixels only; use image_size=32"),
        ("clip-rn50", 256, r"clip-rn50 takes images of 224 pixels only; use image_size=224"),
        ("pe-core-vit-s16", 100, r"multiple of 16 pixels, and 100 is none; use image_size=96"),
        ("builtin-text", 64, r"image_size does not apply to texts; leave out image_size"),
    ],
)
def test_a_size_that_a_network_does_not_take_is_refused(name: str, size: int, said: str) -> None:
    options = BackboneOptions(image_size=size, random=name != "builtin-text")

    with pytest.raises(BackboneError, match=said):
        load_backbone(name, options)


@pytest.mark.slow
def test_features_of_another_size_say_it_and_are_made_again_by_what_they_say() -> None:
    asked = BackboneOptions(image_size=112, random=True)
    first = load_backbone("timm:resnet18", asked)
    preprocessing = first.preprocessing.describe()
    kind = FeatureKind(
        **asked.describe(), feature_dim=first.feature_dim, preprocessing=preprocessing
    )

    again = replace(BackboneOptions.as_described(kind, asked.device), random=True)

    assert preprocessing["size"] == 112
    assert load_backbone("timm:resnet18", again).preprocessing == first.preprocessing


@pytest.mark.slow
@pytest.mark.parametrize("classes", [0, 7])
def test_a_file_with_another_classifier_or_none_gives_the_same_features(
    tmp_path: Path, classes: int
) -> None:
    network = random_network("resnet18", num_classes=classes)
    options = saved(network, tmp_path / "weights.safetensors")

    features = load_backbone("timm:resnet18", options).encode(IMAGES)

    network.reset_classifier(0)
    with torch.inference_mode():
        torch.testing.assert_close(features, network(IMAGES), rtol=1e-4, atol=1e-4)


def test_weights_of_another_network_are_refused_with_the_difference(tmp_path: Path) -> None:
    options = saved(random_network("resnet18"), tmp_path / "weights.safetensors")

    with pytest.raises(BackboneError, match="of another network") as caught:
        load_backbone("resnet34", options)

    assert "missing (of 218): " in str(caught.value)
    assert "layer1.2.conv1.weight 64x64x3x3" in str(caught.value)


def test_a_file_that_lacks_one_tensor_is_refused(tmp_path: Path) -> None:
    tensors = random_network("resnet18").state_dict()
    del tensors["layer1.0.conv1.weight"]
    save_file(tensors, tmp_path / "weights.safetensors")
    options = BackboneOptions(weights=str(tmp_path / "weights.safetensors"))

    with pytest.raises(BackboneError, match=r"1 missing \(of 122\): layer1.0.conv1.weight"):
        load_backbone("timm:resnet18", options)


def test_preprocessing_follows_the_data_config_of_timm(tmp_path: Path) -> None:
    options = saved(random_network("resnet18.tv_in1k"), tmp_path / "weights.safetensors")

    preprocessing = load_backbone("timm:resnet18.tv_in1k", options).preprocessing

    assert (preprocessing.size, preprocessing.resize) == (224, 256)
    assert preprocessing.interpolation == "bilinear"
    assert preprocessing.mean == (0.485, 0.456, 0.406)


def test_projected_features_are_refused() -> None:
    with pytest.raises(BackboneError, match="resnet50 has no projection"):
        load_backbone("resnet50", BackboneOptions(features="projected"))


def test_an_unknown_network_raises_an_error_with_similar_names() -> None:
    with pytest.raises(BackboneError, match=r"no network 'resnet5000'.*resnet50"):
        load_backbone("timm:resnet5000", BackboneOptions())


def test_an_unknown_pretraining_raises_an_error_with_the_known_ones() -> None:
    with pytest.raises(BackboneError, match=r"no pretraining 'resnet18.nowhere'.*tv_in1k"):
        load_backbone("timm:resnet18.nowhere", BackboneOptions())


@pytest.mark.slow
def test_real_weights_put_photographs_of_a_class_near_each_other(shared: Path) -> None:
    weights = shared / "weights" / "mobilenetv2_100.imagenet1k.safetensors"
    table = pq.read_table(
        shared / "data" / "cifar10_test.parquet", columns=["image", "label"]
    ).slice(0, 200)
    labels = torch.tensor(table["label"].to_pylist())
    backbone = load_backbone("timm:mobilenetv2_100", BackboneOptions(weights=str(weights)))

    images = [
        prepare(lambda data=data: io.BytesIO(data), backbone.preprocessing)
        for data in table["image"].to_pylist()
    ]
    batches = normalise(torch.stack(images), backbone.preprocessing, torch.float32).split(50)
    features = torch.cat([backbone.encode(batch) for batch in batches])

    assert features.shape == (200, 1280)
    similarity = nn.functional.normalize(features - features.mean(dim=0), dim=1)
    similarity = (similarity @ similarity.T).fill_diagonal_(-1)
    nearest_is_of_the_class = labels[similarity.argmax(dim=1)] == labels
    assert nearest_is_of_the_class.float().mean() > 0.4  # By chance it would be 0.1.
