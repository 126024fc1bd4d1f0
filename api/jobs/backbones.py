"""The backbones that jobs may use, and that of jobs that name none.

A library of networks has thousands of names, of which each may have this server download and run
weights that anybody has published, or read a folder of this server. So the operator names those.
"""

import structlog

from api.settings import Settings
from difficulty_service.backbones import BACKBONES
from difficulty_service.backbones.text_encoders import BUILTIN_TEXT, TEXT_BACKBONES
from difficulty_service.extraction.default_backbone import LARGE, default_of_later_images


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


def settle_default_backbone(settings: Settings) -> Settings:
    """The settings with the name of the default backbone, whether or not they had one.

    What an operator names stays, also where its weights are missing. So does an open choice where
    no jobs are taken, or where jobs may not use the network that would take its place. Each job is
    stored with its backbone, so that a later start with other weights changes none.
    """
    may_fall_back = not settings.backbones or LARGE in settings.backbones
    if settings.default_backbone is not None or not settings.takes_jobs or not may_fall_back:
        return settings
    chosen = default_of_later_images()
    for reason in chosen.warnings:
        structlog.get_logger().warning(
            "default-backbone",
            backbone=chosen.name,
            reason=reason,
            remedy="start again where the weights are, or name a backbone in "
            "DIFFICULTY_DEFAULT_BACKBONE",
        )
    return settings.model_copy(update={"default_backbone": chosen.name})
