"""Pretrained networks by name, which turn each image or text into one feature vector.

Only building one imports torch; names can be checked and listed without it.
"""

import difflib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from difficulty_service.backbones.licences import licence_warnings
from difficulty_service.backbones.named import (
    BACKBONES,
    BackboneSpec,
    Facts,
    Loader,
    load_clip,
    load_timm,
)
from difficulty_service.backbones.plugged import find_plugin, load_plugged, plugin_patterns
from difficulty_service.backbones.text_encoders import (
    BUILTIN_TEXT,
    BUILTIN_TEXT_DIM,
    TEXT_BACKBONES,
    TRANSFORMERS_PREFIX,
    modality_of,
    text_backbone_names,
)
from difficulty_service.backbones.weights_files import (
    PACKAGED_WEIGHTS,
    TIMM_FILENAMES,
    cached_weights,
)
from difficulty_service.base.errors import BackboneError, Setting

if TYPE_CHECKING:
    import torch

    from difficulty_service.backbones.backbone import Backbone, BackboneOptions

__all__ = [
    "BACKBONES",
    "DEFAULT_BACKBONE",
    "BackboneListing",
    "BackboneSpec",
    "Facts",
    "Loader",
    "backbone_names",
    "find_clip",
    "find_loader",
    "is_clip",
    "list_backbones",
    "load_backbone",
    "load_clip",
    "usual_precision",
    "warn_of_licence",
    "weights_state",
]

DEFAULT_BACKBONE = "clip-vit-b16"
OPEN_CLIP_PREFIX, TIMM_PREFIX = "open_clip:", "timm:"
FEATURE_KINDS = ("penultimate", "projected")


@dataclass(frozen=True)
class BackboneListing:
    """One line of `difficulty backbones`.

    Attributes:
        name: Name of the backbone; words in capitals stand for names of the library.
        feature_dim: Length of its penultimate features; None for a whole library.
        weights: `in the package`, `cached`, `to download`, or `any` for a whole library.
        modality: `image` or `text`, what it encodes.
        size: Side of the square image that it takes, in pixels; None where it takes no image or
            for a whole library, and so are the attributes that follow.
        parameters: Number of parameters up to the features, in millions.
        gmacs: Multiply-adds for one image, in billions.
        licence: Licence of its weights, as the hub calls it.
    """

    name: str
    description: str
    feature_dim: int | None
    weights: str
    modality: str = "image"
    size: int | None = None
    parameters: float | None = None
    gmacs: float | None = None
    licence: str | None = None


def _load_builtin_text(name: str, options: "BackboneOptions") -> "Backbone":
    from difficulty_service.backbones.builtin_text import load_builtin_text

    return load_builtin_text(name, options)


def _load_transformers(name: str, options: "BackboneOptions", *, model: str) -> "Backbone":
    from difficulty_service.backbones.transformers_text import load_transformers

    return load_transformers(name, options, model=model)


def load_backbone(name: str, options: "BackboneOptions") -> "Backbone":
    """Builds a backbone on its device, with pretrained weights.

    Args:
        name: One of `BACKBONES`, `open_clip:ARCH/TAG`, `timm:NAME`, an encoder of texts, or
            `PREFIX:NAME` where an installed package offers backbones with that prefix, such as
            `run:FOLDER`.

    Raises:
        BackboneError: The name or kind of features is unknown, or the weights are missing or do
            not fit the network.
    """
    if options.features not in FEATURE_KINDS:
        raise BackboneError(
            f"features {options.features!r} are unknown",
            f"expected {' or '.join(FEATURE_KINDS)}",
            parameter="features",
        )
    _require_precision(name, options)
    plugin = find_plugin(name)
    if plugin is not None:
        return load_plugged(name, plugin, options)
    return find_loader(name)(name, options)


def usual_precision(name: str, precision: "torch.dtype", device: "torch.device") -> "torch.dtype":
    """The precision of a backbone where nobody asks for one.

    It is int8 on a CPU where the network has it, which takes a third of the time; else that of the
    device.
    """
    import torch

    from difficulty_service.backbones.onnx_network import has_onnx

    return torch.int8 if _has_int8(name) and has_onnx(device) else precision


def _has_int8(name: str) -> bool:
    return name in BACKBONES and BACKBONES[name].has_int8


def _require_precision(name: str, options: "BackboneOptions") -> None:
    """Refuses int8 where a network or a machine does not have it."""
    if str(options.precision) != "torch.int8":
        return
    from difficulty_service.backbones.onnx_network import has_onnx

    if not _has_int8(name):
        having = ", ".join(each for each in BACKBONES if _has_int8(each))
        problem = f"{name} has no weights of eight bits, which {having} has"
    elif not has_onnx(options.device):
        problem = f"{name} computes in int8 on CPUs only, by ONNX Runtime"
    else:
        return
    raise BackboneError(problem, "use ", Setting("precision", "fp32"), parameter="precision")


def find_loader(name: str) -> Loader:
    """The function that builds a backbone of this package; a wrong name's error lists all names."""
    if name in BACKBONES:
        return BACKBONES[name].load
    if modality_of(name) == "text":
        return _find_text_loader(name)
    if name.startswith(TIMM_PREFIX):
        return partial(load_timm, model=name.removeprefix(TIMM_PREFIX))
    if name.startswith(OPEN_CLIP_PREFIX):
        architecture, slash, tag = name.removeprefix(OPEN_CLIP_PREFIX).rpartition("/")
        if slash:
            return partial(load_clip, architecture=architecture, tag=tag)
        raise BackboneError(
            f"{name!r} names no pretraining", "expected open_clip:ARCH/TAG", parameter="backbone"
        )
    close = difflib.get_close_matches(name, [*BACKBONES, *TEXT_BACKBONES], n=3)
    start = f"did you mean {' or '.join(close)}? Expected" if close else "expected"
    raise BackboneError(
        f"unknown backbone {name!r}",
        f"{start} one of {', '.join([*backbone_names(), *plugin_patterns()])}",
        parameter="backbone",
    )


def find_clip(name: str) -> "partial[Backbone] | None":
    """The function that builds the image tower of a CLIP, with its architecture and tag.

    None for other backbones; BackboneError where there is none of this name.
    """
    loader = None if find_plugin(name) else find_loader(name)
    return loader if isinstance(loader, partial) and loader.func is load_clip else None


def is_clip(name: str) -> bool:
    """Whether this is the name of a CLIP, which may compare images with words."""
    try:
        return find_clip(name) is not None
    except BackboneError:
        return False


def _find_text_loader(name: str) -> Loader:
    if name == BUILTIN_TEXT:
        return _load_builtin_text
    spec = TEXT_BACKBONES.get(name)
    model = name.removeprefix(TRANSFORMERS_PREFIX) if spec is None else spec.repository
    if not model:
        raise BackboneError(
            f"{name!r} names no model", "expected transformers:NAME", parameter="backbone"
        )
    return partial(_load_transformers, model=model)


def warn_of_licence(name: str) -> tuple[str, ...]:
    """A sentence where the weights of a backbone have a licence with a condition.

    That of a network that only open_clip or transformers knows is not known here.
    """
    spec = BACKBONES.get(name)
    if spec is not None:
        return licence_warnings(name, spec.facts.licence, spec.repository or "")
    if name in TEXT_BACKBONES:
        text = TEXT_BACKBONES[name]
        return licence_warnings(name, text.licence, text.repository)
    if find_plugin(name) is None and name.startswith(TIMM_PREFIX):
        from difficulty_service.backbones.timm_models import find_config

        try:
            config = find_config(name.removeprefix(TIMM_PREFIX))
        except BackboneError:  # whoever loads it says so
            return ()
        return licence_warnings(name, config.get("license"), str(config.get("hf_hub_id")))
    return ()


def backbone_names() -> list[str]:
    """All names, the default first, those for texts last."""
    return [*BACKBONES, *_libraries(), *text_backbone_names()]


def _libraries() -> dict[str, str]:
    """Patterns for whole libraries of networks for images, and what they stand for."""
    return {
        f"{OPEN_CLIP_PREFIX}ARCH/TAG": "any pretrained CLIP of open_clip",
        f"{TIMM_PREFIX}NAME": "any pretrained network of timm",
    }


def list_backbones() -> list[BackboneListing]:
    """The lines of `difficulty backbones`, from local files only."""
    listings = [
        BackboneListing(
            name, spec.description, weights=weights_state(name, spec), **vars(spec.facts)
        )
        for name, spec in BACKBONES.items()
    ]
    listings += [BackboneListing(name, text, None, "any") for name, text in _libraries().items()]
    ngrams = "hashed n-grams of characters, projected at random, works offline"
    listings.append(
        BackboneListing(BUILTIN_TEXT, ngrams, BUILTIN_TEXT_DIM, "in the package", "text")
    )
    listings += [
        BackboneListing(
            *(name, spec.description, spec.feature_dim),
            "to download" if cached_weights(spec.repository, TIMM_FILENAMES) is None else "cached",
            modality="text",
            parameters=spec.parameters,
            licence=spec.licence,
        )
        for name, spec in TEXT_BACKBONES.items()
    ]
    encoders = "any encoder of transformers: a name on the hub, or a folder"
    library = f"{TRANSFORMERS_PREFIX}NAME"
    return [*listings, BackboneListing(library, encoders, None, "any", "text")]


def weights_state(name: str, spec: BackboneSpec) -> str:
    """`in the package`, `missing`, `cached` or `to download`, from local files only."""
    if spec.repository is None:
        return "in the package" if PACKAGED_WEIGHTS[name].is_file() else "missing"
    cached = cached_weights(spec.repository, spec.filenames)
    return "to download" if cached is None else "cached"
