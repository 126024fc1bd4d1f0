"""Batch normalisation absorbed by the convolution before it: one pass over memory less a layer."""

import copy
from collections import Counter
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils.hooks import RemovableHandle

TOLERANCE = 1e-3
"""Of the largest feature. Rounding stays far below it, a wrong fold far above."""


def pooled_features(output: Tensor | Sequence[Tensor]) -> Tensor:
    """Features of a network's output: those that also return their tokens put the pooled first."""
    return output if isinstance(output, Tensor) else output[0]


def fold_norms(network: nn.Module, size: int) -> nn.Module:
    """A network for inference with its batch normalisations folded into their convolutions.

    Which normalisation follows which convolution is seen by watching one image pass. Features
    change by rounding only; a network where they would change by more is returned as it was.

    Args:
        network: In eval mode, on the CPU, in fp32.
        size: Side of its input images, in pixels.

    Returns:
        A folded copy, or the network itself where there is nothing to fold.
    """
    if not any(isinstance(module, nn.BatchNorm2d) for module in network.modules()):
        return network
    image = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    folded = copy.deepcopy(network)
    with torch.no_grad():
        before, pairs = _watch(folded, image)
        for convolution, norm in pairs.items():
            _fold(folded, convolution, norm)
        after = pooled_features(folded(image))
    tolerance = TOLERANCE * float(before.abs().max())
    same = torch.allclose(after, before, rtol=0, atol=tolerance)
    return folded if pairs and same else network


def _watch(network: nn.Module, image: Tensor) -> tuple[Tensor, dict[str, str]]:
    """The features of an image, and each convolution's name with that of the norm it feeds."""
    made: dict[int, tuple[str, Tensor]] = {}  # the outputs are kept, so their ids stay theirs
    calls: Counter[str] = Counter()
    pairs: dict[str, str] = {}

    def watch(name: str, module: nn.Module) -> RemovableHandle:
        def after(_module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            calls[name] += 1
            if isinstance(module, nn.Conv2d):
                made[id(output)] = name, output
            elif id(inputs[0]) in made:
                pairs[made[id(inputs[0])][0]] = name

        return module.register_forward_hook(after)

    hooks = [
        watch(name, module)
        for name, module in network.named_modules()
        if isinstance(module, nn.Conv2d)
        or (isinstance(module, nn.BatchNorm2d) and module.running_mean is not None)
    ]
    features = pooled_features(network(image))
    for hook in hooks:
        hook.remove()
    # What is used twice has no statistics of its own to absorb.
    return features, {
        convolution: norm
        for convolution, norm in pairs.items()
        if calls[convolution] == calls[norm] == 1
    }


def _fold(network: nn.Module, convolution: str, norm: str) -> None:
    before = cast(nn.Conv2d, network.get_submodule(convolution))
    after = cast(nn.BatchNorm2d, network.get_submodule(norm))
    network.set_submodule(convolution, fuse_conv_bn_eval(before, after))
    # timm's normalisations hold dropout and activation and call them, in this order, at the end.
    rest = [module for module in after.children() if not isinstance(module, nn.Identity)]
    network.set_submodule(norm, nn.Sequential(*rest))
