"""The small encoder whose weights are part of the package, for work without a network."""

from pathlib import Path

from difficulty_service.backbones.backbone import (
    Backbone,
    BackboneOptions,
    Preprocessing,
    no_projection,
)
from difficulty_service.backbones.frozen_network import freeze
from difficulty_service.backbones.weights import load_checked, read_weights
from difficulty_service.backbones.weights_files import BUILTIN_WEIGHTS
from difficulty_service.base.errors import BackboneError, Setting

PREPROCESSING = Preprocessing(
    size=32,
    resize=32,
    interpolation="bicubic",
    mean=(0.5071, 0.4866, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)


def load_builtin(name: str, options: BackboneOptions) -> Backbone:
    """The encoder with the weights in the package, or with others from its training script."""
    from difficulty_service.backbones.builtin.network import BuiltinEncoder

    if options.features != "penultimate":
        raise no_projection(name)
    path = BUILTIN_WEIGHTS if options.weights is None else Path(options.weights)
    if not path.is_file():
        problem = f"the weights of {name} are not at {path}"
        if options.weights is None:
            raise BackboneError(problem, "install the package again")
        raise BackboneError(problem, "check ", Setting("weights"), parameter="weights")
    network = BuiltinEncoder().fold()
    if options.random:
        return freeze(name, network, PREPROCESSING, None, options)
    load_checked(network, read_weights(path), f"{path} as {name}")
    return freeze(name, network, PREPROCESSING, path, options)
