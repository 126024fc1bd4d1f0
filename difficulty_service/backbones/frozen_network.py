"""A pretrained network with the interface of a backbone.

Folds batch normalisation into the preceding convolution, which saves a pass over memory.
"""

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils.hooks import RemovableHandle

from difficulty_service.backbones.backbone import (
    Backbone,
    BackboneOptions,
    Preprocessing,
    require_size,
)
from difficulty_service.backbones.onnx_network import ONNX_RUNTIME, OnnxNetwork
from difficulty_service.base.errors import BackboneError
from difficulty_service.base.files import file_sha256
from difficulty_service.base.float32_products import full_float32

TOLERANCE = 1e-3
"""Largest difference that counts as rounding, as a share of the largest feature."""


def pooled_features(output: Tensor | Sequence[Tensor]) -> Tensor:
    """The pooled features in a network's output; some networks return their tokens as well."""
    return output if isinstance(output, Tensor) else output[0]


def fold_norms(network: nn.Module, shape: tuple[int, int]) -> nn.Module:
    """Folds the batch normalisations of a network into their convolutions, for inference.

    The network is in eval mode, on the CPU, in fp32. A forward pass of one image shows which
    normalisation follows which convolution. Returns a folded copy, or the network itself if there
    is nothing to fold or the features would change by more than rounding.

    Args:
        shape: Height and width of its input.
    """
    if not any(isinstance(module, nn.BatchNorm2d) for module in network.modules()):
        return network
    image = torch.randn(1, 3, *shape, generator=torch.Generator().manual_seed(0))
    folded = copy.deepcopy(network)
    with torch.no_grad(), full_float32():
        before, pairs = _trace(folded, image)
        for convolution, norm in pairs.items():
            _fold(folded, convolution, norm)
        after = pooled_features(folded(image))
    tolerance = TOLERANCE * float(before.abs().max())
    same = torch.allclose(after, before, rtol=0, atol=tolerance)
    return folded if pairs and same else network


def _trace(network: nn.Module, image: Tensor) -> tuple[Tensor, dict[str, str]]:
    """The features of an image, and the name of the norm that follows each convolution."""
    outputs: dict[int, tuple[str, Tensor]] = {}  # holds the tensors, so that no id is reused
    calls: Counter[str] = Counter()
    pairs: dict[str, str] = {}

    def add_hook(name: str, module: nn.Module) -> RemovableHandle:
        def record(_module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            calls[name] += 1
            if isinstance(module, nn.Conv2d):
                outputs[id(output)] = name, output
            elif id(inputs[0]) in outputs:
                pairs[outputs[id(inputs[0])][0]] = name

        return module.register_forward_hook(record)

    hooks = [
        add_hook(name, module)
        for name, module in network.named_modules()
        if isinstance(module, nn.Conv2d)
        or (isinstance(module, nn.BatchNorm2d) and module.running_mean is not None)
    ]
    features = pooled_features(network(image))
    for hook in hooks:
        hook.remove()
    # A module that is called twice cannot be folded, because both calls share its parameters.
    return features, {
        convolution: norm
        for convolution, norm in pairs.items()
        if calls[convolution] == calls[norm] == 1
    }


def _fold(network: nn.Module, convolution: str, norm: str) -> None:
    before = cast(nn.Conv2d, network.get_submodule(convolution))
    after = cast(nn.BatchNorm2d, network.get_submodule(norm))
    network.set_submodule(convolution, fuse_conv_bn_eval(before, after))
    # Normalisation layers in timm contain dropout and activation and call them in this order.
    rest = [module for module in after.children() if not isinstance(module, nn.Identity)]
    network.set_submodule(norm, nn.Sequential(*rest))


@dataclass(eq=False)  # Not frozen: the attributes of the Backbone protocol are settable.
class FrozenNetwork:
    """A backbone that wraps a module in eval mode.

    Attributes:
        weights_sha256: Hex SHA-256 of the weights file, or `random`.
        network: Module that maps images to features of shape (samples, feature_dim).
        graph: File in which the graph of the network for ONNX Runtime is kept, or would be; None
            where it has none.
    """

    name: str
    feature_dim: int
    preprocessing: Preprocessing
    weights_sha256: str
    network: nn.Module
    precision: torch.dtype
    memory_format: torch.memory_format
    flip: bool = False
    one_core: bool = False
    graph: Path | None = None

    @property
    def is_convolutional(self) -> bool:
        """Whether PyTorch runs it as a network of convolutions, with the channels last."""
        return self.memory_format == torch.channels_last

    def run_by(self, network: OnnxNetwork) -> Self:
        """The same backbone whose network ONNX Runtime runs."""
        return replace(self, network=network, memory_format=torch.contiguous_format, one_core=True)

    def encode(self, images: Tensor) -> Tensor:
        """Float32 features of normalised images.

        Shape (samples, 3, height, width) to (samples, feature_dim).
        """
        with torch.inference_mode(), full_float32():
            images = images.to(dtype=self.precision, memory_format=self.memory_format)
            features = self._forward(images)
            if not self.flip:
                return features
            # One pass for each view and not one for both, which would take twice the memory.
            return (features + self._forward(images.flip(3))) / 2

    def _forward(self, images: Tensor) -> Tensor:
        return pooled_features(self.network(images)).to(torch.float32)


def freeze(
    name: str,
    network: nn.Module,
    preprocessing: Preprocessing,
    weights: Path | None,
    options: BackboneOptions,
) -> FrozenNetwork:
    """Moves a network to its device and precision, and measures its feature dimension.

    It maps normalised images to features, on the CPU. Random weights have no file.

    Raises:
        BackboneError: The options ask for another input than the network takes, or it returns no
            vector.
    """
    require_size(name, preprocessing.size, options)
    # A vision transformer has a single convolution, the patch embedding. Convolutional networks
    # run faster with the channels last.
    convolutions = sum(isinstance(module, nn.Conv2d) for module in network.modules())
    memory_format = torch.channels_last if convolutions > 1 else torch.contiguous_format
    network = network.eval().requires_grad_(requires_grad=False)
    network = fold_norms(network, preprocessing.shape)
    network = network.to(device=options.device, dtype=options.input_precision)
    network = network.to(memory_format=memory_format)
    backbone = FrozenNetwork(
        name=name,
        feature_dim=0,
        preprocessing=preprocessing,
        weights_sha256="random" if weights is None else file_sha256(weights),
        network=network,
        precision=options.input_precision,
        memory_format=memory_format,
        flip=options.flip,
        one_core=isinstance(network, OnnxNetwork),
    )
    image = torch.zeros(1, 3, *preprocessing.shape, device=options.device)
    shape = backbone.encode(image).shape
    if len(shape) != 2:  # noqa: PLR2004
        raise BackboneError(
            f"{name} returns features of shape {tuple(shape)} for one image, expected one vector"
        )
    backbone.feature_dim = shape[1]
    return backbone


def runtime_of(backbone: Backbone) -> str | None:
    """The library that runs a backbone, where that is another one than PyTorch."""
    is_onnx = isinstance(backbone, FrozenNetwork) and isinstance(backbone.network, OnnxNetwork)
    return ONNX_RUNTIME if is_onnx else None
