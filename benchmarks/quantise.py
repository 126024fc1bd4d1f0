"""Writes the graph in eight bits of the encoder of photographs, with the ranges of some images.

    python -m benchmarks.quantise difficulty_service/backbones/builtin_photos TABLE.parquet...

The folder holds the weights. Each table has a column `image` of encoded images, of which 48, evenly
spaced, measure the ranges and the biases. The file in the package is of
`data/tiny_imagenet_val2000.parquet` and `data/cifar10_train_1.parquet` of the real data, without
their labels, made with torch 2.15.0 and onnx 1.23.2 for ONNX Runtime 1.32.0.
"""

import argparse
import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from difficulty_service.backbones.builtin_photos import PREPROCESSING
from difficulty_service.backbones.builtin_photos.eight_bits import graph_of, quantise
from difficulty_service.backbones.builtin_photos.network import PhotoEncoder
from difficulty_service.backbones.weights import load_checked, read_weights
from difficulty_service.backbones.weights_files import PHOTO_INT8_GRAPH, PHOTO_WEIGHTS
from difficulty_service.images.preparation import normalise, prepare

IMAGES_EACH = 48


def measuring_images(tables: Sequence[Path]) -> Tensor:
    """Normalised images, evenly spaced, of each table. Shape (samples, 3, SIZE, SIZE)."""
    images: list[bytes] = []
    for table in tables:
        column = pq.read_table(table, columns=["image"])["image"]
        rows = np.linspace(0, len(column) - 1, IMAGES_EACH).astype(int)
        images += [column[row].as_py() for row in rows.tolist()]
    return normalised(images)


def normalised(images: Sequence[bytes]) -> Tensor:
    """Encoded images as the input of the network. Shape (samples, 3, SIZE, SIZE)."""
    views = [prepare(partial(io.BytesIO, each), PREPROCESSING) for each in images]
    return normalise(torch.stack(views), PREPROCESSING, torch.float32).contiguous()


def main() -> None:
    """Writes the graph into the folder of the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tables", type=Path, nargs="+")
    arguments = parser.parse_args()
    network = PhotoEncoder().eval()
    weights = arguments.folder / PHOTO_WEIGHTS.name
    load_checked(network, read_weights(weights), str(weights))
    graph = graph_of(weights, quantise(network, measuring_images(arguments.tables)))
    (arguments.folder / PHOTO_INT8_GRAPH.name).write_bytes(graph.SerializeToString())


if __name__ == "__main__":
    main()
