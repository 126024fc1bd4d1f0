"""Folds batch normalisation into the preceding convolution, which saves a pass over memory."""

import copy
from collections import Counter
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils.hooks import RemovableHandle

TOLERANCE = 1e-3
"""Largest difference that counts as rounding, as a share of the largest feature."""


def pooled_features(output: Tensor | Sequence[Tensor]) -> Tensor:
    """The pooled features in a network's output; some networks return their tokens as well."""
    return output if isinstance(output, Tensor) else output[0]


def fold_norms(network: nn.Module, size: int) -> nn.Module:
    """Folds the batch normalisations of a network into their convolutions, for inference.

    A forward pass of one image shows which normalisation follows which convolution. If the
    features change by more than rounding, the original network is returned.

    Args:
        network: Network in eval mode, on the CPU, in fp32.
        size: Side of its input images, in pixels.

    Returns:
        A folded copy, or the network itself if there is nothing to fold.
    """
    if not any(isinstance(module, nn.BatchNorm2d) for module in network.modules()):
        return network
    image = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    folded = copy.deepcopy(network)
    with torch.no_grad():
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
