"""Datasets of the trainer: images, features, texts or trees with ids, labels and splits."""

from dataclasses import replace

import torch

from difficulty_service.base.errors import ConfigError, Setting
from trainer.config import Data, FeatureData, ImageData, TextData, TreeData
from trainer.data.distributions import read_distributions
from trainer.data.features import open_feature_samples, open_feature_splits
from trainer.data.image_splits import (
    open_image_samples,
    open_image_splits,
    open_test_images,
    open_unlabelled_images,
)
from trainer.data.splits import Splits, match_classes
from trainer.data.texts import open_text_samples, open_text_splits, open_unlabelled_texts
from trainer.data.trees import open_tree_samples, open_tree_splits, open_unlabelled_trees
from trainer.samples import InputSpec, Samples

__all__ = [
    "Splits",
    "match_classes",
    "open_samples",
    "open_splits",
    "open_test_images",
    "open_unlabelled",
]


def open_splits(
    config: Data, seed: int, device: torch.device, tokenizer: str | None = None
) -> Splits:
    """Opens the training, validation and test samples of a recipe."""
    splits = _open(config, seed, device, tokenizer)
    if isinstance(config, TreeData) or config.distribution_column is None:
        return splits
    shares = read_distributions(splits.train, config, config.distribution_column)
    return replace(splits, train=replace(splits.train, distributions=shares))


def _open(config: Data, seed: int, device: torch.device, tokenizer: str | None) -> Splits:
    match config:
        case ImageData():
            return open_image_splits(config, seed, device)
        case FeatureData():
            return open_feature_splits(config, seed, device)
        case TextData():
            return open_text_splits(config, seed, device, tokenizer)
        case TreeData():
            return open_tree_splits(config, seed, device)


def open_samples(
    config: Data,
    location: str,
    spec: InputSpec,
    device: torch.device,
    *,
    split: str | None = None,
    label_column: str | None = None,
) -> Samples:
    """Opens another dataset to evaluate a trained model on, with the class indices of that dataset.

    `match_classes` converts its labels to the class indices of the model.
    """
    if config.kind == "features":
        if split is not None or label_column is not None:
            raise ConfigError(
                f"{location}: a probe is evaluated on a feature store, which holds its labels and "
                "has no splits",
                "leave out ",
                Setting("split"),
                " and ",
                Setting("label_column"),
            )
        return open_feature_samples(location, spec, device)
    if config.kind == "images":
        return open_image_samples(config, location, spec, device, split, label_column)
    opened = open_text_samples if config.kind == "text" else open_tree_samples
    return opened(config, location, spec, device, split, label_column)


def open_unlabelled(
    config: Data,
    location: str,
    spec: InputSpec,
    device: torch.device,
    *,
    split: str | None = None,
    column: str | None = None,
) -> Samples:
    """Opens a dataset without regard to its labels, which it need not have.

    The column is that of the images, texts or trees; None is the one of the recipe, for images only
    where the dataset is of the kind of the training dataset, or else found by its name.
    """
    match config:
        case FeatureData():
            if split is not None or column is not None:
                raise ConfigError(
                    f"{location}: a probe takes a feature store, which has no splits or columns",
                    "leave out ",
                    Setting("split"),
                    " and ",
                    Setting("column"),
                )
            return open_feature_samples(location, spec, device)
        case ImageData():
            return open_unlabelled_images(config, location, spec, device, split, column)
        case TextData() | TreeData():
            words = config if column is None else config.model_copy(update={"text_column": column})
            is_text = isinstance(config, TextData)
            opened = open_unlabelled_texts if is_text else open_unlabelled_trees
            return opened(words, location, spec, device, split)
