"""The parameters of a run's model on disk."""

from pathlib import Path

from torch import nn

from difficulty_service.errors import Setting, TrainingError
from difficulty_service.files.atomic_file import replacing
from difficulty_service.files.checked_safetensors import read_tensors, write_tensors
from trainer import run_folder


def write_parameters(path: Path, model: nn.Module) -> None:
    """Writes the parameters and buffers of a model; the file appears whole or not at all."""
    with replacing(path) as temporary:
        write_tensors(temporary, model.state_dict())


def load_parameters(model: nn.Module, folder: Path) -> None:
    """Gives a model the parameters of the finished run in the folder of a seed.

    Raises:
        TrainingError: The run is not finished, or its file is damaged.
    """
    path = folder / run_folder.MODEL
    try:
        model.load_state_dict(read_tensors(path)[0])
    except FileNotFoundError:
        raise TrainingError(
            f"{path} is missing", "finish the run with ", Setting("resume", value=True)
        ) from None
    except Exception as error:  # safetensors and torch raise kinds of their own
        raise TrainingError(f"{path} is damaged ({error})", "train again") from error
