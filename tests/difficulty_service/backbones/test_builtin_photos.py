"""The encoder of photographs in the package, beside timm's own network and transform."""

import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import onnx
import pyarrow.parquet as pq
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file
from timm.data import create_transform, resolve_data_config
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.backbones import BACKBONES, builtin_photos, load_backbone, onnx_network
from difficulty_service.backbones.backbone import Backbone, BackboneOptions, image_preprocessing
from difficulty_service.backbones.builtin_photos.convert import TIMM_NAME, folded_weights
from difficulty_service.backbones.builtin_photos.graph import graph_of
from difficulty_service.backbones.builtin_photos.network import LAYERS
from difficulty_service.backbones.frozen_network import FrozenNetwork
from difficulty_service.backbones.onnx_network import suits_onnx
from difficulty_service.backbones.weights_files import PHOTO_GRAPH, PHOTO_WEIGHTS
from difficulty_service.base.errors import BackboneError
from difficulty_service.images.preparation import normalise, prepare


@pytest.fixture(scope="module")
def published(shared: Path) -> Backbone:
    """The network of timm with the published weights."""
    weights = shared / "weights" / f"{TIMM_NAME}.imagenet1k.fp16.safetensors"
    return load_backbone(f"timm:{TIMM_NAME}", BackboneOptions(str(weights)))


def photographs(shared: Path, number: int) -> list[bytes]:
    column = pq.read_table(shared / "data" / "tiny_imagenet_val2000.parquet", columns=["image"])
    return column["image"].slice(0, number).to_pylist()


def test_images_are_prepared_as_by_timm_with_all_of_the_shorter_side() -> None:
    noise = torch.randint(0, 256, (13, 17, 3), dtype=torch.uint8)
    image = Image.fromarray(noise.numpy()).resize((500, 400), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.save(file, "PNG")
    network = timm.get_pretrained_cfg(TIMM_NAME).to_dict()
    config = resolve_data_config({}, pretrained_cfg=network) | {"crop_pct": 1.0}

    preprocessing = image_preprocessing(load_backbone("builtin-photos", BackboneOptions()))
    view = prepare(lambda: io.BytesIO(file.getvalue()), preprocessing, "exact")
    prepared = normalise(view[None], preprocessing, torch.float32)

    expected = create_transform(**config)(image)
    assert isinstance(expected, Tensor)
    torch.testing.assert_close(prepared[0], expected, rtol=0, atol=1e-6)


@pytest.mark.weights
def test_the_weights_in_the_package_are_made_of_the_published_ones(published: Backbone) -> None:
    packaged = load_file(PHOTO_WEIGHTS)

    made = folded_weights(cast(FrozenNetwork, published).network)

    assert len(packaged) == 2 * len(LAYERS)
    assert packaged.keys() == made.keys()
    for name, tensor in packaged.items():
        assert torch.equal(tensor, made[name]), name


@pytest.mark.weights
def test_features_of_photographs_equal_those_of_timm(shared: Path, published: Backbone) -> None:
    ours = load_backbone("builtin-photos", BackboneOptions())
    preprocessing = image_preprocessing(ours)
    views = [
        prepare(lambda data=data: io.BytesIO(data), preprocessing)
        for data in photographs(shared, 4)
    ]
    images = normalise(torch.stack(views), preprocessing, torch.float32)

    features, expected = ours.encode(images), published.encode(images)

    assert preprocessing == replace(image_preprocessing(published), resize=260)
    assert (
        ours.feature_dim == published.feature_dim == BACKBONES["builtin-photos"].facts.feature_dim
    )
    # Folded weights are rounded to half precision once more.
    torch.testing.assert_close(features, expected, rtol=0, atol=0.01 * float(expected.abs().max()))


def test_a_changed_file_of_weights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = bytearray(PHOTO_WEIGHTS.read_bytes())
    changed[-1] ^= 1
    (tmp_path / "encoder.safetensors").write_bytes(changed)
    monkeypatch.setattr(builtin_photos, "PHOTO_WEIGHTS", tmp_path / "encoder.safetensors")

    with pytest.raises(BackboneError, match=r"is not the file .* install the package again"):
        load_backbone("builtin-photos", BackboneOptions())


def test_a_missing_file_of_weights_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtin_photos, "PHOTO_WEIGHTS", tmp_path / "encoder.safetensors")

    with pytest.raises(BackboneError, match=r"is missing; install the package again"):
        load_backbone("builtin-photos", BackboneOptions())


def noise() -> Tensor:
    """Normalised images of coarse noise."""
    coarse = torch.rand(2, 3, 9, 9, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return F.interpolate(coarse, (260, 260), mode="bicubic").clamp(-1, 1)


def test_on_a_cpu_onnx_runtime_gives_the_features_of_pytorch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images = noise()

    by_onnx = load_backbone("builtin-photos", BackboneOptions())
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(onnx_network, "find_spec", lambda _name: None)
    by_torch = load_backbone("builtin-photos", BackboneOptions())

    assert (by_onnx.one_core, by_torch.one_core) == (True, False)
    assert by_onnx.weights_sha256 == by_torch.weights_sha256
    expected = by_torch.encode(images)
    atol = 1e-5 * float(expected.abs().max())
    assert float(expected.std()) > 1000 * atol
    torch.testing.assert_close(by_onnx.encode(images), expected, rtol=0, atol=atol)
    torch.testing.assert_close(by_onnx.encode(images[:1]), expected[:1], rtol=0, atol=atol)


def test_onnx_runtime_is_for_cpus_and_float32() -> None:
    assert suits_onnx(BackboneOptions())
    assert not suits_onnx(BackboneOptions(precision=torch.bfloat16))
    assert not suits_onnx(BackboneOptions(device=torch.device("cuda")))


def test_the_graph_in_the_package_is_made_of_the_weights_in_the_package() -> None:
    assert graph_of(PHOTO_WEIGHTS) == onnx.load(PHOTO_GRAPH, load_external_data=False)


def test_a_graph_of_other_weights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "encoder.onnx").write_bytes(PHOTO_GRAPH.read_bytes()[:-1])
    monkeypatch.setattr(builtin_photos, "PHOTO_GRAPH", tmp_path / "encoder.onnx")

    with pytest.raises(BackboneError, match=r"onnx is not the file .* install the package again"):
        load_backbone("builtin-photos", BackboneOptions())


def test_other_weights_and_projections_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="builtin-photos has weights of its own"):
        load_backbone("builtin-photos", BackboneOptions(weights=str(tmp_path / "other")))
    with pytest.raises(BackboneError, match="builtin-photos has no projection"):
        load_backbone("builtin-photos", BackboneOptions(features="projected"))
