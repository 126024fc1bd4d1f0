"""Reads weights files without running code, and checks that they fit a network."""

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from torch import Tensor, nn

from difficulty_service.base.errors import BackboneError
from difficulty_service.base.pytorch_files import read_checkpoint

SHOWN_NAMES = 5
PYTORCH_SIGNATURES = (b"PK\x03\x04", b"\x80")
SAFETENSORS_HEADER = 8
NESTED_UNDER = ("state_dict", "model_state_dict", "model")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors or PyTorch file, by name, on the CPU; its code is never run."""
    try:
        with path.open("rb") as file:
            head = file.read(SAFETENSORS_HEADER + 1)
        # A safetensors file starts with a length, which may look like the start of a pickle.
        is_pytorch = head.startswith(PYTORCH_SIGNATURES) and head[SAFETENSORS_HEADER:] != b"{"
        tensors = read_pytorch(path) if is_pytorch else safetensors.torch.load_file(path)
    except BackboneError:
        raise
    except Exception as error:
        # On damaged files both readers raise many types of errors, IndexError among them.
        reason = " ".join(str(error).split())[:200]
        raise BackboneError(
            f"{path} is neither a safetensors file nor a PyTorch file of tensors: {reason}"
        ) from error
    if not tensors:
        raise BackboneError(f"{path} holds no tensors")
    return tensors


def read_pytorch(path: Path) -> dict[str, Tensor]:
    """Tensors of a PyTorch file, which may be nested in a training checkpoint."""
    content = read_checkpoint(path)
    for key in NESTED_UNDER:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
            break
    if not isinstance(content, dict):
        raise BackboneError(f"{path} holds a {type(content).__name__}, expected tensors by name")
    tensors = {name: value for name, value in content.items() if isinstance(value, Tensor)}
    if all(name.startswith("module.") for name in tensors):
        return {name.removeprefix("module."): value for name, value in tensors.items()}
    return tensors


def load_checked(network: nn.Module, weights: Mapping[str, Tensor], what: str) -> None:
    """Loads weights after checking that they fit by name and shape; an error tells what differs."""
    difference = describe_difference(network.state_dict(), weights)
    if difference:
        raise BackboneError(f"{what}: the weights are of another network\n{difference}")
    network.load_state_dict(dict(weights))


def describe_difference(expected: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> str:
    """Why weights do not fit a network, one line for each reason; empty if they fit."""
    missing = [
        f"{name} {shape_of(tensor)}" for name, tensor in expected.items() if name not in weights
    ]
    unexpected = [
        f"{name} {shape_of(tensor)}" for name, tensor in weights.items() if name not in expected
    ]
    reshaped = [
        f"{name} {shape_of(weights[name])} instead of {shape_of(tensor)}"
        for name, tensor in expected.items()
        if name in weights and weights[name].shape != tensor.shape
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": reshaped}
    lines = []
    for kind, names in kinds.items():
        if names:
            rest = ", ..." if len(names) > SHOWN_NAMES else ""
            lines.append(
                f"  {len(names)} {kind} (of {len(expected)}): "
                f"{', '.join(names[:SHOWN_NAMES])}{rest}"
            )
    return "\n".join(lines)


def shape_of(tensor: Tensor) -> str:
    """The shape as `768x3x16x16`, or `scalar`."""
    return "x".join(map(str, tensor.shape)) or "scalar"
