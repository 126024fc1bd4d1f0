"""The small encoder that ships inside the package: no download, no network."""

from pathlib import Path

from difficulty_service.backbones.backbone import Backbone, BackboneOptions, Preprocessing
from difficulty_service.backbones.frozen_network import freeze
from difficulty_service.backbones.weights import load_checked, read_weights
from difficulty_service.errors import BackboneError

WEIGHTS_FILE = Path(__file__).with_name("encoder.safetensors")
PREPROCESSING = Preprocessing(
    size=32,
    resize=32,
    interpolation="bicubic",
    mean=(0.5071, 0.4866, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)


def load_builtin(name: str, options: BackboneOptions) -> Backbone:
    """The encoder with its own weights, or with those of another run of its training script.

    Raises:
        BackboneError: Projected features were asked for, or the weights are missing or do not fit.
    """
    from difficulty_service.backbones.builtin.network import BuiltinEncoder

    if options.features != "penultimate":
        raise BackboneError(f"{name} has no projection; use --features penultimate")
    path = WEIGHTS_FILE if options.weights is None else Path(options.weights)
    if not path.is_file():
        remedy = "install the package again" if options.weights is None else "check --weights"
        raise BackboneError(f"the weights of {name} are not at {path}; {remedy}")
    network = BuiltinEncoder().fold()
    load_checked(network, read_weights(path), f"{path} as {name}")
    return freeze(name, network, PREPROCESSING, path, options)
