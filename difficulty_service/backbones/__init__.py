"""Pretrained networks by name, which turn each image or text into one feature vector.

Only building one imports torch; names can be checked and listed without it.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from difficulty_service.backbones.plugged import find_plugin, load_plugged, plugin_patterns
from difficulty_service.backbones.text_encoders import (
    BUILTIN_TEXT,
    BUILTIN_TEXT_DIM,
    TRANSFORMERS_PREFIX,
    modality_of,
    text_backbone_names,
)
from difficulty_service.backbones.weights_files import (
    CLIP_FILENAMES,
    PACKAGED_WEIGHTS,
    TIMM_FILENAMES,
    cached_weights,
)
from difficulty_service.base.errors import BackboneError

if TYPE_CHECKING:
    from difficulty_service.backbones.backbone import Backbone, BackboneOptions

DEFAULT_BACKBONE = "clip-vit-b16"
OPEN_CLIP_PREFIX, TIMM_PREFIX = "open_clip:", "timm:"
FEATURE_KINDS = ("penultimate", "projected")

Loader = Callable[[str, "BackboneOptions"], "Backbone"]


@dataclass(frozen=True)
class BackboneSpec:
    """A backbone with a short name; its repository is None where the package has its weights."""

    description: str
    feature_dim: int
    repository: str | None
    load: Loader


@dataclass(frozen=True)
class BackboneListing:
    """One line of `difficulty backbones`.

    Attributes:
        name: Name of the backbone; words in capitals stand for names of the library.
        feature_dim: Length of its penultimate features; None for a whole library.
        weights: `in the package`, `cached`, `to download`, or `any` for a whole library.
        modality: `image` or `text`, what it encodes.
    """

    name: str
    description: str
    feature_dim: int | None
    weights: str
    modality: str = "image"


def load_clip(name: str, options: "BackboneOptions", *, architecture: str, tag: str) -> "Backbone":
    """Calls `clip.load_clip`, which is imported here."""
    from difficulty_service.backbones import clip

    return clip.load_clip(name, options, architecture=architecture, tag=tag)


def _load_timm(
    name: str, options: "BackboneOptions", *, model: str, size: int | None = None
) -> "Backbone":
    from difficulty_service.backbones.timm_models import load_timm

    return load_timm(name, options, model=model, size=size)


def _load_builtin(name: str, options: "BackboneOptions") -> "Backbone":
    from difficulty_service.backbones.builtin import load_builtin

    return load_builtin(name, options)


def _load_builtin_photos(name: str, options: "BackboneOptions") -> "Backbone":
    from difficulty_service.backbones.builtin_photos import load_builtin_photos

    return load_builtin_photos(name, options)


def _load_builtin_text(name: str, options: "BackboneOptions") -> "Backbone":
    from difficulty_service.backbones.builtin_text import load_builtin_text

    return load_builtin_text(name, options)


def _load_transformers(name: str, options: "BackboneOptions", *, model: str) -> "Backbone":
    from difficulty_service.backbones.transformers_text import load_transformers

    return load_transformers(name, options, model=model)


BACKBONES: dict[str, BackboneSpec] = {
    "clip-vit-b16": BackboneSpec(
        "CLIP ViT-B/16 by OpenAI, 224 px",
        768,
        "timm/vit_base_patch16_clip_224.openai",
        partial(load_clip, architecture="ViT-B-16", tag="openai"),
    ),
    "clip-vit-b32": BackboneSpec(
        "CLIP ViT-B/32 by OpenAI, 224 px, four times faster",
        768,
        "timm/vit_base_patch32_clip_224.openai",
        partial(load_clip, architecture="ViT-B-32", tag="openai"),
    ),
    "clip-rn50": BackboneSpec(
        "CLIP ResNet-50 by OpenAI, 224 px",
        2048,
        "timm/resnet50_clip.openai",
        partial(load_clip, architecture="RN50", tag="openai"),
    ),
    "dinov2-vit-s14": BackboneSpec(
        "DINOv2 ViT-S/14, self-supervised, 224 px",
        384,
        "timm/vit_small_patch14_dinov2.lvd142m",
        partial(_load_timm, model="vit_small_patch14_dinov2.lvd142m", size=224),
    ),
    "dinov2-vit-b14": BackboneSpec(
        "DINOv2 ViT-B/14, self-supervised, 224 px",
        768,
        "timm/vit_base_patch14_dinov2.lvd142m",
        partial(_load_timm, model="vit_base_patch14_dinov2.lvd142m", size=224),
    ),
    "dinov2-vit-l14": BackboneSpec(
        "DINOv2 ViT-L/14, self-supervised, 224 px",
        1024,
        "timm/vit_large_patch14_dinov2.lvd142m",
        partial(_load_timm, model="vit_large_patch14_dinov2.lvd142m", size=224),
    ),
    "mae-vit-b16": BackboneSpec(
        "MAE ViT-B/16, self-supervised on ImageNet, 224 px (weights not for commercial use)",
        768,
        "timm/vit_base_patch16_224.mae",
        partial(_load_timm, model="vit_base_patch16_224.mae"),
    ),
    "vit-b16-in21k": BackboneSpec(
        "ViT-B/16 trained on ImageNet-21k, 224 px",
        768,
        "timm/vit_base_patch16_224.augreg_in21k",
        partial(_load_timm, model="vit_base_patch16_224.augreg_in21k"),
    ),
    "resnet34": BackboneSpec(
        "ResNet-34 trained on ImageNet, 224 px",
        512,
        "timm/resnet34.tv_in1k",
        partial(_load_timm, model="resnet34.tv_in1k"),
    ),
    "resnet50": BackboneSpec(
        "ResNet-50 trained on ImageNet, 224 px",
        2048,
        "timm/resnet50.tv_in1k",
        partial(_load_timm, model="resnet50.tv_in1k"),
    ),
    "resnet101": BackboneSpec(
        "ResNet-101 trained on ImageNet, 224 px",
        2048,
        "timm/resnet101.tv_in1k",
        partial(_load_timm, model="resnet101.tv_in1k"),
    ),
    "builtin": BackboneSpec(
        "small convolutional network trained on CIFAR-100, 32 px, works offline",
        896,
        None,
        _load_builtin,
    ),
    "builtin-photos": BackboneSpec(
        "EfficientNet-Lite2 trained on ImageNet, 260 px, works offline",
        1280,
        None,
        _load_builtin_photos,
    ),
}


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
    plugin = find_plugin(name)
    if plugin is not None:
        return load_plugged(name, plugin, options)
    return find_loader(name)(name, options)


def find_loader(name: str) -> Loader:
    """The function that builds a backbone of this package; a wrong name's error lists all names."""
    if name in BACKBONES:
        return BACKBONES[name].load
    if modality_of(name) == "text":
        return _find_text_loader(name)
    if name.startswith(TIMM_PREFIX):
        return partial(_load_timm, model=name.removeprefix(TIMM_PREFIX))
    if name.startswith(OPEN_CLIP_PREFIX):
        architecture, slash, tag = name.removeprefix(OPEN_CLIP_PREFIX).rpartition("/")
        if slash:
            return partial(load_clip, architecture=architecture, tag=tag)
        raise BackboneError(
            f"{name!r} names no pretraining", "expected open_clip:ARCH/TAG", parameter="backbone"
        )
    close = difflib.get_close_matches(name, BACKBONES, n=3)
    start = f"did you mean {' or '.join(close)}? Expected" if close else "expected"
    raise BackboneError(
        f"unknown backbone {name!r}",
        f"{start} one of {', '.join([*backbone_names(), *plugin_patterns()])}",
        parameter="backbone",
    )


def _find_text_loader(name: str) -> Loader:
    if name == BUILTIN_TEXT:
        return _load_builtin_text
    model = name.removeprefix(TRANSFORMERS_PREFIX)
    if not model:
        raise BackboneError(
            f"{name!r} names no model", "expected transformers:NAME", parameter="backbone"
        )
    return partial(_load_transformers, model=model)


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
        BackboneListing(name, spec.description, spec.feature_dim, weights_state(name, spec))
        for name, spec in BACKBONES.items()
    ]
    listings += [BackboneListing(name, text, None, "any") for name, text in _libraries().items()]
    builtin, library = text_backbone_names()
    ngrams = "hashed n-grams of characters, projected at random, works offline"
    encoders = "any encoder of transformers: a name on the hub, or a folder"
    return [
        *listings,
        BackboneListing(builtin, ngrams, BUILTIN_TEXT_DIM, "in the package", "text"),
        BackboneListing(library, encoders, None, "any", "text"),
    ]


def weights_state(name: str, spec: BackboneSpec) -> str:
    """`in the package`, `missing`, `cached` or `to download`, from local files only."""
    if spec.repository is None:
        return "in the package" if PACKAGED_WEIGHTS[name].is_file() else "missing"
    filenames = CLIP_FILENAMES if name.startswith("clip-") else TIMM_FILENAMES
    cached = cached_weights(spec.repository, filenames)
    return "to download" if cached is None else "cached"
