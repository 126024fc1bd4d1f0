"""Feature stores as splits."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from difficulty_service.base.errors import DatasetError, FeatureStoreError
from tests.factories import store_of
from trainer.config import FeatureData
from trainer.data import open_samples, open_splits
from trainer.samples import Samples

CPU = torch.device("cpu")
NAMES = ("bird", "cat", "dog")

WriteStore = Callable[..., str]


def features_of(sample_ids: Sequence[str]) -> torch.Tensor:
    """Features that identify their sample."""
    numbers = torch.tensor([float(sample_id.rpartition("#")[2]) for sample_id in sample_ids])
    return torch.stack((numbers, -numbers, numbers.square()), dim=1)


def inputs_of(samples: Samples) -> torch.Tensor:
    plan = torch.arange(len(samples)).split(7)
    return torch.cat(list(samples.inputs.batches(plan, None)))


@pytest.fixture
def write_store(tmp_path: Path) -> WriteStore:
    """Writes thirty samples in two parts, with `runs` rows each; gives the folder."""

    def write(
        name: str = "features",
        runs: int = 0,
        class_names: tuple[str, ...] = NAMES,
        dim: int = 3,
        **made_by: object,
    ) -> str:
        ids = [f"train.parquet#{number}" for number in range(30)]
        features = features_of(ids)[:, None, :dim].repeat(1, max(1, runs), 1)
        features[:, 1:] += 1000  # later runs differ, so that taking one of them shows
        described = {"class_names": class_names, "augment_runs": runs, **made_by}
        store_of(tmp_path / name, features, torch.arange(30) % 3, ids, 18, **described)
        return str(tmp_path / name)

    return write


def test_features_stay_with_their_ids_and_labels(write_store: WriteStore) -> None:
    config = FeatureData(train=write_store(), validation=0.2)

    splits = open_splits(config, 0, CPU)

    assert splits.validation is not None
    assert len(splits.train) == 24
    assert len(splits.validation) == 6
    for samples in (splits.train, splits.validation):
        assert torch.equal(inputs_of(samples), features_of(samples.sample_ids))
        numbers = features_of(samples.sample_ids)[:, 0].long()
        assert torch.equal(samples.labels, numbers % 3)
    assert list(splits.all_ids) == [f"train.parquet#{number}" for number in range(30)]


def test_the_specification_describes_the_training_features(write_store: WriteStore) -> None:
    config = FeatureData(train=write_store(), validation=0.2)

    splits = open_splits(config, 0, CPU)

    values = inputs_of(splits.train)
    assert splits.spec.shape == (3,)
    torch.testing.assert_close(splits.spec.mean, values.mean(dim=0))
    torch.testing.assert_close(splits.spec.std, values.std(dim=0, correction=0))


@pytest.mark.parametrize("key", ["test", "validation"])
def test_features_of_another_backbone_are_refused_by_what_differs(
    write_store: WriteStore, key: str
) -> None:
    train, other = write_store(backbone="builtin"), write_store("other", backbone="clip-vit-b16")
    config = FeatureData(train=train, **{key: other})

    with pytest.raises(
        DatasetError, match=r'other features than data.train \(backbone: "builtin" in data.train'
    ):
        open_splits(config, 0, CPU)


@pytest.mark.parametrize("made_by", [{}, {"backbone": "builtin", "precision": "bfloat16"}])
def test_features_of_an_unknown_backbone_or_another_precision_are_taken(
    write_store: WriteStore, made_by: dict[str, object]
) -> None:
    train = write_store(backbone="builtin", precision="float32")
    config = FeatureData(train=train, test=write_store("other", **made_by))

    splits = open_splits(config, 0, CPU)

    assert splits.test is not None
    assert len(splits.test) == 30


def test_the_first_of_several_augmentation_runs_is_used(write_store: WriteStore) -> None:
    config = FeatureData(train=write_store(runs=3), validation=0.0)

    splits = open_splits(config, 0, CPU)

    assert splits.validation is None
    assert len(splits.train) == 30
    assert torch.equal(inputs_of(splits.train), features_of(splits.train.sample_ids))


def test_a_limit_uses_fewer_samples_and_keeps_all_ids(write_store: WriteStore) -> None:
    config = FeatureData(train=write_store(), validation=0.0, limit=9)

    splits = open_splits(config, 0, CPU)

    assert len(splits.train) == 9
    assert splits.train.labels.bincount().tolist() == [3, 3, 3]
    assert len(splits.all_ids) == 30


def test_labels_of_another_dataset_replace_those_of_the_folder(
    write_store: WriteStore, write_table: Callable[..., str]
) -> None:
    noisy = [(number + 1) % 3 for number in range(30)]
    table = write_table(noisy=noisy)
    config = FeatureData(train=write_store(), validation=0.2, labels=table, label_column="noisy")

    splits = open_splits(config, 0, CPU)

    numbers = features_of(splits.train.sample_ids)[:, 0].long()
    assert torch.equal(splits.train.labels, (numbers + 1) % 3)
    assert splits.train.class_names == NAMES


def test_labels_that_lack_samples_are_refused_with_examples(
    write_store: WriteStore, write_table: Callable[..., str]
) -> None:
    table = write_table(images=[b"not read"] * 12)
    config = FeatureData(train=write_store(), labels=table)

    with pytest.raises(DatasetError, match=r"18 of 30 samples .*first \['train.parquet#12'"):
        open_splits(config, 0, CPU)


def test_test_features_take_the_class_indices_of_training(write_store: WriteStore) -> None:
    config = FeatureData(
        train=write_store(class_names=("dog", "cat", "bird")),
        test=write_store("test"),
    )

    splits = open_splits(config, 0, CPU)

    assert splits.test is not None
    numbers = np.arange(30)
    np.testing.assert_array_equal(splits.test.labels, 2 - numbers % 3)


def test_features_of_another_dimension_are_refused(write_store: WriteStore) -> None:
    config = FeatureData(train=write_store())
    splits = open_splits(config, 0, CPU)

    with pytest.raises(DatasetError, match="of 2 dimensions, and the model takes 3"):
        open_samples(config, write_store("short", dim=2), splits.spec, CPU)


def test_a_validation_folder_that_is_the_training_folder_is_refused(
    write_store: WriteStore,
) -> None:
    folder = write_store()

    with pytest.raises(DatasetError, match=r"30 samples of .* in both"):
        open_splits(FeatureData(train=folder, validation=folder), 0, CPU)


def test_a_folder_without_features_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FeatureStoreError, match="not a feature store"):
        open_splits(FeatureData(train=str(tmp_path)), 0, CPU)


def test_features_have_no_augmentation() -> None:
    with pytest.raises(ValidationError, match=r"augmentation\n *Extra inputs are not permitted"):
        FeatureData.model_validate({"train": "features", "augmentation": "flip"})


def test_folders_that_do_not_exist_are_named_by_their_keys(
    write_store: WriteStore, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")
    no_test = FeatureData(train=write_store(), test=missing)
    neither = FeatureData(train=missing, test=missing)

    with pytest.raises(
        FeatureStoreError,
        match=rf'^data.test = "{missing}": there is no such folder .* by `--set data.test=`$',
    ):
        open_splits(no_test, 0, CPU)
    with pytest.raises(FeatureStoreError, match=r'^data.train = ".*" and data.test = ".*": there'):
        open_splits(neither, 0, CPU)


def test_a_folder_without_features_is_named_by_its_key(
    write_store: WriteStore, tmp_path: Path
) -> None:
    config = FeatureData(train=write_store(), test=str(tmp_path))

    expected = r'^data.test = ".*": .* is not a feature store.*--set data.test='
    with pytest.raises(FeatureStoreError, match=expected):
        open_splits(config, 0, CPU)


def write_arrays(folder: Path, name: str, labels: Sequence[int]) -> str:
    features = np.random.default_rng(0).normal(size=(len(labels), 4)).astype(np.float32)
    np.savez(folder / name, features=features, labels=labels)
    return str(folder / f"{name}.npz")


def test_a_model_has_an_output_for_each_class_that_occurs(tmp_path: Path) -> None:
    train = write_arrays(tmp_path, "train", [3, 5000, -1, 3, 630_008, 5000])
    test = write_arrays(tmp_path, "test", [630_008, 3, -1])

    splits = open_splits(FeatureData(train=train, test=test, validation=0.0), 0, CPU)

    assert splits.train.class_names == ("3", "5000", "630008")
    assert splits.train.labels.tolist() == [0, 1, 0, 2, 1]
    assert splits.test is not None
    assert splits.test.labels.tolist() == [2, 0]


def test_classes_that_training_lacks_are_named(tmp_path: Path) -> None:
    train = write_arrays(tmp_path, "train", [0, 1, 3, 0, 1, 3])
    test = write_arrays(tmp_path, "test", [0, 1, 2])

    with pytest.raises(DatasetError, match=r"lacks, first \['2'\]"):
        open_splits(FeatureData(train=train, test=test, validation=0.0), 0, CPU)


def test_numbers_that_replace_labels_are_the_places_of_names(
    write_store: WriteStore, write_table: Callable[..., str]
) -> None:
    table = write_table(noisy=[2 * (number % 2) for number in range(30)])
    config = FeatureData(train=write_store(), validation=0.0, labels=table, label_column="noisy")

    train = open_splits(config, 0, CPU).train

    assert train.class_names == NAMES
    assert train.labels.tolist() == [0, 2] * 15
