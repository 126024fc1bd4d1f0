"""Feature stores as splits: the inputs of a probe."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from difficulty_service.base.device_copies import send
from difficulty_service.base.errors import DatasetError, FeatureStoreError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.listing import choose_positions
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.features.array_files import open_features
from difficulty_service.features.arrays import ArrayFeatures
from difficulty_service.features.description import FeatureDescription
from trainer.config import FeatureData
from trainer.data.splits import (
    WITHOUT_TEST,
    Splits,
    are_numbers,
    hold_out,
    match_classes,
    mean_and_std,
    named_by,
    refuse_shared_ids,
    with_label_noise,
)
from trainer.own_code import find_own, is_object
from trainer.samples import InputSpec, Samples

_SHOWN = 5


@dataclass(frozen=True)
class FeatureInputs:
    """Features of a feature store, or of one split of it.

    Attributes:
        features: Features of the whole store, on the device, shared by its splits. Float32 of
            shape (all samples, dim).
        positions: Positions of this split's samples, on the CPU. Shape (samples,).
    """

    features: Tensor
    positions: Tensor

    def select(self, positions: Tensor) -> "FeatureInputs":
        """The features of one split; positions of shape (samples,)."""
        return replace(self, positions=self.positions[positions])

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:  # noqa: ARG002
        """Yields batches of features without augmentation; see `trainer.samples.Inputs`."""
        for batch in plan:
            yield self.features[send(self.positions[batch], self.features.device)]


@dataclass(frozen=True)
class _Rows:
    """The rows of a feature store or of arrays, one per sample, in order, and their description."""

    sample_ids: Sequence[str]
    labels: Tensor
    class_names: tuple[str, ...]
    features: Tensor
    description: FeatureDescription
    warnings: tuple[str, ...] = ()


def open_feature_splits(config: FeatureData, seed: int, device: torch.device) -> Splits:
    """Opens and splits feature stores.

    Only the first of a sample's augmentation runs is used. Mean and standard deviation are
    computed over the training features. Labels of the dataset `config.labels` replace those of the
    training store only.
    """
    _require_features(config)
    with named_by("data.train", config.train):
        rows = _read(config.train)
    rows = _relabel(rows, config)
    chosen = torch.from_numpy(choose_positions(rows.labels.int().numpy(), config.limit))
    inputs = FeatureInputs(rows.features.to(device), torch.arange(len(rows.labels)))
    kept, held_out = hold_out(rows.labels[chosen], config.validation, seed)
    train = _select(rows, inputs, chosen[kept])
    mean, std = mean_and_std(rows.features, chosen[kept])
    spec = InputSpec((rows.features.shape[1],), mean, std)
    validation = _select(rows, inputs, chosen[held_out]) if len(held_out) else None
    if isinstance(config.validation, str):
        with named_by("data.validation", config.validation):
            validation = _open_matching(config.validation, spec, device, train, rows)
        if config.validation == config.train:
            refuse_shared_ids(rows.sample_ids, validation.sample_ids, config.validation)
    test = None
    if config.test is not None:
        with named_by("data.test", config.test):
            test = _open_matching(config.test, spec, device, train, rows)
    return Splits(
        train=with_label_noise(train, config.label_noise, seed),
        validation=validation,
        test=test,
        spec=spec,
        all_ids=rows.sample_ids,
    )


def open_feature_samples(location: str, spec: InputSpec, device: torch.device) -> Samples:
    """Opens a feature store to evaluate a model on, with the class indices of that store."""
    return _select_all(_read(location), location, spec, device)


def _require_features(config: FeatureData) -> None:
    """Refuses a recipe whose features do not exist, naming all of their keys."""
    missing = {
        f"data.{key}": location
        for key in ("train", "validation", "test")
        if isinstance(location := getattr(config, key), str)
        and not is_object(location)
        and not Path(location).exists()
    }
    if missing:
        shown = " and ".join(f'{key} = "{location}"' for key, location in missing.items())
        changes = " ".join(f"--set {key}=FOLDER" for key in missing)
        without = f", or {WITHOUT_TEST}" if "data.test" in missing else ""
        raise FeatureStoreError(
            f"{shown}: there is no such folder or file",
            f"name what `difficulty extract` wrote, in the recipe or by {changes}{without}",
        )


def _open_matching(
    location: str, spec: InputSpec, device: torch.device, train: Samples, train_rows: _Rows
) -> Samples:
    """Other features of the kind and with the classes of the training features."""
    rows = _read(location)
    samples = match_classes(_select_all(rows, location, spec, device), train.class_names, location)
    _require_same_kind(train_rows, rows, location)
    return samples


def _require_same_kind(train: _Rows, other: _Rows, location: str) -> None:
    """Refuses features that another network made, as far as it is known what made them."""
    if different := train.description.known_differences(
        other.description, ("in data.train", "here")
    ):
        raise DatasetError(
            f"{location!r} holds other features than data.train ({'; '.join(different)})",
            "extract them as those of data.train",
        )


def _select_all(rows: _Rows, location: str, spec: InputSpec, device: torch.device) -> Samples:
    if rows.features.shape[1:] != spec.shape:
        raise DatasetError(
            f"{location!r} holds features of {rows.features.shape[1]} dimensions, and the model "
            f"takes {spec.shape[0]}",
            "extract them with the backbone of the training features",
        )
    positions = torch.arange(len(rows.labels))
    return _select(rows, FeatureInputs(rows.features.to(device), positions), positions)


def _read(location: str) -> _Rows:
    store = find_own(location) if is_object(location) else open_features(Path(location))
    if isinstance(store, ArrayFeatures):
        return _of_arrays(store)
    ids: list[str] = []
    labels, features = [], []
    for shard in range(store.num_shards):
        table = store.read_shard(shard)
        # The rows of a sample are together; its first is of the lowest run.
        first = [
            row
            for row, sample_id in enumerate(table.sample_ids)
            if not row or sample_id != table.sample_ids[row - 1]
        ]
        ids += [table.sample_ids[row] for row in first]
        labels.append(table.labels[first])
        if first:  # a part whose images all failed has no dimensions either
            features.append(table.features[first])
    if not ids:
        raise DatasetError(f"{location!r} holds no features: none of its images could be read")
    return _Rows(ids, torch.cat(labels), store.class_names, torch.cat(features), store.description)


def _of_arrays(arrays: ArrayFeatures) -> _Rows:
    features, ids = arrays.features.detach(), arrays.sample_ids.to_pylist()
    left_out = len(features) - len(ids)
    if arrays.positions is not None:
        features = features[arrays.positions.to(features.device)]
    sentence = (
        f"{left_out:,} of {len(arrays.features):,} rows are left out, which have no label, or NaN "
        "or infinity among their features"
    )
    warnings = (sentence,) if left_out else ()
    rows = features.to("cpu", torch.float32)
    return _Rows(ids, arrays.labels, arrays.class_names, rows, arrays.description, warnings)


def _relabel(rows: _Rows, config: FeatureData) -> _Rows:
    """Replaces the labels of rows by those of another dataset, by sample id."""
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
            f"{dataset.sample_ids[0]!r}",
            "give the dataset that the features were extracted from, "
            "with the same data.split and data.id_column",
        )
    labels = torch.tensor([label_of[sample_id] for sample_id in rows.sample_ids])
    names = dataset.class_names
    if are_numbers(names) and not are_numbers(rows.class_names):
        # A column of plain integers has no class names, but the feature store may have them.
        places = torch.tensor([int(name) for name in names])
        if int(places.max()) < len(rows.class_names):
            labels, names = places[labels], rows.class_names
    return replace(rows, labels=labels, class_names=names)


def _select(rows: _Rows, inputs: FeatureInputs, positions: Tensor) -> Samples:
    ids = [rows.sample_ids[position] for position in positions.tolist()]
    chosen = inputs.select(positions)
    return Samples(ids, rows.labels[positions], rows.class_names, chosen, warnings=rows.warnings)
