"""Weights files: where they are found, how they are read safely and checked against a network."""

import hashlib
import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from difficulty_service.errors import BackboneError

SHOWN_NAMES = 5
HUB_TIMEOUT_SECONDS = 10
PYTORCH_SIGNATURES = (b"PK\x03\x04", b"\x80")
SAFETENSORS_HEADER = 8
NESTED_UNDER = ("state_dict", "model_state_dict", "model")
SAFETENSORS_REMEDY = "convert it to safetensors with the code that made it"


def locate_weights(
    given: str | None, backbone: str, repository: str, filenames: Sequence[str]
) -> Path:
    """The weights file to read: the given one, the hub's from its cache, or downloaded now.

    Args:
        given: A path that replaces the hub's file, or None.
        backbone: Its name, for messages.
        repository: On the Hugging Face hub, as `owner/name`.
        filenames: Names the file may have there, the preferred one first.

    Raises:
        BackboneError: The given path is no file; or the file is not cached and cannot be had.
    """
    if given is None:
        return cached_weights(repository, filenames) or download(backbone, repository, filenames)
    path = Path(given)
    if not path.is_file():
        raise BackboneError(f"--weights {given}: no such file; expected the weights of {backbone}")
    return path


def cached_weights(repository: str, filenames: Sequence[str]) -> Path | None:
    """The file in the hub's cache, without asking the network."""
    from huggingface_hub import try_to_load_from_cache

    for filename in filenames:
        path = try_to_load_from_cache(repository, filename)
        if isinstance(path, str):
            return Path(path)
    return None


def download(backbone: str, repository: str, filenames: Sequence[str]) -> Path:
    """Downloads the first of `filenames` that the repository holds.

    Raises:
        BackboneError: No network, no access, or none of the files is there.
    """
    import httpx2
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, RemoteEntryNotFoundError

    reason = "the repository has no such file"
    for filename in filenames:
        try:
            # The download itself retries for half a minute without a network; this asks once.
            get_hf_file_metadata(hf_hub_url(repository, filename), timeout=HUB_TIMEOUT_SECONDS)
            return Path(hf_hub_download(repository, filename))
        except RemoteEntryNotFoundError:
            continue
        except (OSError, httpx2.HTTPError, HfHubHTTPError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            break
    raise BackboneError(
        f"the weights of {backbone} are not here: file {' or '.join(filenames)} of repository "
        f"{repository} is not in the cache folder {constants.HF_HUB_CACHE} and cannot be "
        f"downloaded ({reason}). Run this once where there is a network and copy the cache "
        "folder, or give a file of these weights by --weights FILE"
    )


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors by name, on the CPU; code inside the file is never run.

    Args:
        path: A safetensors file, or a PyTorch file of tensors, told apart by content.

    Raises:
        BackboneError: The file is damaged, holds no tensors, or could only be read by running
            code from it.
    """
    try:
        with path.open("rb") as file:
            head = file.read(SAFETENSORS_HEADER + 1)
        # A safetensors file begins with a length, which may look like the start of a pickle.
        is_pytorch = head.startswith(PYTORCH_SIGNATURES) and head[SAFETENSORS_HEADER:] != b"{"
        tensors = read_pytorch(path) if is_pytorch else safetensors.torch.load_file(path)
    except BackboneError:
        raise
    except Exception as error:
        # Damaged files make either reader stumble in its own way, over an index among others.
        reason = " ".join(str(error).split())[:200]
        raise BackboneError(
            f"{path} is neither a safetensors file nor a PyTorch file of tensors: {reason}"
        ) from error
    if not tensors:
        raise BackboneError(f"{path} holds no tensors")
    return tensors


def read_pytorch(path: Path) -> dict[str, Tensor]:
    """Tensors of a PyTorch file, also where they are nested in a training checkpoint.

    Raises:
        BackboneError: The file holds more than tensors and plain containers, or a program.
    """
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Torch remarks on its own older formats.
            # By a file, not a path: a path ending in .safetensors would be read as such.
            found = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise BackboneError(
            f"{path} can only be read by running code from it, which is refused; "
            f"{SAFETENSORS_REMEDY}"
        ) from error
    except RuntimeError as error:
        if "TorchScript" not in str(error):
            raise
        raise BackboneError(
            f"{path} is a TorchScript program, not a file of tensors; {SAFETENSORS_REMEDY}"
        ) from error
    for key in NESTED_UNDER:
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
            break
    if not isinstance(found, dict):
        raise BackboneError(f"{path} holds a {type(found).__name__}, expected tensors by name")
    tensors = {name: value for name, value in found.items() if isinstance(value, Tensor)}
    if all(name.startswith("module.") for name in tensors):
        return {name.removeprefix("module."): value for name, value in tensors.items()}
    return tensors


def load_checked(network: nn.Module, weights: Mapping[str, Tensor], what: str) -> None:
    """Loads weights that fit by name and shape.

    Args:
        network: Gets the weights, in its own dtype.
        weights: Tensors by name.
        what: The file and the network, to begin a message with.

    Raises:
        BackboneError: They do not fit; the message holds the difference.
    """
    difference = describe_difference(network.state_dict(), weights)
    if difference:
        raise BackboneError(f"{what}: the weights are of another network\n{difference}")
    network.load_state_dict(dict(weights))


def describe_difference(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str:
    """What keeps weights from fitting a network, one kind a line; empty where nothing does."""
    missing = [
        f"{name} {shape_of(tensor)}" for name, tensor in expected.items() if name not in found
    ]
    unexpected = [
        f"{name} {shape_of(tensor)}" for name, tensor in found.items() if name not in expected
    ]
    reshaped = [
        f"{name} {shape_of(found[name])} instead of {shape_of(tensor)}"
        for name, tensor in expected.items()
        if name in found and found[name].shape != tensor.shape
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


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of the file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
