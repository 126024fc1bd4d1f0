"""A network that ONNX Runtime runs, by its graph, on the core of the calling thread.

On CPUs it is several times as fast as PyTorch with small convolutional networks.
"""

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from difficulty_service.backbones.backbone import BackboneOptions

ONNX_RUNTIME = "onnxruntime"
"""What the provenance of features calls it."""


def onnx_runtime_version() -> str:
    """Version of ONNX Runtime."""
    from onnxruntime import __version__

    return str(__version__)


def suits_onnx(options: BackboneOptions) -> bool:
    """Whether a network runs by ONNX Runtime: in float32, on a CPU, where the package is there."""
    return options.precision == torch.float32 and has_onnx(options.device)


def has_onnx(device: torch.device) -> bool:
    """Whether ONNX Runtime can run networks of a device: on a CPU, where the package is there."""
    return device.type == "cpu" and find_spec("onnxruntime") is not None


class OnnxNetwork(nn.Module):
    """Maps images to features by a graph with one input and one output.

    Several threads may call it at once, and each uses its own core: threads of ONNX Runtime would
    wait for each other after every layer.
    """

    def __init__(self, graph: Path | bytes) -> None:
        from onnxruntime import InferenceSession, SessionOptions

        super().__init__()
        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        # Its own store of memory keeps more than the layers need, for as long as the session lives.
        options.enable_cpu_mem_arena = False
        self._session = InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        (self._input,) = (each.name for each in self._session.get_inputs())

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, 3, height, width) to (samples, feature_dim), both float32 on the CPU."""
        (features,) = self._session.run(None, {self._input: images.numpy()})
        return torch.from_numpy(features)
