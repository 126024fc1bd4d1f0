"""The encoder of photographs whose weights are part of the package, for work without a network."""

from pathlib import Path

import torch

from difficulty_service.backbones.backbone import (
    Backbone,
    BackboneOptions,
    Preprocessing,
    no_projection,
)
from difficulty_service.backbones.frozen_network import freeze
from difficulty_service.backbones.onnx_network import OnnxNetwork, suits_onnx
from difficulty_service.backbones.weights import load_checked, read_weights
from difficulty_service.backbones.weights_files import (
    PHOTO_GRAPH,
    PHOTO_INT8_GRAPH,
    PHOTO_WEIGHTS,
)
from difficulty_service.base.errors import BackboneError
from difficulty_service.base.files import file_sha256

WEIGHTS_SHA256 = "bfe24e516cef07f068b641f609a55678d7701c9d686f2085cf91c522a7164d88"
GRAPH_SHA256 = "dcaa184cd7f033a4c941a28a8e95cdf7cea7417b070cd9c740d44ba30b96e5cf"
INT8_GRAPH_SHA256 = "247db161ab894101d0db74866d7c243d386d10f9590019333c344e5af5cd085c"

PREPROCESSING = Preprocessing(
    size=260,
    resize=260,
    interpolation="bicubic",
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
)
"""As timm prepares images for tf_efficientnet_lite2, but with all of the shorter side.

Of which timm keeps 89 %: wrong labels are found better by the whole (docs/benchmarks.md).
"""


def load_builtin_photos(name: str, options: BackboneOptions) -> Backbone:
    """The encoder with the weights in the package, the only ones it has.

    ONNX Runtime runs it from its graphs, which refer to the same file of weights, on CPUs in
    float32 and in int8 where that package is installed; PyTorch otherwise. Features in float32
    differ by rounding.
    """
    from difficulty_service.backbones.builtin_photos.network import PhotoEncoder

    if options.features != "penultimate":
        raise no_projection(name)
    if options.weights is not None:
        raise BackboneError.leave_out(f"{name} has weights of its own", "weights")
    network = PhotoEncoder()
    if options.random:
        return freeze(name, network, PREPROCESSING, None, options)
    _require_unchanged(name, PHOTO_WEIGHTS, WEIGHTS_SHA256)
    if options.precision == torch.int8:
        _require_unchanged(name, PHOTO_INT8_GRAPH, INT8_GRAPH_SHA256)
        return freeze(name, OnnxNetwork(PHOTO_INT8_GRAPH), PREPROCESSING, PHOTO_WEIGHTS, options)
    if suits_onnx(options):
        _require_unchanged(name, PHOTO_GRAPH, GRAPH_SHA256)
        return freeze(name, OnnxNetwork(PHOTO_GRAPH), PREPROCESSING, PHOTO_WEIGHTS, options)
    load_checked(network, read_weights(PHOTO_WEIGHTS), f"{PHOTO_WEIGHTS} as {name}")
    return freeze(name, network, PREPROCESSING, PHOTO_WEIGHTS, options)


def _require_unchanged(name: str, path: Path, sha256: str) -> None:
    if not path.is_file():
        problem = f"{path}, a file of {name}, is missing"
    elif file_sha256(path) != sha256:
        problem = f"{path} is not the file that the package has for {name}"
    else:
        return
    raise BackboneError(problem, "install the package again")
