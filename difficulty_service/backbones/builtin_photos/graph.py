"""Writes the network of the encoder of photographs as an ONNX file; needs the package onnx."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from difficulty_service.backbones.builtin_photos.network import (
    FEATURE_DIM,
    LARGEST,
    LAYERS,
    SIZE,
    Layer,
)

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

OPSET, IR_VERSION = 17, 8
HALF = ".half"


def graph_of(weights: Path) -> "ModelProto":
    """The layers as a graph from `images` (samples, 3, SIZE, SIZE) to `features`.

    ONNX Runtime finds the weights in the safetensors file, which must lie beside that of the graph.
    """
    from onnx import TensorProto, helper

    stored = list(tensors_of(weights))
    casts = [
        helper.make_node("Cast", [each.name], [each.name.removesuffix(HALF)], to=TensorProto.FLOAT)
        for each in stored
    ]
    limits = [
        helper.make_tensor(name, TensorProto.FLOAT, (), [value])
        for name, value in (("smallest", 0.0), ("largest", LARGEST))
    ]
    graph = helper.make_graph(
        [*casts, *operations()],
        "EfficientNet-Lite2",
        values("images", [3, SIZE, SIZE]),
        values("features", [FEATURE_DIM]),
        [*stored, *limits],
    )
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)


def values(name: str, shape: list[int]) -> list["ValueInfoProto"]:
    """An input or output of the graph, for each sample of that shape."""
    from onnx import TensorProto, helper

    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["samples", *shape])]


def tensors_of(weights: Path) -> "Iterator[TensorProto]":
    """Where the tensors of a safetensors file in half precision are in it."""
    from onnx import TensorProto

    with weights.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    for name, described in header.items():
        begin, end = described["data_offsets"]
        tensor = TensorProto(
            name=name + HALF,
            dims=described["shape"],
            data_type=TensorProto.FLOAT16,
            data_location=TensorProto.EXTERNAL,
        )
        place = {"location": weights.name, "offset": 8 + length + begin, "length": end - begin}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        yield tensor


def operations() -> "Iterator[NodeProto]":
    """What `PhotoEncoder.forward` does."""
    from onnx import helper

    images = entered = "images"
    for number, layer in enumerate(LAYERS):
        name = f"layers.{number}"
        if layer.enters:
            entered = images
        inputs = [images, f"{name}.weight", f"{name}.bias"]
        yield convolution(layer, inputs, f"{name}.convolved")
        images = f"{name}.convolved"
        if layer.clipped:
            yield helper.make_node("Clip", [images, "smallest", "largest"], [f"{name}.clipped"])
            images = f"{name}.clipped"
        if layer.leaves:
            yield helper.make_node("Add", [images, entered], [f"{name}.added"])
            images = f"{name}.added"
    yield helper.make_node("GlobalAveragePool", [images], ["means"])
    yield helper.make_node("Flatten", ["means"], ["features"])


def convolution(layer: Layer, inputs: Sequence[str], output: str) -> "NodeProto":
    """The convolution of a layer, with the padding that it has."""
    from onnx import helper

    return helper.make_node(
        "Conv",
        inputs,
        [output],
        kernel_shape=[layer.kernel] * 2,
        strides=[layer.stride] * 2,
        group=layer.groups,
        pads=[layer.padding[0]] * 2 + [layer.padding[1]] * 2,
    )
