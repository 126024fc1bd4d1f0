"""Keeps the backbone of the job before, as the next one most often wants the same."""

import torch

from difficulty_service.backbones import Loader, load_backbone
from difficulty_service.backbones.backbone import Backbone, BackboneOptions


def keep_last(load: Loader = load_backbone) -> Loader:
    """A loader that has one backbone at a time, and gives it again while nothing else is asked."""
    kept: dict[tuple[str, BackboneOptions], Backbone] = {}

    def load_or_give(name: str, options: BackboneOptions) -> Backbone:
        if (name, options) not in kept:
            # The old one goes first: a device may have no room for two.
            kept.clear()
            if options.device.type == "cuda":
                torch.cuda.empty_cache()
            kept[name, options] = load(name, options)
        return kept[name, options]

    return load_or_give
