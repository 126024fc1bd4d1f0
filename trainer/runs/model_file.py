"""The model of a run on disk: its parameters, and the network that they belong to."""

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from difficulty_service.base.checked_safetensors import read_tensors, write_tensors
from difficulty_service.base.errors import Setting, TrainingError
from difficulty_service.base.files import replacing
from trainer import run_folder
from trainer.config import ModelConfig, Recipe
from trainer.models import build_model, model_options
from trainer.recipes.file import recipe_from_dict
from trainer.samples import InputSpec

INITIAL_PARAMETERS = {"pretrained", "checkpoint", "embeddings"}
"""Options of models that only name the source of their initial parameters."""


@dataclass(frozen=True)
class SavedModel:
    """A model as a run saved it."""

    recipe: Recipe
    seed: int
    spec: InputSpec
    class_names: tuple[str, ...]
    model: nn.Module


def write_parameters(path: Path, model: nn.Module) -> None:
    """Writes the parameters and buffers of a model; the file appears whole or not at all."""
    with replacing(path) as temporary:
        write_tensors(temporary, model.state_dict())


def load_parameters(model: nn.Module, folder: Path) -> None:
    """Gives a model the parameters of the finished run in the folder of a seed."""
    path = folder / run_folder.MODEL
    try:
        model.load_state_dict(read_tensors(path)[0])
    except FileNotFoundError:
        raise TrainingError(
            f"{path} is missing", "finish the run with ", Setting("resume", value=True)
        ) from None
    except Exception as error:  # safetensors and torch raise kinds of their own
        raise TrainingError(f"{path} is damaged ({error})", "train again") from error


def read_model(folder: Path) -> SavedModel:
    """Builds the network of a finished run and gives it its parameters."""
    recipe, seed = read_recipe(folder)
    spec, class_names = run_folder.read_inputs(folder / run_folder.INPUTS)
    model = build_model(_without_files(recipe.model), spec, len(class_names))
    load_parameters(model, folder)
    return SavedModel(recipe, seed, spec, class_names, model)


def read_recipe(folder: Path) -> tuple[Recipe, int]:
    """The recipe and the number of a seed."""
    path = folder / run_folder.RECIPE
    description = run_folder.read_run(folder)
    try:
        recipe = recipe_from_dict(description["recipe"], str(path), in_sweep=True)
        return recipe, int(description["seed"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TrainingError(f"{path} is damaged ({error!r})", "train again") from error


def _without_files(config: ModelConfig) -> ModelConfig:
    """The same network without the files that its initial parameters came from."""
    options = {
        name: value for name, value in config.options.items() if name not in INITIAL_PARAMETERS
    }
    if "pretrained" in model_options(config.name):
        options["pretrained"] = False
    return config.model_copy(update={"options": options})
