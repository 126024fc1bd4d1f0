"""Classifiers by name: raw inputs in, logits out.

A builder is a function `(spec, num_classes, **options)`; its keyword-only parameters are the
options of the model. It returns a network for normalised inputs. `build_model` adds the
normalisation as the first layer, so that a model takes the batches of `Inputs.batches` and returns
logits of shape (samples, num_classes).

A name of the form `package.module:name` is a network from outside the package.
"""

import copy
import difflib
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from difficulty_service.base.errors import ConfigError
from trainer.config import Kind, ModelConfig
from trainer.models.layers import Normalisation
from trainer.models.residual import (
    densenet121,
    resnet18,
    resnet34,
    resnet50,
    resnet110_basic,
    resnet110_bottleneck,
    small_resnet,
    wide_resnet,
    wide_resnet_post_activation,
)
from trainer.models.timm_models import timm_model
from trainer.models.transformers_models import transformers_model
from trainer.models.word_networks import text_cnn, tree_lstm
from trainer.own_code import OwnSettings, find_own, is_own, settings_of
from trainer.samples import InputSpec
from trainer.transformers_files import PREFIX as TRANSFORMERS_PREFIX

RESERVED = ("num_classes", "spec")
"""Parameters of a builder that are no options."""


def own_options(name: str) -> OwnSettings:
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

    The name in a recipe is that of a class or function that takes `num_classes` by name, and
    perhaps `spec`, or of a network.
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


def probe(
    spec: InputSpec, num_classes: int, *, hidden: Sequence[int] = (), dropout: float = 0.0
) -> nn.Module:
    """A linear layer, or several with ReLU and dropout between them, for features (samples, dim).

    `hidden` is the width of each hidden layer; a linear probe has none, and no dropout.
    """
    if dropout and not hidden:
        raise ConfigError(
            f"probe has dropout {dropout} but no hidden layer",
            "set hidden to widths of layers, such as [512], or dropout to 0",
        )
    if any(width < 1 for width in hidden):
        raise ConfigError(
            f"probe has hidden = {list(hidden)}",
            "give widths of 1 or more, such as [512]; [] is a linear probe",
        )
    layers: list[nn.Module] = []
    widths = (spec.shape[0], *hidden)
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], num_classes))


Builder = Callable[..., nn.Module]

MODELS: dict[str, Builder] = {
    "densenet121": densenet121,
    "probe": probe,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
    "resnet110_basic": resnet110_basic,
    "resnet110_bottleneck": resnet110_bottleneck,
    "small_resnet": small_resnet,
    "text_cnn": text_cnn,
    "tree_lstm": tree_lstm,
    "wide_resnet": wide_resnet,
    "wide_resnet_post_activation": wide_resnet_post_activation,
}

# Names that stand for two networks, with the remedy.
AMBIGUOUS = {
    "resnet110": "two networks have this name; choose resnet110_bottleneck, of the focal loss "
    "papers (45.9 million parameters), or resnet110_basic, of He et al. (1.7 million)",
}

TIMM_PREFIX = "timm:"

PREFIXES = (TIMM_PREFIX, TRANSFORMERS_PREFIX)
"""What the names of models begin with that are networks of another library."""

# Kind of the inputs of a model, where these are not images.
KINDS: dict[str, Kind] = {"probe": "features", "text_cnn": "text", "tree_lstm": "trees"}


def kind_of_model(name: str) -> Kind:
    """Kind of the inputs of a model of MODELS, timm or transformers."""
    return "text" if name.startswith(TRANSFORMERS_PREFIX) else KINDS.get(name, "images")


def model_options(name: str) -> dict[str, Any]:
    """The options of a model and their default values, by name."""
    if is_own(name):
        return dict(own_options(name).defaults)
    return {
        parameter.name: parameter.default
        for parameter in inspect.signature(_builder(name)).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def build_model(config: ModelConfig, spec: InputSpec, num_classes: int) -> nn.Module:
    """Builds a model with initial parameters drawn from PyTorch's global generator."""
    known = model_options(config.name)
    unknown = sorted(config.options.keys() - known.keys())
    own = is_own(config.name)
    if unknown and not (own and own_options(config.name).takes_any):
        takes = f"choose from {', '.join(sorted(known))}" if known else "it takes none"
        raise ConfigError(f"model {config.name!r} has no option {unknown[0]!r}", takes)
    if not own:
        _require_kind(config.name, spec)
    try:
        network = _builder(config.name)(spec, num_classes, **config.options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"model {config.name!r} cannot be built with options {dict(config.options)} ({error})",
            f"choose other options; the defaults are {known}",
        ) from error
    if spec.mean is not None and spec.std is not None:
        normalisation = Normalisation(spec.mean, spec.std, len(spec.shape))
        network = nn.Sequential(OrderedDict(normalisation=normalisation, network=network))
    if own:
        require_logits(network, config.name, spec, num_classes)
    return network


def _builder(name: str) -> Builder:
    if name.startswith(TIMM_PREFIX):
        return partial(timm_model, name.removeprefix(TIMM_PREFIX))
    if name.startswith(TRANSFORMERS_PREFIX):
        return partial(transformers_model, name.removeprefix(TRANSFORMERS_PREFIX))
    if is_own(name):
        return partial(own_model, name)
    if name not in MODELS:
        choices = sorted(MODELS)
        close = difflib.get_close_matches(name, choices, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(
            f"no model {name!r}",
            f"{hint}choose one of {', '.join(choices)}, {TIMM_PREFIX}NAME, "
            f"{TRANSFORMERS_PREFIX}NAME, or package.module:name",
        )
    return MODELS[name]


def _require_kind(name: str, spec: InputSpec) -> None:
    given = _kind_of(spec)
    needed = kind_of_model(name)
    if given != needed:
        fitting = sorted(model for model in MODELS if kind_of_model(model) == given)
        raise ConfigError(
            f"model {name!r} takes {needed}, and the data are {given} of shape {spec.shape}",
            f"choose {' or '.join(fitting)}",
        )


def _kind_of(spec: InputSpec) -> Kind:
    if not spec.shape:
        return "trees"
    if len(spec.shape) == 3:  # noqa: PLR2004 - channels, height and width
        return "images"
    return "text" if spec.vocabulary else "features"
