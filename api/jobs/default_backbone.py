"""The backbone of jobs that name none, which is settled once, when the service starts.

Each job is stored with its backbone, so that a later start with other weights changes none.
"""

import structlog

from api.settings import Settings
from difficulty_service.extraction.default_backbone import LARGE, default_of_later_images


def settle_default_backbone(settings: Settings) -> Settings:
    """The settings with the name of the default backbone, whether or not they had one.

    What an operator names stays, also where its weights are missing. So does an open choice where
    no jobs are taken, or where jobs may not use the network that would take its place.
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
