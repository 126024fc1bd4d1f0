"""What every node needs to turn shards into features, and what must agree between nodes."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.datasets.sample import Dataset
from difficulty_service.errors import EngineError
from difficulty_service.extraction.batches import ExtractOptions
from difficulty_service.extraction.shards import Extracted, extract_shard
from difficulty_service.images.preparation import decoder_name
from difficulty_service.process_setup import keep_freed_memory

REPORT_SECONDS = 0.5


@dataclass(frozen=True)
class Recipe:
    """What turns a shard into features, on any node.

    Attributes:
        dataset: Travels to the nodes; its images must be reachable from there.
        backbone: Its name.
        network: What to build it with.
        options: How images become features.
    """

    dataset: Dataset
    backbone: str
    network: BackboneOptions
    options: ExtractOptions


def identity(recipe: Recipe, weights_sha256: str) -> dict[str, str]:
    """What must agree between nodes for features that belong together."""
    decoder = decoder_name() if recipe.options.mode == "fast" else "pillow"
    return {
        "weights": weights_sha256,
        "decoder": decoder,
        "difficulty-service": version("difficulty-service"),
        "torch": torch.__version__,
    }


def require_same(host: str, found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Refuses a node whose features would not belong with the others.

    Raises:
        EngineError: Weights or libraries differ; the message names the node and each difference.
    """
    different = [
        f"{name} {found[name][:24]}, not {wanted[:24]}"
        for name, wanted in expected.items()
        if found[name] != wanted
    ]
    if different:
        raise EngineError(
            f"the node {host} has {'; '.join(different)}: features of different weights or "
            "decoders do not belong together; install the same on every node"
        )


class ShardExtractor:
    """Extracts shards, one after another, with the backbone loaded once."""

    def load(self, recipe: Recipe) -> dict[str, str]:
        """Loads the backbone; says what must be the same on every node."""
        keep_freed_memory()
        torch.set_num_threads(recipe.options.workers)
        self._recipe = recipe
        self._backbone = load_backbone(recipe.backbone, recipe.network)
        return identity(recipe, self._backbone.weights_sha256)

    def extract(self, shard: int, counter: Any) -> Extracted:  # noqa: ANN401 - an actor's handle
        """Features of a shard, and the images without."""
        done = bad = 0
        reported = time.monotonic()

        def report(images: int, bad_images: int) -> None:
            nonlocal done, bad, reported
            done, bad = done + images, bad + bad_images
            if time.monotonic() - reported >= REPORT_SECONDS:
                reported = time.monotonic()
                counter.report.remote(shard, done, bad)

        recipe = self._recipe
        return extract_shard(recipe.dataset, shard, self._backbone, recipe.options, report)
