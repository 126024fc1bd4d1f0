"""CLIP image towers of open_clip, before or after the projection into the shared space."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from difficulty_service.backbones.backbone import Backbone, BackboneOptions, Preprocessing
from difficulty_service.backbones.frozen_network import freeze
from difficulty_service.backbones.weights import load_checked, locate_weights, read_weights
from difficulty_service.errors import BackboneError

TOWER_PREFIX = "visual."
DEFAULT_FILENAMES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")


def load_clip(name: str, options: BackboneOptions, *, architecture: str, tag: str) -> Backbone:
    """The image tower of one of open_clip's pretrained models.

    Args:
        name: The name it is asked for by.
        options: Where the weights are and what to do with them.
        architecture: As open_clip lists it, such as `ViT-B-16`.
        tag: The pretraining, as open_clip lists it, such as `openai`.

    Raises:
        BackboneError: Unknown architecture or tag, no weights, or weights of another network.
    """
    model, pretraining = find_configs(architecture, tag)
    repository, _, filename = pretraining["hf_hub"].rpartition("/")
    path = locate_weights(options.weights, name, repository, alternatives(filename))
    tower = build_tower(model, pretraining)
    load_checked(tower, select_tower(read_weights(path)), f"{path} as {name}")
    if options.features == "penultimate":
        remove_projection(tower)
    elif not has_projection(tower):
        raise BackboneError(f"{name} has no projection; use --features penultimate")
    return freeze(name, tower, preprocessing_of(model, pretraining), path, options)


def find_configs(architecture: str, tag: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """open_clip's description of the network and of its pretraining.

    Raises:
        BackboneError: It knows no such architecture or tag.
    """
    import open_clip

    model = open_clip.get_model_config(architecture)
    if model is None:
        raise BackboneError(
            f"open_clip has no architecture {architecture!r}; it has "
            f"{', '.join(open_clip.list_models())}"
        )
    pretraining = open_clip.pretrained.get_pretrained_cfg(architecture, tag)
    if not pretraining.get("hf_hub"):
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(architecture)) or "none"
        raise BackboneError(f"{architecture} has no pretraining {tag!r}; it has {tags}")
    return model, pretraining


def alternatives(filename: str) -> tuple[str, ...]:
    """Names of one weights file on the hub, safetensors first."""
    if not filename:
        return DEFAULT_FILENAMES
    return (str(Path(filename).with_suffix(".safetensors")), filename)


def build_tower(model: dict[str, Any], pretraining: dict[str, Any]) -> nn.Module:
    """The image tower alone, from random initialisation.

    open_clip's public way builds the text tower as well, which takes longer and, for some
    models, asks the hub for a tokenizer. OpenAI's weights need the activation they were trained
    with, which the architecture's plain name does not say.
    """
    from open_clip.model import _build_vision_tower

    quick_gelu = bool(model.get("quick_gelu") or pretraining.get("quick_gelu"))
    tower: nn.Module = _build_vision_tower(model["embed_dim"], model["vision_cfg"], quick_gelu)
    return tower


def select_tower(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of the image tower, from a file of the whole model or of the tower alone."""
    tower = {
        name.removeprefix(TOWER_PREFIX): tensor
        for name, tensor in weights.items()
        if name.startswith(TOWER_PREFIX)
    }
    return tower or weights


def has_projection(tower: nn.Module) -> bool:
    """Whether the tower maps its pooled features into the space it shares with text."""
    parts: Any = tower
    if hasattr(parts, "trunk"):  # One of timm's networks, with a head of open_clip's.
        return len(parts.head) > 0 or parts.trunk.num_classes > 0
    return hasattr(parts, "attnpool") or getattr(parts, "proj", None) is not None


def remove_projection(tower: nn.Module) -> None:
    """Makes the tower end in its pooled features."""
    parts: Any = tower
    if hasattr(parts, "trunk"):
        parts.head = nn.Identity()
        if parts.trunk.num_classes > 0:
            parts.trunk.reset_classifier(0)
    elif hasattr(parts, "attnpool"):
        # The pool hands the projection's weights to a fused attention, which needs some.
        width: int = parts.attnpool.c_proj.in_features
        identity = nn.Linear(width, width)
        with torch.no_grad():
            identity.weight.copy_(torch.eye(width))
            identity.bias.zero_()
        parts.attnpool.c_proj = identity
    else:
        parts.proj = None


def preprocessing_of(model: dict[str, Any], pretraining: dict[str, Any]) -> Preprocessing:
    """The shorter side to the network's size, then the centre, also where the model squashed."""
    size = model["vision_cfg"]["image_size"]
    if not isinstance(size, int):
        if len(set(size)) > 1:
            raise BackboneError(f"the network's input {tuple(size)} is not square")
        size = size[0]
    return Preprocessing(
        size=size,
        resize=size,
        interpolation=pretraining["interpolation"],
        mean=tuple(pretraining["mean"]),
        std=tuple(pretraining["std"]),
    )
