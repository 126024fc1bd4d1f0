"""The encoder of photographs in eight bits: its graph, its features, and where it is used."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

import difficulty_service as ds
from difficulty_service.backbones import builtin_photos, load_backbone, onnx_network
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.builtin_photos.eight_bits import (
    LEVELS,
    Levels,
    QuantisedLayer,
    graph_of,
    quantise,
    weight_scales,
)
from difficulty_service.backbones.builtin_photos.network import LAYERS, PhotoEncoder
from difficulty_service.backbones.onnx_network import OnnxNetwork
from difficulty_service.backbones.weights_files import PHOTO_INT8_GRAPH, PHOTO_WEIGHTS
from difficulty_service.base.errors import BackboneError, FeatureStoreError
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.extraction.plan import Plan
from difficulty_service.extraction.policy import settle_precision
from difficulty_service.features.description import FeatureKind
from difficulty_service.interface.image_sources import open_images

INT8 = BackboneOptions(precision=torch.int8)
OPEN = Plan("photos", Path("no store"), "builtin-photos", open_precision=True)


def noise(number: int = 2) -> Tensor:
    """Normalised images of coarse noise, of pixels as images have them."""
    coarse = torch.rand(number, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    pixels = (F.interpolate(coarse, (260, 260), mode="bicubic").clamp(0, 1) * 255).round()
    return (pixels / 255 - 0.5) / 0.5


def pairs(number: int = 8) -> list[tuple[np.ndarray, str]]:
    """Images of two classes, which are stripes in one direction or the other, with some noise."""
    noisy = np.random.default_rng(0).integers(0, 80, (number, 70, 70, 3), dtype=np.uint8)
    stripes = np.broadcast_to(np.uint8(170) * (np.arange(70) // 7 % 2)[:, None, None], (70, 70, 3))
    both = [stripes.astype(np.uint8), stripes.transpose(1, 0, 2).astype(np.uint8)]
    return [(image + both[row % 2], f"class{row % 2}") for row, image in enumerate(noisy)]


def dataset() -> Dataset:
    return open_images(pairs(), DatasetOptions())[0]


def own_weights() -> PhotoEncoder:
    """The network by PyTorch, in float32."""
    network = PhotoEncoder()
    network.load_state_dict({name: each.float() for name, each in load_file(PHOTO_WEIGHTS).items()})
    return network.eval().requires_grad_(requires_grad=False)


@pytest.fixture(scope="module")
def constants() -> dict[str, np.ndarray]:
    """The constants of the graph in the package, by their names."""
    graph = onnx.load(PHOTO_INT8_GRAPH, load_external_data=False).graph
    return {
        each.name: numpy_helper.to_array(each)
        for each in graph.initializer
        if each.data_location != onnx.TensorProto.EXTERNAL
    }


def test_the_graph_in_the_package_is_made_of_the_weights_in_the_package(
    constants: dict[str, np.ndarray],
) -> None:
    def levels(name: str) -> Levels:
        return Levels(np.float32(constants[f"{name}.step"]), int(constants[f"{name}.zero"]))

    weights = load_file(PHOTO_WEIGHTS)
    layers = []
    for number, layer in enumerate(LAYERS):
        name = f"layers.{number}"
        bias = constants[f"{name}.bias.integers"] * constants[f"{name}.bias.steps"].astype(float)
        scales = weight_scales(layer, weights[f"{name}.weight"].float())
        sum_levels = levels(f"{name}.added") if layer.leaves else None
        layers.append(QuantisedLayer(scales, bias, levels(f"{name}.rounded"), sum_levels))

    made = graph_of(PHOTO_WEIGHTS, layers)

    assert made == onnx.load(PHOTO_INT8_GRAPH, load_external_data=False)


def test_two_products_never_exceed_the_16_bits_that_processors_without_vnni_add_them_in(
    constants: dict[str, np.ndarray],
) -> None:
    weights = load_file(PHOTO_WEIGHTS)

    for number, layer in enumerate(LAYERS):
        if layer.groups == 1:
            name = f"layers.{number}.weight"
            steps = torch.tensor(constants[f"{name}.steps"])[:, None, None, None]
            largest = int((weights[name].float() / steps).round().abs().max())
            assert 2 * LEVELS * largest < 1 << 15, name


def test_features_point_where_those_in_float32_do() -> None:
    images = noise()

    full = load_backbone("builtin-photos", BackboneOptions()).encode(images)
    eight = load_backbone("builtin-photos", INT8).encode(images)

    cosines = F.cosine_similarity(full - full.mean(), eight - eight.mean())
    assert float(cosines.min()) > 0.9
    assert not torch.equal(full, eight)


def test_the_features_of_an_image_do_not_depend_on_its_batch() -> None:
    images = noise()
    encoder = load_backbone("builtin-photos", INT8)

    together = encoder.encode(images)

    assert torch.equal(together, torch.cat([encoder.encode(each[None]) for each in images]))


@pytest.mark.slow
def test_a_graph_measured_on_images_gives_their_features(tmp_path: Path) -> None:
    images, network = noise(), own_weights()
    shutil.copy(PHOTO_WEIGHTS, tmp_path)
    graph = tmp_path / "graph.onnx"

    graph.write_bytes(graph_of(PHOTO_WEIGHTS, quantise(network, images)).SerializeToString())

    full, eight = network(images), OnnxNetwork(graph)(images)
    assert float(F.cosine_similarity(full - full.mean(), eight - eight.mean()).min()) > 0.98
    # The means of channels are those without rounding.
    assert float((eight - full).mean().abs()) < 0.01 * float(full.mean())


def test_a_changed_graph_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "encoder.int8.onnx"
    changed.write_bytes(PHOTO_INT8_GRAPH.read_bytes()[:-1])
    monkeypatch.setattr(builtin_photos, "PHOTO_INT8_GRAPH", changed)

    with pytest.raises(BackboneError, match=r"onnx is not the file .* install the package again"):
        load_backbone("builtin-photos", INT8)


def test_other_networks_and_gpus_refuse_int8() -> None:
    with pytest.raises(BackboneError, match="builtin has no weights of eight bits, which builtin-"):
        load_backbone("builtin", INT8)
    with pytest.raises(BackboneError, match="computes in int8 on CPUs only"):
        load_backbone("builtin-photos", replace(INT8, device=torch.device("cuda")))


def test_int8_is_the_usual_precision_on_a_cpu_with_onnx_runtime(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = settle_precision(OPEN, dataset())
    chosen = settle_precision(replace(OPEN, open_precision=False), dataset())
    other = settle_precision(replace(OPEN, backbone="builtin"), dataset())
    on_gpu = replace(OPEN.network, device=torch.device("cuda"), precision=torch.bfloat16)
    gpu = settle_precision(replace(OPEN, network=on_gpu), dataset())
    monkeypatch.setattr(onnx_network, "find_spec", lambda _name: None)
    without = settle_precision(OPEN, dataset())

    settled = [each.network.precision for each in (usual, chosen, other, gpu, without)]
    assert settled == [torch.int8, torch.float32, torch.float32, torch.bfloat16, torch.float32]


def test_features_for_gaussians_in_float32_are_in_float32_and_say_so() -> None:
    settled = settle_precision(OPEN, dataset(), FeatureKind(precision="float32"))

    assert settled.network.precision == torch.float32
    assert settled.precision_reason == "float32, as the features of the Gaussians are"


@pytest.mark.slow
def test_features_of_an_earlier_run_in_float32_are_kept_and_never_mixed(tmp_path: Path) -> None:
    score = partial(
        ds.score_dataset,
        backbone="builtin-photos",
        out=tmp_path / "scores.parquet",
        device="cpu",
        resume=True,
        progress=False,
    )
    first = score(pairs(), precision="fp32")

    again = score(pairs()[:-1])
    with pytest.raises(FeatureStoreError, match='precision: "float32" then, "int8" now'):
        score(pairs(), precision="int8")

    assert first.provenance.precision == again.provenance.precision == "float32"


@pytest.mark.slow
def test_a_score_file_says_that_its_features_are_of_eight_bits() -> None:
    scores = ds.score_dataset(pairs(), backbone="builtin-photos", device="cpu", progress=False)

    assert scores.provenance.precision == "int8"


def test_an_encoder_in_python_has_the_features_of_the_commands() -> None:
    image = pairs(1)[0][0]

    usual, eight, full = (
        ds.backbone("builtin-photos", device="cpu", precision=precision).encode([image])
        for precision in ("auto", "int8", "fp32")
    )

    assert np.array_equal(usual, eight)
    assert not np.array_equal(usual, full)
