"""The names of the encoders of texts, and which backbones take which samples."""

from difficulty_service.base.errors import BackboneError, Setting

BUILTIN_TEXT = "builtin-text"
BUILTIN_TEXT_DIM = 1024
TRANSFORMERS_PREFIX = "transformers:"


def text_backbone_names() -> list[str]:
    """All names, the default first; the last is a pattern for a whole library."""
    return [BUILTIN_TEXT, f"{TRANSFORMERS_PREFIX}NAME"]


def modality_of(name: str) -> str:
    """`text` for the name of an encoder of texts, otherwise `image`."""
    return "text" if name == BUILTIN_TEXT or name.startswith(TRANSFORMERS_PREFIX) else "image"


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
