"""The graph that runs the encoder of photographs in eight bits; needs the package onnx.

`python -m benchmarks.quantise` writes it. Activations are unsigned 8-bit integers. Weights are
signed, with a scale for each channel: of 8 bits where each channel is convolved by itself, and else
of 7. Processors without VNNI add two products in 16 bits, which saturates with weights of 8 bits
and cannot with 7. The graph refers to the weights in half precision, which ONNX Runtime rounds
once, when it opens the graph.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.backbones.builtin_photos.graph import (
    HALF,
    IR_VERSION,
    OPSET,
    convolution,
    tensors_of,
    values,
)
from difficulty_service.backbones.builtin_photos.network import (
    FEATURE_DIM,
    LARGEST,
    LAYERS,
    SIZE,
    Layer,
    PhotoEncoder,
)

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

LEVELS = 255
LARGEST_WEIGHT, LARGEST_OWN_WEIGHT = 63, 127
"""Of 7 bits, and of 8 where each channel is convolved by itself."""

PIXEL_STEP, PIXEL_ZERO = 2 / LEVELS, 127
HALF_STEP = PIXEL_STEP / 2
"""A pixel p is the input 2p / 255 - 1, so half a step more makes it the integer p exactly.

Without it every pixel would lie between two integers, and rounding would choose one.
"""

LEAST_WEIGHT = 1e-4
"""A smaller largest weight adds nothing, and in its steps the bias would not fit into 32 bits."""

CORRECTIONS = 3
LEAST_UNCLIPPED = 0.05


@dataclass(frozen=True)
class Levels:
    """How unsigned integers stand for activations: `(integer - zero) * step`."""

    step: np.float32
    zero: int

    @classmethod
    def of(cls, values: Tensor) -> "Levels":
        """Levels from the smallest to the largest of some values, and for 0 exactly."""
        smallest, largest = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
        # Rounded, so that another processor's last digits do not change the graph.
        step = float(f"{(largest - smallest) / LEVELS:.4g}")
        return cls(np.float32(step), round(-smallest / step))

    def rounded(self, values: Tensor) -> Tensor:
        """The nearest level of each value."""
        step = float(self.step)
        return ((values / step).round().add(self.zero).clamp(0, LEVELS) - self.zero) * step


PIXELS = Levels(np.float32(PIXEL_STEP), PIXEL_ZERO)
CLIPPED = Levels(np.float32(LARGEST / LEVELS), 0)
"""Rounding to these levels clips as well."""


@dataclass(frozen=True)
class QuantisedLayer:
    """What the integers of a layer stand for.

    Attributes:
        scales: Step of the weights of each channel. Shape (outputs,).
        bias: Bias, corrected so that rounding leaves the mean of each channel. Shape (outputs,).
        levels: Those of its result.
        sum_levels: Those of the sum with the input of the block; None where there is none.
    """

    scales: NDArray[np.float32]
    bias: NDArray[np.float64]
    levels: Levels
    sum_levels: Levels | None


def weight_scales(layer: Layer, weight: Tensor) -> NDArray[np.float32]:
    """Steps by which the largest weight of each channel is the largest integer. (outputs,)."""
    largest = LARGEST_OWN_WEIGHT if layer.groups > 1 else LARGEST_WEIGHT
    steps = weight.abs().amax(dim=(1, 2, 3)).clamp_min(LEAST_WEIGHT) / largest
    return steps.numpy().astype(np.float32)


@torch.inference_mode()
def quantise(network: PhotoEncoder, images: Tensor) -> list[QuantisedLayer]:
    """Measures the levels of each layer, with the layers before it rounded already.

    Args:
        images: Normalised images that measure. Shape (samples, 3, SIZE, SIZE).
    """
    full, rounded = images, PIXELS.rounded(images + HALF_STEP)
    entered = full, rounded
    layers: list[QuantisedLayer] = []
    for layer, module in zip(LAYERS, network.layers, strict=True):
        weight, exact_bias = (cast(Tensor, getattr(module, each)) for each in ("weight", "bias"))
        if layer.enters:
            entered = full, rounded
        scales = weight_scales(layer, weight)
        steps = torch.from_numpy(scales)[:, None, None, None]
        rounded_weight = (weight / steps).round() * steps
        bias = exact_bias.clone()
        if not layers:
            bias -= HALF_STEP * weight.sum(dim=(1, 2, 3))
        full = _convolve(layer, full, weight, exact_bias)
        rounded = _convolve(layer, rounded, rounded_weight, bias)
        correction = _correction(layer, full, rounded)
        rounded += correction[:, None, None]
        if layer.clipped:
            full.clamp_(0, LARGEST)
        levels = CLIPPED if layer.clipped else Levels.of(rounded)
        rounded = levels.rounded(rounded)
        sum_levels = None
        if layer.leaves:
            full, rounded = full + entered[0], rounded + entered[1]
            sum_levels = Levels.of(rounded)
            rounded = sum_levels.rounded(rounded)
        corrected = (bias + correction).double().numpy()
        layers.append(QuantisedLayer(scales, corrected, levels, sum_levels))
    return layers


def _convolve(layer: Layer, images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if layer.kernel > 1:
        images = F.pad(images, layer.padding * 2)
    return F.conv2d(images, weight, bias, layer.stride, groups=layer.groups)


def _correction(layer: Layer, full: Tensor, rounded: Tensor) -> Tensor:
    """What to add to each channel, so that its mean is that without rounding. Shape (outputs,)."""
    where = (0, 2, 3)
    if not layer.clipped:
        return full.mean(where) - rounded.mean(where)
    total = torch.zeros(layer.outputs)
    expected = full.clamp(0, LARGEST).mean(where)
    for _ in range(CORRECTIONS):  # only what is not clipped moves with the bias
        moved = rounded + total[:, None, None]
        unclipped = ((moved > 0) & (moved < LARGEST)).float().mean(where)
        difference = expected - moved.clamp_(0, LARGEST).mean(where)
        total += difference / unclipped.clamp_min(LEAST_UNCLIPPED)
    return total


@dataclass
class _Graph:
    """A graph that grows by nodes and constants."""

    nodes: list["NodeProto"] = field(default_factory=list)
    constants: list["TensorProto"] = field(default_factory=list)

    def add(self, kind: str, inputs: Sequence[str], output: str, **attributes: int) -> str:
        from onnx import helper

        node = helper.make_node(kind, inputs, [output])
        node.attribute.extend(helper.make_attribute(*each) for each in attributes.items())
        self.nodes.append(node)
        return output

    def constant(self, name: str, value: ArrayLike) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def round(self, value: str, levels: Levels, name: str) -> str:
        step = self.constant(f"{name}.step", levels.step)
        zero = self.constant(f"{name}.zero", np.uint8(levels.zero))
        integers = self.add("QuantizeLinear", [value, step, zero], f"{name}.integers")
        return self.add("DequantizeLinear", [integers, step, zero], f"{name}.levels")

    def weight(self, name: str, scales: NDArray[np.float32]) -> str:
        """The weights of the file, rounded; ONNX Runtime keeps the integers only."""
        from onnx import TensorProto

        full = self.add("Cast", [name + HALF], f"{name}.full", to=TensorProto.FLOAT)
        steps = self.constant(f"{name}.steps", scales)
        zeros = self.constant(f"{name}.zeros", np.zeros(len(scales), np.int8))
        integers = self.add("QuantizeLinear", [full, steps, zeros], f"{name}.integers", axis=0)
        return self.add("DequantizeLinear", [integers, steps, zeros], name, axis=0)

    def bias(self, name: str, bias: NDArray[np.float64], steps: NDArray[np.float32]) -> str:
        """The bias as integers of 32 bits, in the steps of the sums."""
        integers = self.constant(f"{name}.integers", np.round(bias / steps).astype(np.int32))
        step = self.constant(f"{name}.steps", steps)
        zeros = self.constant(f"{name}.zeros", np.zeros(len(steps), np.int32))
        return self.add("DequantizeLinear", [integers, step, zeros], name, axis=0)


def graph_of(weights: Path, layers: Sequence[QuantisedLayer]) -> "ModelProto":
    """The layers as a graph from `images` (samples, 3, SIZE, SIZE) to `features`, all float32.

    ONNX Runtime finds the weights in the safetensors file, which must lie beside that of the graph.
    """
    from onnx import helper

    graph = _Graph()
    graph.constants += [each for each in tensors_of(weights) if each.name.endswith("weight" + HALF)]
    shifted = graph.add("Add", ["images", graph.constant("half", np.float32(HALF_STEP))], "shifted")
    values_, levels = graph.round(shifted, PIXELS, "pixels"), PIXELS
    entered = values_
    for number, (layer, quantised) in enumerate(zip(LAYERS, layers, strict=True)):
        name = f"layers.{number}"
        if layer.enters:
            entered = values_
        weight = graph.weight(f"{name}.weight", quantised.scales)
        bias = graph.bias(f"{name}.bias", quantised.bias, quantised.scales * levels.step)
        graph.nodes.append(convolution(layer, [values_, weight, bias], f"{name}.convolved"))
        levels = quantised.levels
        values_ = graph.round(f"{name}.convolved", levels, f"{name}.rounded")
        if quantised.sum_levels is not None:
            total, levels = (
                graph.add("Add", [values_, entered], f"{name}.sum"),
                quantised.sum_levels,
            )
            values_ = graph.round(total, levels, f"{name}.added")
    graph.add("GlobalAveragePool", [values_], "means")
    graph.add("Flatten", ["means"], "features")
    made = helper.make_graph(
        graph.nodes,
        "EfficientNet-Lite2 in eight bits",
        values("images", [3, SIZE, SIZE]),
        values("features", [FEATURE_DIM]),
        graph.constants,
    )
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(made, opset_imports=[opset], ir_version=IR_VERSION)
