"""The description of a feature store: where its features come from."""

from importlib.metadata import version

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.base.contract import given
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.task import ExtractionTask
from difficulty_service.features.description import FeatureDescription, RecordedOptions


def describe_features(
    task: ExtractionTask, backbone: Backbone, location: str, reading: DatasetOptions
) -> FeatureDescription:
    """What a store is recognised by when it is resumed, merged or scored."""
    dataset, network, options = task.dataset, task.network, task.options
    return FeatureDescription(
        dataset=location,
        dataset_options=RecordedOptions.of_options(reading),
        fingerprint=dataset.fingerprint,
        class_names=tuple(dataset.class_names),
        num_samples=len(dataset.labels),
        num_shards=dataset.num_shards,
        shard_size=dataset.shard_size,
        backbone=backbone.name,
        weights_sha256=backbone.weights_sha256,
        feature_dim=backbone.feature_dim,
        preprocessing=backbone.preprocessing.describe(),
        augment_runs=options.augment_runs,
        seed=options.seed,
        package_version=version("difficulty-service"),
        **network.describe(),
        **given(
            containers=dataset.containers,
            precision_pilot=options.precision_pilot,
            corruption=options.corruption and str(options.corruption),
        ),
        **({"modality": "text"} if dataset.modality == "text" else options.describe()),
    )
