"""The library that runs a convolutional network on a CPU: PyTorch, or ONNX Runtime where faster.

Exporting a network for ONNX Runtime takes some seconds, once for each network, size and machine,
so it waits for a dataset that is worth them.
"""

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.backbones.exported_graph import (
    GraphRecord,
    KeptGraph,
    read_graph,
    read_record,
    run_kept,
    settle_graph,
)
from difficulty_service.backbones.frozen_network import FrozenNetwork, runtime_of
from difficulty_service.base.errors import MissingPackage
from difficulty_service.extraction.batches import Preparation, make_group, prepare_batch
from difficulty_service.extraction.schedules import suitable_batch_size
from difficulty_service.extraction.task import ExtractionTask
from difficulty_service.images.preparation import normalise

LEAST_IMAGES = 2048
"""Number of images from which on an export takes less time than ONNX Runtime can save."""


@dataclass(frozen=True)
class SettledRuntime:
    """A backbone by the library that an extraction runs it with.

    Attributes:
        reason: The library and why it is that one; None where there was no choice.
        warnings: A sentence where the network could not be exported.
    """

    backbone: Backbone
    reason: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str | None:
        """The library, where that is another one than PyTorch."""
        return runtime_of(self.backbone)


def settle_runtime(task: ExtractionTask, backbone: Backbone, num_images: int) -> SettledRuntime:
    """The backbone by ONNX Runtime where that is faster; a network of convolutions on a CPU only.

    A graph that an earlier run has kept has been tried already. Otherwise, where there are images
    enough, the network is exported, and the first batch of the dataset goes through both.

    Args:
        num_images: Number of images that are new.
    """
    given = SettledRuntime(backbone)
    if not isinstance(backbone, FrozenNetwork) or backbone.graph is None:
        return given
    if given.name is not None:
        record = read_record(backbone.graph)
        return given if record is None else _explained(backbone, record)
    if num_images < LEAST_IMAGES:
        return given
    try:
        kept = read_graph(backbone.graph) or _make_graph(task, backbone, backbone.graph)
    except MissingPackage as error:
        return replace(given, reason=f"PyTorch: {error}")
    except (OSError, MemoryError) as error:
        return replace(given, reason=f"PyTorch, as its graph cannot be kept ({error})")
    return given if kept is None else _explained(run_kept(backbone, kept), kept.record)


def _make_graph(task: ExtractionTask, backbone: FrozenNetwork, path: Path) -> KeptGraph | None:
    images = first_images(task, backbone)
    return None if images is None else settle_graph(backbone, path, images)


def _explained(backbone: FrozenNetwork, record: GraphRecord) -> SettledRuntime:
    if record.failure is not None:
        warning = (
            f"{backbone.name} runs by PyTorch, as exporting it for ONNX Runtime failed: "
            f"{record.failure}"
        )
        return SettledRuntime(backbone, warnings=(warning,))
    times = f"{record.speedup:.1f} times as fast"
    if runtime_of(backbone) is None:
        return SettledRuntime(backbone, f"PyTorch, as ONNX Runtime is {times} here")
    return SettledRuntime(backbone, f"ONNX Runtime, which is {times} as PyTorch here")


def first_images(task: ExtractionTask, backbone: FrozenNetwork) -> Tensor | None:
    """The first batch of a dataset as the input of the network; None where no image can be read."""
    size = suitable_batch_size(torch.device("cpu"), backbone)
    samples = list(islice(task.dataset.read_shard(0), size))
    task = replace(task, options=task.options.plain(), known=None)
    batch = prepare_batch(make_group(0, samples, None), Preparation.of(task, backbone), None)
    if batch.values is None:
        return None
    return normalise(batch.values, backbone.preprocessing, torch.float32)
