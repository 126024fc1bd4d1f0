"""The backbone for whoever names none: CLIP, or the built-in encoder where there is no network."""

from difficulty_service.backbones import BACKBONES, DEFAULT_BACKBONE
from difficulty_service.backbones.weights_files import CLIP_FILENAMES, locate_weights
from difficulty_service.base.errors import BackboneError

BUILTIN = "builtin"


def default_backbone() -> tuple[str, list[str]]:
    """The best backbone that can be had; downloads its weights where they are not cached.

    Returns:
        Its name, and warnings, one sentence each: that the weights of the default backbone are
        missing, so that the small network of the package takes its place.
    """
    repository = BACKBONES[DEFAULT_BACKBONE].repository or ""
    try:
        locate_weights(None, DEFAULT_BACKBONE, repository, CLIP_FILENAMES)
    except BackboneError as error:
        return BUILTIN, [
            f"{error.problem}; the backbone is therefore {BUILTIN}, a small network that tells "
            f"photographs apart less well than {DEFAULT_BACKBONE} does"
        ]
    return DEFAULT_BACKBONE, []
