"""Graphs of convolutional networks for ONNX Runtime, each exported once and kept in a cache.

A graph is used where its features are those of PyTorch and it is faster, both on one batch of
images when it is made. Beside it is a record of that, or of why there is no graph. Files appear
whole, a damaged one counts as absent, and one process at a time makes a graph.
"""

import hashlib
import json
import platform
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import cast

import torch
from filelock import FileLock
from torch import Tensor, nn

from difficulty_service.backbones.backbone import Size
from difficulty_service.backbones.frozen_network import FrozenNetwork, pooled_features
from difficulty_service.backbones.onnx_network import OnnxNetwork, onnx_runtime_version
from difficulty_service.base.checksums import dump_checked, load_checked
from difficulty_service.base.contract import Contract
from difficulty_service.base.errors import MissingPackage
from difficulty_service.base.extras import needs_extra
from difficulty_service.base.files import replacing

FORMAT_VERSION = 1

LARGEST_DIFFERENCE = 1e-5
"""Largest difference between the features of both, as a share of the largest feature."""

LEAST_SPEEDUP = 1.2
"""How many times as fast ONNX Runtime must be: less does not pay for another rounding."""

ROUNDS = 3
LOCK_SECONDS = 300.0


class GraphRecord(Contract):
    """What is known of the graph of a network on a kind of machine."""

    graph_sha256: str | None = None
    """SHA-256 of the graph; absent where there is none."""
    torch: float | None = None
    """Images per core-second of PyTorch; absent where there is no graph."""
    onnxruntime: float | None = None
    """The same of ONNX Runtime."""
    failure: str | None = None
    """Why there is no graph."""

    @property
    def speedup(self) -> float:
        """How many times as fast ONNX Runtime is; 0 where there is no graph."""
        return (self.onnxruntime or 0.0) / (self.torch or 1.0)

    @property
    def is_faster(self) -> bool:
        """Whether the graph is there and fast enough to be used."""
        return self.graph_sha256 is not None and self.speedup >= LEAST_SPEEDUP


@dataclass(frozen=True)
class KeptGraph:
    """A record, and the graph that it is of; None where it is not to be used."""

    record: GraphRecord
    graph: bytes | None


def graph_file(model: str, size: Size, weights_sha256: str) -> Path:
    """Where the graph of a network of timm is kept: with what else the hub's libraries make.

    Another machine or version may be faster by another library, or export another graph.

    Args:
        size: Size of the input.
    """
    from huggingface_hub import constants

    identity = {
        "format": FORMAT_VERSION,
        "model": model,
        "size": size,
        "weights": weights_sha256,
        "torch": torch.__version__,
        "timm": version("timm"),
        "onnxruntime": onnx_runtime_version(),
        "machine": [platform.machine(), torch.backends.cpu.get_cpu_capability()],
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    architecture = model.partition(".")[0]
    folder = Path(constants.HF_ASSETS_CACHE) / "difficulty-service" / "onnx"
    sides = size if isinstance(size, int) else "x".join(map(str, size))
    return folder / f"{architecture}-{sides}-{digest[:32]}.onnx"


def run_fastest(backbone: FrozenNetwork, model: str) -> FrozenNetwork:
    """A convolutional network of timm, by its graph where one is kept that is faster.

    Its weights are of a file, and it is on the CPU in float32. Others stay as they are.
    """
    if not backbone.is_convolutional:
        return backbone
    backbone.graph = graph_file(model, backbone.preprocessing.size, backbone.weights_sha256)
    kept = read_graph(backbone.graph)
    return backbone if kept is None else run_kept(backbone, kept)


def run_kept(backbone: FrozenNetwork, kept: KeptGraph) -> FrozenNetwork:
    """The backbone by the graph where that is to be used."""
    return backbone if kept.graph is None else backbone.run_by(OnnxNetwork(kept.graph))


def read_record(path: Path) -> GraphRecord | None:
    """The record of a graph; None where there is none or it is damaged."""
    try:
        return GraphRecord.of(load_checked(_record_file(path).read_text()))
    except (OSError, ValueError):
        return None


def read_graph(path: Path) -> KeptGraph | None:
    """What is kept of a graph; None where nothing is, or where a file is damaged."""
    record = read_record(path)
    if record is None:
        return None
    if not record.is_faster:
        return KeptGraph(record, None)
    with suppress(OSError):
        graph = path.read_bytes()
        if hashlib.sha256(graph).hexdigest() == record.graph_sha256:
            return KeptGraph(record, graph)
    return None


def settle_graph(backbone: FrozenNetwork, path: Path, images: Tensor) -> KeptGraph:
    """The graph of a network that PyTorch runs: the one that is kept, else a new one.

    Args:
        path: Where it is kept.
        images: Normalised images, by which both are compared. Shape (samples, 3, height, width).

    Raises:
        MissingPackage: A package that exports graphs is not installed.
        OSError: The graph cannot be kept there, or another process takes too long to make it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock"), timeout=LOCK_SECONDS):
        kept = read_graph(path)
        if kept is None:
            kept = _make_graph(backbone, images)
            if kept.graph is not None:
                with replacing(path) as temporary:
                    temporary.write_bytes(kept.graph)
            with replacing(_record_file(path)) as temporary:
                temporary.write_text(dump_checked(kept.record.to_json(), indent=1))
    return kept


def _record_file(path: Path) -> Path:
    return path.with_suffix(".json")


def _make_graph(backbone: FrozenNetwork, images: Tensor) -> KeptGraph:
    """Exports a network, and compares features and speed."""
    try:
        graph = export_graph(backbone.network, images)
        by_graph = backbone.run_by(OnnxNetwork(graph))
        difference = _difference(backbone, by_graph, images)
    except (MissingPackage, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - exporters raise errors of any type
        return KeptGraph(GraphRecord(failure=_reason(error)), None)
    if not difference <= LARGEST_DIFFERENCE:  # also where it is no number
        failure = f"its features differ by {difference:.1g} of the largest"
        return KeptGraph(GraphRecord(failure=failure), None)
    by_torch, by_onnx = core_rates([backbone, by_graph], images)
    record = GraphRecord(
        graph_sha256=hashlib.sha256(graph).hexdigest(), torch=by_torch, onnxruntime=by_onnx
    )
    return KeptGraph(record, graph if record.is_faster else None)


class _Features(nn.Module):
    """The pooled features of a network, which may return its tokens as well."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return pooled_features(self.network(images))


def export_graph(network: nn.Module, images: Tensor) -> bytes:
    """A network as the ONNX file that maps any number of images of one size to features."""
    with needs_extra("exporting a network for ONNX Runtime", "cpu"):
        import onnxscript  # noqa: F401 - torch.onnx imports it
    samples = torch.export.Dim("samples")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # about its own code
        exported = torch.onnx.export(
            _Features(network).eval(),
            (images[:2],),
            input_names=["images"],
            output_names=["features"],
            dynamic_shapes=({0: samples},),
            dynamo=True,
            verbose=False,
        )
    graph: bytes = cast(torch.onnx.ONNXProgram, exported).model_proto.SerializeToString()
    return graph


def _difference(one: FrozenNetwork, other: FrozenNetwork, images: Tensor) -> float:
    """Largest difference of features as a share of the largest, of a batch and of one image."""
    expected = one.encode(images)
    found = torch.cat([other.encode(images), other.encode(images[:1])])
    differences = (found - torch.cat([expected, expected[:1]])).abs()
    return float(differences.max() / expected.abs().max().clamp(min=1e-30))


def core_rates(backbones: Sequence[FrozenNetwork], images: Tensor) -> list[float]:
    """Images per second of each on one core, the best of some rounds in which they take turns.

    Time in which other work has the core does not count.
    """
    threads = torch.get_num_threads()

    def measure() -> list[float]:
        torch.set_num_threads(1)
        try:
            rounds = [[_core_seconds(each, images) for each in backbones] for _ in range(ROUNDS)]
        finally:
            torch.set_num_threads(threads)  # threads that begin later would have one core as well
        return [round(len(images) / min(times), 1) for times in zip(*rounds, strict=True)]

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(measure).result()


def _core_seconds(backbone: FrozenNetwork, images: Tensor) -> float:
    began = time.thread_time()
    backbone.encode(images)
    return max(time.thread_time() - began, 1e-9)


def _reason(error: BaseException) -> str:
    """The first cause of an error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
