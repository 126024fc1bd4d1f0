"""CLIP text towers of open_clip: phrases to vectors in the space that they share with images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from difficulty_service.backbones import find_clip
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.clip import TOWER_PREFIX, alternatives, find_configs
from difficulty_service.backbones.initialisation import WithoutRandomValues
from difficulty_service.backbones.weights import load_checked, read_weights
from difficulty_service.backbones.weights_files import locate_weights
from difficulty_service.base.errors import BackboneError, MissingWeights, Setting
from difficulty_service.base.files import file_sha256
from difficulty_service.base.float32_products import full_float32

TEXT_PREFIX = "text."
NEITHER_TOWER = ("logit_scale", "logit_bias", "input_resolution", "context_length", "vocab_size")
"""Tensors of a whole CLIP that belong to neither of its towers."""

BATCH_SIZE = 64


@dataclass(eq=False)
class ClipTextEncoder:
    """A frozen text tower and its tokenizer.

    Attributes:
        name: Name of the backbone whose images share its space.
        tokenize: Turns phrases into tokens. Shape (phrases, context).
        full_mask: Causal mask of the tower for texts of any length; None where it has none.
    """

    name: str
    weights_sha256: str
    tower: nn.Module
    tokenize: Callable[[list[str]], Tensor]
    options: BackboneOptions
    full_mask: Tensor | None

    def encode(self, phrases: Sequence[str]) -> Tensor:
        """Features of phrases, scaled to unit length. Shape (phrases, dim), float32, on the CPU."""
        tokens = self._shorten(self.tokenize(list(phrases))).to(self.options.device)
        with torch.inference_mode(), full_float32():
            features = torch.cat([self._project(batch) for batch in tokens.split(BATCH_SIZE)])
        return nn.functional.normalize(features.to("cpu", torch.float32), dim=1)

    def is_cut(self, phrase: str) -> bool:
        """Whether the tower would not see the end of a phrase, for which it has no room."""
        tokens, more = self.tokenize([phrase, f"{phrase} more"])
        return torch.equal(tokens, more)

    def _shorten(self, tokens: Tensor) -> Tensor:
        """Cuts the padding off where the tower cannot see it; short phrases take a seventh as long.

        In a causal tower whose output is that at the largest token, the end of the text, no
        padding behind the longest text changes anything.
        """
        tower: Any = self.tower
        if self.full_mask is None or tower.cls_emb is not None or tower.pool_type != "argmax":
            return tokens
        length = int(tokens.argmax(dim=1).max()) + 1
        tower.attn_mask = self.full_mask[:length, :length]
        return tokens[:, :length]

    def _project(self, tokens: Tensor) -> Tensor:
        projected = self.tower(tokens)
        # Towers that also return the features of single tokens return those second.
        return projected[0] if isinstance(projected, tuple) else projected


def load_text_encoder(name: str, options: BackboneOptions) -> ClipTextEncoder:
    """The pretrained text tower of a CLIP among the backbones, or of `open_clip:ARCH/TAG`."""
    clip = find_clip(name)
    if clip is None:
        raise BackboneError(
            f"{name} has no text encoder",
            "use a CLIP, such as ",
            Setting("backbone", "clip-vit-b16"),
            parameter="backbone",
        )
    architecture = clip.keywords["architecture"]
    model, pretraining = find_configs(architecture, clip.keywords["tag"])
    if model["text_cfg"].get("hf_model_name"):
        raise BackboneError(
            f"the text encoder of {name} needs another package",
            "use a CLIP with a text encoder of its own, such as ",
            Setting("backbone", "clip-vit-b16"),
            parameter="backbone",
        )
    path = locate_clip(name, options, pretraining["hf_hub"])
    with WithoutRandomValues():
        tower = build_text_tower(model, pretraining)
    load_checked(tower, select_text_tower(read_weights(path), path), f"{path} as {name}")
    tower = tower.eval().requires_grad_(requires_grad=False)
    tower = tower.to(device=options.device, dtype=options.precision)
    return ClipTextEncoder(
        name=name,
        weights_sha256=file_sha256(path),
        tower=tower,
        tokenize=load_tokenizer(architecture),
        options=options,
        full_mask=getattr(tower, "attn_mask", None),
    )


def locate_clip(name: str, options: BackboneOptions, hub_file: str) -> Path:
    """The weights file of a whole CLIP, as `locate_weights`; `hub_file` is its place in the hub."""
    repository, _, filename = hub_file.rpartition("/")
    try:
        filenames = alternatives(filename)
        return locate_weights(options.weights, name, repository, filenames, options.downloads)
    except MissingWeights as error:
        # The network in the package, which the error recommends, knows no words.
        raise MissingWeights(
            error.problem,
            "run this once where there is a network and copy the cache folder, or give a file of "
            "these weights as ",
            Setting("weights"),
            parameter="weights",
        ) from error


def build_text_tower(model: dict[str, Any], pretraining: dict[str, Any]) -> nn.Module:
    """The text tower alone, randomly initialised; arguments as for `clip.build_tower`."""
    from open_clip.model import _build_text_tower

    quick_gelu = bool(model.get("quick_gelu") or pretraining.get("quick_gelu"))
    tower: nn.Module = _build_text_tower(model["embed_dim"], model["text_cfg"], quick_gelu)
    return tower


def select_text_tower(weights: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Tensors of the text tower of a whole model, under a prefix or beside the image tower's."""
    prefixed = {
        name.removeprefix(TEXT_PREFIX): tensor
        for name, tensor in weights.items()
        if name.startswith(TEXT_PREFIX)
    }
    tower = prefixed or {
        name: tensor
        for name, tensor in weights.items()
        if not name.startswith(TOWER_PREFIX) and name not in NEITHER_TOWER
    }
    if "token_embedding.weight" not in tower:
        raise BackboneError(
            f"{path} holds no text encoder",
            "give a file of the whole CLIP, with both encoders, as ",
            Setting("weights"),
            parameter="weights",
        )
    return tower


def load_tokenizer(architecture: str) -> Callable[[list[str]], Tensor]:
    """The tokenizer of an architecture; that of OpenAI's CLIP is part of open_clip."""
    import open_clip

    try:
        tokenizer: Callable[[list[str]], Tensor] = open_clip.get_tokenizer(architecture)
    except (OSError, ImportError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BackboneError(
            f"the tokenizer of {architecture} cannot be loaded: {reason}",
            "use a CLIP with the tokenizer of OpenAI's, such as ",
            Setting("backbone", "clip-vit-b16"),
            parameter="backbone",
        ) from error
    return tokenizer
