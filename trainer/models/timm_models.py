"""Networks of timm, with random, downloaded or local parameters."""

import difflib
import pickle
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from difficulty_service.base.errors import ConfigError
from difficulty_service.base.hub import asking_hub
from trainer.samples import InputSpec

SHOWN_DIFFERENCES = 3
UNREADABLE = (OSError, EOFError, RuntimeError, TypeError, ValueError, pickle.UnpicklingError)


def timm_model(
    architecture: str,
    spec: InputSpec,
    num_classes: int,
    *,
    pretrained: bool = False,
    checkpoint: str | None = None,
) -> nn.Module:
    """Builds a network of timm with a classifier for the given number of classes.

    An architecture is a name in timm, with or without a tag, such as `resnet50.tv_in1k`. Its
    parameters are those of timm, which are downloaded once, or of a checkpoint, `.safetensors` or
    of `torch.save`; a classifier for other classes in that file is ignored.
    """
    import timm

    _require_known(architecture)
    if pretrained and checkpoint is not None:
        raise ConfigError(
            f"timm:{architecture}: options pretrained and checkpoint exclude each other",
            "take one out",
        )
    try:
        with asking_hub() if pretrained else nullcontext():
            network: nn.Module = timm.create_model(
                architecture, pretrained=pretrained, num_classes=num_classes, in_chans=spec.shape[0]
            )
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"timm:{architecture} cannot be built with pretrained = {str(pretrained).lower()} "
            f"({error})",
            "without internet access name a local file by --set model.pretrained=false --set "
            "model.checkpoint=FILE; the first of both alone begins with random parameters",
        ) from error
    if checkpoint is not None:
        _load(network, Path(checkpoint), architecture)
    return network


def _require_known(architecture: str) -> None:
    import timm

    name, _, tag = architecture.partition(".")
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), n=5)
        remedy = (f"did you mean one of {', '.join(close)}?",) if close else ()
        raise ConfigError(f"timm has no network {name!r}", *remedy)
    tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{name}.*")]
    if tag and tag not in tags:
        raise ConfigError(
            f"timm has no pretrained {architecture!r}; its tags are {', '.join(tags) or 'none'}"
        )


def _load(network: nn.Module, path: Path, architecture: str) -> None:
    """Loads parameters from a file; only the classifier may differ or be missing."""
    parameters = _read(path)
    expected = network.state_dict()
    for name in _classifier_names(network):
        if name in expected and _shape(parameters, name) != expected[name].shape:
            parameters[name] = expected[name]
    # Files of old PyTorch versions have no counters, which nothing reads.
    counters = {name for name in expected if name.endswith("num_batches_tracked")}
    parameters |= {name: expected[name] for name in counters - parameters.keys()}
    wrong = [
        name
        for name in sorted(expected.keys() | parameters.keys())
        if name not in expected or _shape(parameters, name) != expected[name].shape
    ]
    if wrong:
        shown = ", ".join(wrong[:SHOWN_DIFFERENCES])
        raise ConfigError(
            f"model option checkpoint: {path} is for another network than timm:{architecture}: "
            f"{len(wrong)} tensors differ, are missing or are unknown, such as {shown}",
            "give the file of this network",
        )
    network.load_state_dict(parameters)


def _read(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from timm.models import load_state_dict

    try:
        return dict(load_state_dict(str(path), use_ema=True, weights_only=True))
    except (*UNREADABLE, SafetensorError) as error:
        raise ConfigError(
            f"model option checkpoint: {path} cannot be read as parameters "
            f"({type(error).__name__}: {error})",
            "give a .safetensors file or one of torch.save",
        ) from error


def _classifier_names(network: nn.Module) -> list[str]:
    configuration: dict[str, Any] = getattr(network, "pretrained_cfg", {})
    classifiers = configuration.get("classifier") or ()
    names = (classifiers,) if isinstance(classifiers, str) else classifiers
    return [f"{name}.{part}" for name in names for part in ("weight", "bias")]


def _shape(parameters: dict[str, Tensor], name: str) -> tuple[int, ...] | None:
    tensor = parameters.get(name)
    return None if tensor is None else tuple(tensor.shape)
