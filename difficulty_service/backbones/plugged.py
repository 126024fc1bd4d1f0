"""Backbones that other packages offer: `PREFIX:NAME`, found by their entry points.

An entry point in the group `difficulty.backbones` has the prefix as its name, and is a function
of one parameter: it takes what follows the colon, and returns a `PluggedNetwork` or raises a
`DifficultyError`. A package so offers its networks without importing this one.

The names of these backbones may be those of files of this machine. Only `load_backbone` knows
them: `find_loader`, by which the service checks what a job asks for, does not.
"""

import inspect
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from difficulty_service.base.entry_points import entry_points_of
from difficulty_service.base.errors import BackboneError, DifficultyError
from difficulty_service.base.plugins import entry_point_of

if TYPE_CHECKING:
    from torch import nn

    from difficulty_service.backbones.backbone import Backbone, BackboneOptions

PLUGIN_GROUP = "difficulty.backbones"


class PluggedNetwork(Protocol):
    """A network of another package.

    Attributes:
        reference: What stands behind the prefix in its full name, from which any process of this
            machine can load it again.
        network: Module that maps normalised images to features of shape (samples, dim), on the
            CPU and in fp32.
        weights: File of its parameters, whose hash identifies them.
        size: As in `Preprocessing`, like the fields that follow.
    """

    reference: str
    network: "nn.Module"
    weights: Path
    size: int
    resize: int
    interpolation: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


def find_plugin(name: str) -> EntryPoint | None:
    """The entry point that the prefix of a name stands for; None if no package has it."""
    return entry_point_of(PLUGIN_GROUP, name)


def plugin_patterns() -> list[str]:
    """The names that installed packages offer, as `PREFIX:NAME`; loads none of them."""
    return [f"{prefix}:NAME" for prefix in sorted(entry_points_of(PLUGIN_GROUP).names)]


def list_plugins() -> list[tuple[str, str]]:
    """The pattern of the names of each plug-in, with the first line of its function's docstring."""
    listed = []
    for plugin in sorted(entry_points_of(PLUGIN_GROUP)):
        function = plugin.load()
        (parameter, *_) = inspect.signature(function).parameters
        description = (inspect.getdoc(function) or "").partition("\n")[0].rstrip(".")
        listed.append((f"{plugin.name}:{parameter.upper()}", description))
    return listed


def load_plugged(name: str, plugin: EntryPoint, options: "BackboneOptions") -> "Backbone":
    """A network of another package as a backbone."""
    from difficulty_service.backbones.backbone import Preprocessing, no_projection
    from difficulty_service.backbones.frozen_network import freeze

    if options.features != "penultimate":
        raise no_projection(name)
    if options.weights is not None or options.random:
        raise BackboneError.leave_out(f"{name} has weights of its own", "weights")
    try:
        plugged: PluggedNetwork = plugin.load()(name.partition(":")[2])
    except DifficultyError as error:
        raise BackboneError(
            f"{name}: {error.problem}", *error.remedy, parameter="backbone"
        ) from error
    preprocessing = Preprocessing(
        plugged.size, plugged.resize, plugged.interpolation, plugged.mean, plugged.std
    )
    full_name = f"{plugin.name}:{plugged.reference}"
    return freeze(full_name, plugged.network, preprocessing, plugged.weights, options)
