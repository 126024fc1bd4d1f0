"""What is learned from and judged on: images, features or texts, with ids, labels and splits."""

from collections.abc import Callable

import torch

from difficulty_service.errors import ConfigError
from trainer.config import DataConfig, Kind
from trainer.data.classes import match_classes
from trainer.data.features import open_feature_samples, open_feature_splits
from trainer.data.image_splits import (
    open_image_samples,
    open_image_splits,
    open_test_images,
)
from trainer.data.splits import Splits
from trainer.data.texts import open_text_samples, open_text_splits
from trainer.samples import InputSpec, Samples

__all__ = [
    "SPLITS",
    "Splits",
    "match_classes",
    "open_samples",
    "open_splits",
    "open_test_images",
]


SPLITS: dict[Kind, Callable[[DataConfig, int, torch.device], Splits]] = {
    "images": open_image_splits,
    "features": open_feature_splits,
    "text": open_text_splits,
}


def open_splits(config: DataConfig, seed: int, device: torch.device) -> Splits:
    """Opens what a recipe learns from and is judged on.

    Args:
        config: Of the recipe.
        seed: Of the samples held out and of label noise; nothing else depends on it.
        device: Where inputs are kept, or batches go.

    Raises:
        DatasetError: A dataset cannot be read, or those named do not fit together.
    """
    return SPLITS[config.kind](config, seed, device)


def open_samples(
    config: DataConfig,
    location: str,
    spec: InputSpec,
    device: torch.device,
    *,
    split: str | None = None,
    label_column: str | None = None,
) -> Samples:
    """Opens one more dataset to judge a trained model on; its classes stay its own.

    `match_classes` gives its labels in the model's terms, where it is of the same classes.

    Args:
        config: Of the recipe that the model learned by.
        location: Of the dataset.
        spec: Of the model.
        device: Where inputs are kept, or batches go.
        split: Sub-folder or named split.
        label_column: None finds it.

    Raises:
        DatasetError: It cannot be read, or does not fit the model.
        ConfigError: A feature store is to have a split or a column of labels.
    """
    if config.kind == "features":
        if split is not None or label_column is not None:
            raise ConfigError(
                f"{location}: a probe is judged on a feature store, which has its labels in it "
                "and no splits; leave --split and --label-column out"
            )
        return open_feature_samples(location, spec, device)
    open_labelled = open_text_samples if config.kind == "text" else open_image_samples
    return open_labelled(config, location, spec, device, split, label_column)
