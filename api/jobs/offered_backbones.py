"""The backbones that jobs may use.

A library of networks has thousands of names, of which each may have this server download and run
weights that anybody has published, or read a folder of this server. So the operator names those.
"""

from api.settings import Settings
from difficulty_service.backbones import BACKBONES
from difficulty_service.backbones.text_encoders import BUILTIN_TEXT, TEXT_BACKBONES


def offered_backbones(settings: Settings) -> list[str]:
    """Their names, in the order in which they are shown."""
    named = settings.backbones or (*BACKBONES, BUILTIN_TEXT, *TEXT_BACKBONES)
    default = settings.default_backbone
    # Whoever restricts the backbones may have left out the default one on purpose.
    usual = () if default is None or settings.backbones else (default,)
    return list(dict.fromkeys((*named, *settings.more_backbones, *usual)))


def is_offered(name: str, settings: Settings) -> bool:
    """Whether jobs may use a backbone; one without a colon that nobody knows is refused later."""
    is_of_its_own = not settings.backbones and ":" not in name
    return is_of_its_own or name in offered_backbones(settings)
