"""Files that `torch.save` wrote, read without running code from them."""

import argparse
import pickle
import warnings
from pathlib import Path

import torch

from difficulty_service.base.errors import BackboneError

SAFETENSORS_REMEDY = "convert it to safetensors with the code that made it"


def read_checkpoint(path: Path) -> object:
    """What a PyTorch file holds, of tensors, plain values and parsed arguments; no code is run."""
    try:
        with (
            path.open("rb") as file,
            warnings.catch_warnings(),
            # Timm keeps the arguments of a training in its checkpoints, which are plain values.
            torch.serialization.safe_globals([argparse.Namespace]),
        ):
            warnings.simplefilter("ignore")  # Torch warns about its own older formats.
            # A file, not a path: torch would read a path that ends in .safetensors as such.
            content: object = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise BackboneError(
            f"{path} can only be read by running code from it, which is refused",
            SAFETENSORS_REMEDY,
            parameter="weights",
        ) from error
    except RuntimeError as error:
        if "TorchScript" not in str(error):
            raise
        raise BackboneError(
            f"{path} is a TorchScript program, not a file of tensors",
            SAFETENSORS_REMEDY,
            parameter="weights",
        ) from error
    return content
