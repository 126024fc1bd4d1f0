"""Features that were extracted before: the inputs of a probe."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.listing import choose_positions
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.errors import ConfigError, DatasetError
from difficulty_service.feature_store.store import open_store
from trainer.config import DataConfig
from trainer.data.classes import are_numbered, match_classes, refuse_shared_ids
from trainer.data.splits import Splits, hold_out, with_label_noise
from trainer.data.statistics import mean_and_std
from trainer.samples import InputSpec, Samples

_SHOWN = 5


@dataclass(frozen=True)
class FeatureInputs:
    """Features of a folder, or of one split of it.

    Attributes:
        features: Of the whole folder, on the device; splits share it. Float32 of shape
            (all samples, dim).
        positions: Of this split's samples, on the CPU. Shape (samples,).
    """

    features: Tensor
    positions: Tensor

    def select(self, positions: Tensor) -> "FeatureInputs":
        """One split of them; positions of shape (samples,)."""
        return replace(self, positions=self.positions[positions])

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:  # noqa: ARG002
        """As `trainer.samples.Inputs` says; draws change nothing."""
        for batch in plan:
            yield self.features[self.positions[batch].to(self.features.device)]


@dataclass(frozen=True)
class _Rows:
    """One row per sample of a folder of features, in its order."""

    sample_ids: Sequence[str]
    labels: Tensor
    class_names: tuple[str, ...]
    features: Tensor


def open_feature_splits(config: DataConfig, seed: int, device: torch.device) -> Splits:
    """Opens and splits folders of features.

    Of a sample with several augmentation runs only the first is used. Mean and standard deviation
    are of the training features. Labels of the dataset `config.labels` replace those of the
    training folder only.

    Args:
        config: Of the recipe.
        seed: Of the samples held out and of label noise.
        device: Where features are kept.

    Raises:
        ConfigError: The recipe asks for what features do not have.
        DatasetError: Folders do not fit together, or the dataset of labels lacks samples.
        FeatureStoreError: A folder is incomplete, damaged or no folder of features.
    """
    if config.augmentation != "none":
        raise ConfigError(
            f"data.augmentation {config.augmentation!r} has no meaning for features; set 'none'"
        )
    rows = _relabel(_read(config.train), config)
    chosen = torch.from_numpy(choose_positions(rows.labels.int().numpy(), config.limit))
    inputs = FeatureInputs(rows.features.to(device), torch.arange(len(rows.labels)))
    share = 0.0 if isinstance(config.validation, str) else config.validation
    learned, held_out = hold_out(rows.labels[chosen], share, seed)
    train = _select(rows, inputs, chosen[learned])
    mean, std = mean_and_std(rows.features, chosen[learned])
    spec = InputSpec((rows.features.shape[1],), mean, std)
    validation = _select(rows, inputs, chosen[held_out]) if len(held_out) else None
    if isinstance(config.validation, str):
        validation = _open_judged(config.validation, spec, device, train)
        if config.validation == config.train:
            refuse_shared_ids(rows.sample_ids, validation.sample_ids, config.validation)
    return Splits(
        train=with_label_noise(train, config.label_noise, seed),
        validation=validation,
        test=_open_judged(config.test, spec, device, train) if config.test else None,
        spec=spec,
        all_ids=rows.sample_ids,
    )


def open_feature_samples(location: str, spec: InputSpec, device: torch.device) -> Samples:
    """Opens a folder of features to judge a model on; its classes stay its own.

    Raises:
        DatasetError: Its features are of another length.
        FeatureStoreError: It is incomplete, damaged or no folder of features.
    """
    rows = _read(location)
    if rows.features.shape[1:] != spec.shape:
        raise DatasetError(
            f"{location!r} holds features of {rows.features.shape[1]} dimensions, and the model "
            f"takes {spec.shape[0]}; extract them by the backbone of the training features"
        )
    positions = torch.arange(len(rows.labels))
    return _select(rows, FeatureInputs(rows.features.to(device), positions), positions)


def _open_judged(location: str, spec: InputSpec, device: torch.device, train: Samples) -> Samples:
    return match_classes(open_feature_samples(location, spec, device), train.class_names, location)


def _read(location: str) -> _Rows:
    store = open_store(Path(location))
    ids: list[str] = []
    labels, features = [], []
    for shard in range(store.num_parts):
        part = store.read_part(shard)
        # The rows of a sample are together; its first is of the lowest run.
        first = [
            row
            for row, sample_id in enumerate(part.sample_ids)
            if not row or sample_id != part.sample_ids[row - 1]
        ]
        ids += [part.sample_ids[row] for row in first]
        labels.append(part.labels[first])
        if first:  # a part whose images all failed has no dimensions either
            features.append(part.features[first])
    if not ids:
        raise DatasetError(f"{location!r} holds no features; none of its images could be read")
    return _Rows(ids, torch.cat(labels), store.class_names, torch.cat(features))


def _relabel(rows: _Rows, config: DataConfig) -> _Rows:
    """The rows with the labels of another dataset, by sample id.

    Raises:
        DatasetError: Some of them are not in it.
    """
    if config.labels is None:
        return rows
    options = DatasetOptions(
        split=config.split,
        image_column=config.image_column,
        label_column=config.label_column,
        id_column=config.id_column,
    )
    dataset = open_dataset(config.labels, options)
    label_of = dict(zip(dataset.sample_ids, dataset.labels.tolist(), strict=True))
    missing = [sample_id for sample_id in rows.sample_ids if sample_id not in label_of]
    if missing:
        raise DatasetError(
            f"{len(missing)} of {len(rows.sample_ids)} samples of {config.train!r} have no label "
            f"in {config.labels!r}, first {missing[:_SHOWN]}, where ids are like "
            f"{dataset.sample_ids[0]!r}; give the dataset that the features were extracted from, "
            "with the same split and id_column"
        )
    labels = torch.tensor([label_of[sample_id] for sample_id in rows.sample_ids])
    # A column of plain integers has no names; the folder of features knows what they mean.
    keeps_names = are_numbered(dataset.class_names) and len(dataset.class_names) <= len(
        rows.class_names
    )
    names = rows.class_names if keeps_names else dataset.class_names
    return replace(rows, labels=labels, class_names=names)


def _select(rows: _Rows, inputs: FeatureInputs, positions: Tensor) -> Samples:
    ids = [rows.sample_ids[position] for position in positions.tolist()]
    return Samples(ids, rows.labels[positions], rows.class_names, inputs.select(positions))
