"""CLIP image towers of open_clip, before or after the projection into the shared space."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from difficulty_service.backbones.backbone import (
    Backbone,
    BackboneOptions,
    Fit,
    Preprocessing,
    Size,
    no_projection,
    require_multiple,
    takes_only,
)
from difficulty_service.backbones.frozen_network import freeze
from difficulty_service.backbones.initialisation import WithoutRandomValues
from difficulty_service.backbones.timm_models import require_fitting
from difficulty_service.backbones.weights import load_checked, read_weights
from difficulty_service.backbones.weights_files import CLIP_FILENAMES, locate_weights
from difficulty_service.base.errors import BackboneError

TOWER_PREFIX = "visual."

FITS: dict[str, Fit] = {"shortest": "crop", "squash": "squash", "longest": "border"}
"""What open_clip calls the ways in which images of any shape come to that of the input."""


def load_clip(name: str, options: BackboneOptions, *, architecture: str, tag: str) -> Backbone:
    """The image tower of one of open_clip's models, such as `ViT-B-16` with the tag `openai`."""
    model, pretraining = find_configs(architecture, tag)
    repository, _, filename = pretraining["hf_hub"].rpartition("/")
    path = None
    if not options.random:
        filenames = alternatives(filename)
        path = locate_weights(options.weights, name, repository, filenames, options.downloads)
    if path is None:
        tower = build_tower(model, pretraining)
    else:
        tower = load_tower(name, path, model, pretraining)
    preprocessing = preprocessing_of(model, pretraining)
    if options.image_size not in {None, preprocessing.size}:
        model = model | {"vision_cfg": model["vision_cfg"] | {"image_size": options.image_size}}
        tower = resize_tower(name, tower, preprocessing.size, model, pretraining)
        preprocessing = preprocessing_of(model, pretraining)
    if options.features == "penultimate":
        remove_projection(tower)
    elif not has_projection(tower):
        raise no_projection(name)
    return freeze(name, tower, preprocessing, path, options)


def find_configs(architecture: str, tag: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """open_clip's description of the network and of its pretraining."""
    import open_clip

    model = open_clip.get_model_config(architecture)
    if model is None:
        raise BackboneError(
            f"open_clip has no architecture {architecture!r}",
            f"it has {', '.join(open_clip.list_models())}",
            parameter="backbone",
        )
    pretraining = open_clip.pretrained.get_pretrained_cfg(architecture, tag)
    if not pretraining.get("hf_hub"):
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(architecture)) or "none"
        raise BackboneError(
            f"{architecture} has no pretraining {tag!r}", f"it has {tags}", parameter="backbone"
        )
    return model, pretraining


def alternatives(filename: str) -> tuple[str, ...]:
    """File names under which the hub may hold these weights, safetensors first."""
    if not filename:
        return CLIP_FILENAMES
    return (str(Path(filename).with_suffix(".safetensors")), filename)


def build_tower(model: dict[str, Any], pretraining: dict[str, Any]) -> nn.Module:
    """The image tower alone, randomly initialised.

    open_clip's public function also builds the text tower, which takes longer and, for some
    models, fetches a tokenizer from the hub. OpenAI's weights need the activation they were
    trained with, which is stated only in the description of the pretraining.
    """
    from open_clip.model import _build_vision_tower

    quick_gelu = bool(model.get("quick_gelu") or pretraining.get("quick_gelu"))
    tower: nn.Module = _build_vision_tower(model["embed_dim"], model["vision_cfg"], quick_gelu)
    return tower


def load_tower(
    name: str, path: Path, model: dict[str, Any], pretraining: dict[str, Any]
) -> nn.Module:
    """The image tower of a backbone with the weights of a file."""
    with WithoutRandomValues():
        tower = build_tower(model, pretraining)
    load_checked(tower, select_tower(read_weights(path)), f"{path} as {name}")
    return tower


def resize_tower(
    name: str, tower: nn.Module, own: Size, model: dict[str, Any], pretraining: dict[str, Any]
) -> nn.Module:
    """The image tower for another input, with resampled position embeddings.

    Args:
        own: Size of the input that the tower was built for.
        model: Description of the network with the side that was asked for.

    Raises:
        BackboneError: The network does not take such an input.
    """
    from open_clip.model import resize_pos_embed

    parts: Any = tower
    size: int = model["vision_cfg"]["image_size"]
    if hasattr(parts, "trunk"):
        if parts.trunk.pretrained_cfg["fixed_input_size"]:
            require_fitting(name, parts.trunk, own, size)
            parts.trunk.set_input_size(img_size=size)
        return tower
    if not hasattr(parts, "patch_size"):
        raise takes_only(name, own)
    require_multiple(name, size, int(parts.patch_size[0]))
    with WithoutRandomValues():
        resized = build_tower(model, pretraining)
    weights = {f"{TOWER_PREFIX}{key}": tensor for key, tensor in tower.state_dict().items()}
    resize_pos_embed(weights, SimpleNamespace(visual=resized))
    resized.load_state_dict(select_tower(weights))
    return resized


def select_tower(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of the image tower, from the weights of the whole model or of the tower alone."""
    tower = {
        name.removeprefix(TOWER_PREFIX): tensor
        for name, tensor in weights.items()
        if name.startswith(TOWER_PREFIX)
    }
    return tower or weights


def has_projection(tower: nn.Module) -> bool:
    """Whether the tower maps its pooled features into the space it shares with text."""
    parts: Any = tower
    if hasattr(parts, "trunk"):  # A network from timm, with a head from open_clip.
        return len(parts.head) > 0 or parts.trunk.num_classes > 0
    return hasattr(parts, "attnpool") or getattr(parts, "proj", None) is not None


def remove_projection(tower: nn.Module) -> None:
    """Replaces the projection by the identity, so that the tower returns its pooled features."""
    parts: Any = tower
    if hasattr(parts, "trunk"):
        parts.head = nn.Identity()
        if parts.trunk.num_classes > 0:
            parts.trunk.reset_classifier(0)
    elif hasattr(parts, "attnpool"):
        # The pool passes the projection's weights to a fused attention, so they cannot be None.
        width: int = parts.attnpool.c_proj.in_features
        identity = nn.Linear(width, width)
        with torch.no_grad():
            identity.weight.copy_(torch.eye(width))
            identity.bias.zero_()
        parts.attnpool.c_proj = identity
    else:
        parts.proj = None


def projection_of(tower: nn.Module) -> nn.Module | None:
    """The map of pooled features into the space shared with text, which is the identity for some.

    None where it is not linear, so that features that are means of several views, or of a part of
    the network before its last pooling, do not lead there.
    """
    parts: Any = tower
    if hasattr(parts, "trunk"):
        layers = dict(parts.head.named_children())
        last = parts.trunk.get_classifier() if parts.trunk.num_classes > 0 else nn.Identity()
        if layers:
            last = layers["proj"] if layers.keys() <= {"drop", "proj"} else None
        return last if isinstance(last, nn.Linear | nn.Identity) else None
    if hasattr(parts, "attnpool"):
        pool: nn.Module = parts.attnpool.c_proj
        return pool
    width, dim = parts.proj.shape
    linear = nn.Linear(width, dim, bias=False)
    linear.weight = nn.Parameter(parts.proj.detach().T.clone())
    return linear


def preprocessing_of(model: dict[str, Any], pretraining: dict[str, Any]) -> Preprocessing:
    """The evaluation transform of open_clip, as its `image_transform` makes it.

    Raises:
        BackboneError: The network expects images that cannot be made here.
    """
    size = model["vision_cfg"]["image_size"]
    if not isinstance(size, int):
        if len(set(size)) > 1:
            raise BackboneError(f"the network's input {tuple(size)} is not square")
        size = size[0]
    resize_mode = pretraining.get("resize_mode") or "shortest"
    if resize_mode not in FITS:
        raise BackboneError(
            f"the network takes images with the resize mode {resize_mode!r}, which is unknown here",
            f"choose a network with {' or '.join(FITS)}",
            parameter="backbone",
        )
    return Preprocessing(
        size=size,
        resize=size,
        interpolation=pretraining["interpolation"],
        mean=tuple(pretraining["mean"]),
        std=tuple(pretraining["std"]),
        fit=FITS[resize_mode],
        fill=(pretraining.get("fill_color", 0),) * 3,
    )
