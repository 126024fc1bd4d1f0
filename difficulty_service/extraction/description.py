"""The description of a feature store: where its features come from."""

from importlib.metadata import version
from typing import Any

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.task import ExtractionTask
from difficulty_service.feature_store.store import CONTAINERS

CHOICES = ("split", "image_column", "label_column", "id_column", "text_column", "limit")
"""Options that choose the samples of a dataset and their ids."""


def describe_features(
    task: ExtractionTask, backbone: Backbone, location: str, reading: DatasetOptions
) -> dict[str, Any]:
    """JSON values by which a store is recognised when it is resumed, merged or scored.

    Args:
        task: The dataset and how to extract its features.
        backbone: The backbone that the task names, loaded.
        location: Location of the dataset, as the user gave it.
        reading: Options by which the dataset was read.
    """
    dataset, network, options = task.dataset, task.network, task.options
    decoding = {
        "mode": options.mode,
        "decoder": options.decoder,
        "max_pixels": options.max_pixels,
    }
    return {
        "dataset": location,
        "dataset_options": {
            name: value for name in CHOICES if (value := getattr(reading, name)) is not None
        },
        "fingerprint": dataset.fingerprint,
        **({CONTAINERS: dataset.containers} if dataset.containers else {}),
        "class_names": list(dataset.class_names),
        "num_samples": len(dataset.labels),
        "num_shards": dataset.num_shards,
        "shard_size": dataset.shard_size,
        "backbone": backbone.name,
        "weights_sha256": backbone.weights_sha256,
        "features": network.features,
        "feature_dim": backbone.feature_dim,
        "precision": str(network.precision).removeprefix("torch."),
        **({"precision_pilot": dict(pilot)} if (pilot := options.precision_pilot) else {}),
        "flip": network.flip,
        "preprocessing": backbone.preprocessing.describe(),
        **({"modality": "text"} if dataset.modality == "text" else decoding),
        **({"corruption": str(options.corruption)} if options.corruption else {}),
        "augment_runs": options.augment_runs,
        "seed": options.seed,
        "package_version": version("difficulty-service"),
    }
