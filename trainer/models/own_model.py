"""Networks from outside the package."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from difficulty_service.base.errors import ConfigError
from trainer.own_code import Settings, find_own, settings_of
from trainer.samples import InputSpec

RESERVED = ("num_classes", "spec")
"""Parameters of a builder that are no options."""


def own_options(name: str) -> Settings:
    """The options of a network from outside the package."""
    own = find_own(name)
    parameters = settings_of(own, ())
    takes_it = "num_classes" in parameters.defaults or parameters.takes_any
    if not takes_it and not isinstance(own, nn.Module):
        raise ConfigError(
            f"model {name!r} does not take num_classes, the number of logits",
            "give it a parameter of that name",
        )
    return settings_of(own, RESERVED)


def own_model(name: str, spec: InputSpec, num_classes: int, **options: object) -> nn.Module:
    """Builds a network from outside the package, or copies one that is built.

    Args:
        name: Name in a recipe of a class or function that takes `num_classes` by name, and perhaps
            `spec`, or of a network.
        spec: Specification of the inputs.
        num_classes: Number of logits.
        **options: Options of the class or function.

    Returns:
        A network from normalised inputs to logits.
    """
    own = find_own(name)
    if isinstance(own, nn.Module):
        return copy.deepcopy(own)  # so that the next run starts from the same parameters
    given: Mapping[str, Any] = {"num_classes": num_classes}
    if "spec" in settings_of(own, ()).defaults:
        given = {**given, "spec": spec}
    network = own(**given, **options)
    if not isinstance(network, nn.Module):
        raise ConfigError(
            f"model {name!r} makes an object of type {type(network).__name__}",
            "let it return a torch.nn.Module",
        )
    return network


def require_logits(model: nn.Module, name: str, spec: InputSpec, num_classes: int) -> None:
    """Tries a network from outside the package on two blank samples."""
    is_image = len(spec.shape) == 3  # noqa: PLR2004 - channels, height and width
    dtype = torch.uint8 if is_image else torch.int64 if spec.vocabulary else torch.float32
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    if spec.shape:
        blank = torch.zeros((2, *spec.shape), dtype=dtype, device=device)
    else:
        # Two trees of one word each.
        blank = torch.tensor([[0, -1, -1, 0, 0], [0, -1, -1, 0, 1]], device=device)
    training = model.training
    model.eval()  # leaves the statistics of batch normalisation as they are
    try:
        with torch.no_grad():
            logits = model(blank)
    except Exception as error:  # whatever the network does
        raise ConfigError(
            f"model {name!r} cannot take a batch of samples of shape {spec.shape} "
            f"({type(error).__name__}: {error})"
        ) from error
    finally:
        model.train(training)
    if getattr(logits, "shape", None) != (2, num_classes):
        found = f"shape {tuple(logits.shape)}" if hasattr(logits, "shape") else type(logits)
        raise ConfigError(
            f"model {name!r} returns {found} for 2 samples of {num_classes} classes",
            f"let it return a tensor of shape (2, {num_classes})",
        )
