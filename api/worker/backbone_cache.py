"""Keeps the backbone of the previous job, as the next job usually needs the same one."""

import torch

from api.bounded_cache import BoundedCache
from difficulty_service.backbones import Loader, load_backbone
from difficulty_service.backbones.backbone import Backbone, BackboneOptions


def cached_loader(load: Loader = load_backbone) -> Loader:
    """A loader that keeps one backbone, and returns it as long as the same one is requested."""
    cache: BoundedCache[tuple[str, BackboneOptions], Backbone] = BoundedCache(capacity=1)

    def load_cached(name: str, options: BackboneOptions) -> Backbone:
        def load_into_freed_memory() -> Backbone:
            if options.device.type == "cuda":
                torch.cuda.empty_cache()
            return load(name, options)

        return cache.get((name, options), load_into_freed_memory)

    return load_cached
