"""The names of the encoders of texts, and which backbones take which samples."""

from dataclasses import dataclass

from difficulty_service.base.errors import BackboneError, Setting

BUILTIN_TEXT = "builtin-text"
BUILTIN_TEXT_DIM = 1024
TRANSFORMERS_PREFIX = "transformers:"


@dataclass(frozen=True)
class TextSpec:
    """An encoder of transformers with a short name.

    Attributes:
        repository: Its name on the hub.
        feature_dim: Length of its vectors.
        parameters: Number of parameters, in millions.
        licence: Licence of its weights, as the hub calls it.
    """

    description: str
    repository: str
    feature_dim: int
    parameters: float
    licence: str


TEXT_BACKBONES = {
    "modernbert-base": TextSpec(
        "ModernBERT base by Answer.AI and LightOn, English",
        "answerdotai/ModernBERT-base",
        *(768, 149.0, "apache-2.0"),
    ),
    "qwen3-embedding-0.6b": TextSpec(
        "Qwen3 Embedding 0.6B by Alibaba, many languages",
        "Qwen/Qwen3-Embedding-0.6B",
        *(1024, 595.8, "apache-2.0"),
    ),
    "embeddinggemma-300m": TextSpec(
        "EmbeddingGemma by Google, many languages",
        "google/embeddinggemma-300m",
        *(768, 307.6, "gemma"),
    ),
}
"""Encoders of texts that are downloaded, by their names."""


def text_backbone_names() -> list[str]:
    """All names, the default first; the last is a pattern for a whole library."""
    return [BUILTIN_TEXT, *TEXT_BACKBONES, f"{TRANSFORMERS_PREFIX}NAME"]


def modality_of(name: str) -> str:
    """`text` for the name of an encoder of texts, otherwise `image`."""
    named = name == BUILTIN_TEXT or name in TEXT_BACKBONES
    return "text" if named or name.startswith(TRANSFORMERS_PREFIX) else "image"


def require_modality(backbone: str, modality: str) -> None:
    """Refuses a backbone for samples of another kind than its own, `image` or `text`."""
    if modality_of(backbone) == modality:
        return
    if modality == "text":
        names = " or ".join(text_backbone_names())
        raise BackboneError(
            f"{backbone} encodes images, and the samples are texts",
            f"those for texts are {names}",
            parameter="backbone",
        )
    raise BackboneError(
        f"{backbone} encodes texts, and the samples are images",
        "set ",
        Setting("modality", "text"),
        " for the texts of a table",
        parameter="backbone",
    )
