"""The description of a feature store: where its features come from."""

from importlib.metadata import version
from typing import Any

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.extraction.task import ExtractionTask


def describe_features(task: ExtractionTask, backbone: Backbone, location: str) -> dict[str, Any]:
    """JSON values by which a store is recognised when it is resumed, merged or scored.

    Args:
        task: The dataset and how to extract its features.
        backbone: The backbone that the task names, loaded.
        location: Location of the dataset, as the user gave it.
    """
    dataset, network, options = task.dataset, task.network, task.options
    return {
        "dataset": location,
        "fingerprint": dataset.fingerprint,
        "class_names": list(dataset.class_names),
        "num_samples": len(dataset.labels),
        "num_shards": dataset.num_shards,
        "shard_size": dataset.shard_size,
        "backbone": backbone.name,
        "weights_sha256": backbone.weights_sha256,
        "features": network.features,
        "feature_dim": backbone.feature_dim,
        "precision": str(network.precision).removeprefix("torch."),
        "preprocessing": backbone.preprocessing.describe(),
        "mode": options.mode,
        "decoder": options.decoder,
        "max_pixels": options.max_pixels,
        "augment_runs": options.augment_runs,
        "seed": options.seed,
        "package_version": version("difficulty-service"),
    }
