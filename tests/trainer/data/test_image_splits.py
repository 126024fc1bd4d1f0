"""Datasets of images as splits."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from trainer.config import ImageData
from trainer.data import Splits, open_samples, open_splits
from trainer.data.images import LargeImages, MemoryImages
from trainer.data.splits import IMAGENET_MEAN
from trainer.samples import Samples

Pixels = NDArray[np.uint8]
Write = Callable[..., str]

CPU = torch.device("cpu")


def inputs_of(samples: Samples) -> torch.Tensor:
    (batch,) = samples.inputs.batches([torch.arange(len(samples))], None)
    return batch


def numbers_of(samples: Samples) -> list[int]:
    """Row of each sample in its table, or the number in its file's name."""
    return [int(sample_id.rpartition("#")[2]) for sample_id in samples.sample_ids]


def opened(seed: int = 0, **settings: object) -> Splits:
    return open_splits(ImageData(**settings), seed, CPU)


def test_samples_keep_their_ids_labels_and_images(write_table: Write, pixels: Pixels) -> None:
    splits = opened(train=write_table(), validation=0.2)

    assert splits.validation is not None
    assert len(splits.train) == 24
    assert len(splits.validation) == 6
    for samples in (splits.train, splits.validation):
        rows = numbers_of(samples)
        np.testing.assert_array_equal(inputs_of(samples), pixels[rows])
        assert samples.labels.tolist() == [row % 3 for row in rows]
        assert samples.labels.dtype == torch.int64
    assert not set(splits.train.sample_ids).intersection(splits.validation.sample_ids)


def test_sample_ids_are_the_same_as_in_scoring(write_folder: Write) -> None:
    folder = write_folder()

    splits = opened(train=folder, validation=0.2)

    dataset = open_dataset(folder, DatasetOptions())
    assert list(splits.all_ids) == list(dataset.sample_ids)
    assert set(splits.train.sample_ids) < set(dataset.sample_ids)
    assert splits.train.class_names == ("bird", "cat", "dog")


def test_a_limit_selects_the_same_samples_as_in_scoring(write_table: Write) -> None:
    table = write_table()

    splits = opened(train=table, validation=0.0, limit=9)

    dataset = open_dataset(table, DatasetOptions(limit=9))
    assert list(splits.train.sample_ids) == list(dataset.sample_ids)
    assert splits.validation is None
    assert len(splits.all_ids) == 30


def test_the_seed_chooses_the_held_out_samples(write_table: Write) -> None:
    table = write_table()

    first, same, other = (opened(seed, train=table, validation=0.2) for seed in (1, 1, 2))

    assert first.validation is not None
    assert same.validation is not None
    assert other.validation is not None
    assert first.validation.sample_ids == same.validation.sample_ids
    assert first.validation.sample_ids != other.validation.sample_ids


def test_label_noise_changes_training_labels_only(write_table: Write) -> None:
    splits = opened(train=write_table(), validation=0.2, label_noise=0.25)

    assert splits.validation is not None
    train_rows, held_out = numbers_of(splits.train), numbers_of(splits.validation)
    wrong = sum(
        label != row % 3 for label, row in zip(splits.train.labels, train_rows, strict=True)
    )
    assert wrong == 6
    assert splits.validation.labels.tolist() == [row % 3 for row in held_out]


def test_the_specification_describes_the_training_images(
    write_table: Write, pixels: Pixels
) -> None:
    splits = opened(train=write_table(), validation=0.2)

    values = pixels[numbers_of(splits.train)].astype(np.float64)
    assert splits.spec.shape == (3, 8, 8)
    assert splits.spec.mean is not None
    assert splits.spec.std is not None
    np.testing.assert_allclose(splits.spec.mean, values.mean(axis=(0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(splits.spec.std, values.std(axis=(0, 2, 3)), rtol=1e-6)


def test_an_image_size_resizes_every_split(write_table: Write) -> None:
    splits = opened(train=write_table(), test=write_table("test"), image_size=5)

    assert splits.test is not None
    assert splits.spec.shape == (3, 5, 5)
    assert inputs_of(splits.train).shape == (27, 3, 5, 5)
    assert inputs_of(splits.test).shape == (30, 3, 5, 5)


def test_images_of_another_dataset_are_resized_to_the_training_size(
    write_table: Write, to_png: Callable[[Pixels], bytes]
) -> None:
    config = ImageData(train=write_table())
    spec = open_splits(config, 0, CPU).spec
    other = write_table("other", images=[to_png(np.full((3, 20, 33), 7, dtype=np.uint8))])

    samples = open_samples(config, other, spec, CPU)

    assert torch.equal(inputs_of(samples), torch.full((1, 3, 8, 8), 7, dtype=torch.uint8))
    assert samples.class_names == ("0",)


def test_a_separate_validation_dataset_keeps_all_training_samples(write_table: Write) -> None:
    splits = opened(train=write_table(), validation=write_table("held_out", labels=[2] * 30))

    assert splits.validation is not None
    assert len(splits.train) == 30
    assert splits.validation.labels.tolist() == [2] * 30


def test_splits_of_one_table_are_selected_by_its_column(write_table: Write) -> None:
    names = ["train"] * 20 + ["val"] * 6 + ["test"] * 4
    table = write_table(split=names)

    splits = opened(
        train=table,
        split="train",
        validation=table,
        validation_split="val",
        test=table,
        test_split="test",
    )

    assert splits.validation is not None
    assert splits.test is not None
    assert numbers_of(splits.train) == list(range(20))
    assert numbers_of(splits.validation) == list(range(20, 26))
    assert numbers_of(splits.test) == list(range(26, 30))


def test_a_validation_dataset_that_is_the_training_dataset_is_refused(write_table: Write) -> None:
    table = write_table()

    with pytest.raises(DatasetError, match=r"30 samples of .* in both .* data\.validation_split"):
        opened(train=table, validation=table)


def test_each_dataset_has_its_own_label_column(write_table: Write) -> None:
    train = write_table(noisy=[(row + 1) % 3 for row in range(30)])

    splits = opened(
        train=train,
        label_column="noisy",
        test=write_table("test"),
        test_label_column="label",
        validation=0.0,
    )

    assert splits.test is not None
    assert splits.train.labels.tolist() == [(row + 1) % 3 for row in range(30)]
    assert splits.test.labels.tolist() == [row % 3 for row in range(30)]


def test_a_model_of_a_table_is_evaluated_on_a_folder(
    write_table: Write, write_folder: Write
) -> None:
    names = [("dog", "cat", "bird")[row % 3] for row in range(30)]
    train = write_table(class_of=names, picture=[b""] * 30)

    splits = opened(
        train=train, image_column="image", label_column="class_of", test=write_folder("test")
    )

    assert splits.test is not None
    assert splits.test.class_names == ("bird", "cat", "dog")
    assert splits.test.labels.tolist() == [0] * 10 + [1] * 10 + [2] * 10


def test_a_test_class_without_training_samples_is_refused(
    write_table: Write, write_folder: Write
) -> None:
    train = write_table(class_of=[("bird", "cat", "cow")[row % 3] for row in range(30)])

    with pytest.raises(DatasetError, match=r"1 classes .*\['dog'\], .*\['cow'\]"):
        opened(train=train, label_column="class_of", test=write_folder("test"))


@pytest.mark.parametrize("on_error", ["skip", "stop"])
def test_a_dataset_without_a_readable_image_is_an_error(write_table: Write, on_error: str) -> None:
    with pytest.raises(DatasetError, match=r"'train.parquet#0': not an image"):
        opened(train=write_table(images=[b"no image", b"none"]), on_error=on_error)


def test_small_images_are_kept_in_memory_and_others_are_not(
    write_table: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_table()

    small = opened(train=table)
    monkeypatch.setattr("trainer.data.images.MAX_BYTES_IN_MEMORY", 30 * 3 * 64 - 1)
    large = opened(train=table, workers=3)

    assert isinstance(small.train.inputs, MemoryImages)
    assert isinstance(large.train.inputs, LargeImages)
    assert large.train.inputs.workers == 3
    torch.testing.assert_close(large.spec.mean, torch.tensor(IMAGENET_MEAN))


@pytest.mark.parametrize(
    ("settings", "kept"),
    [({}, False), ({"image_size": None}, True), ({"in_memory": True}, True)],
)
def test_crops_are_taken_from_originals_unless_the_recipe_keeps_images_in_memory(
    write_table: Write, settings: dict[str, object], *, kept: bool
) -> None:
    given = {"image_size": 4, "augmentation": "random_resized_crop", **settings}

    splits = opened(train=write_table(), **given)

    assert isinstance(splits.train.inputs, MemoryImages) == kept


def test_test_images_are_centre_cropped_after_random_resized_crops(
    write_table: Write, to_png: Callable[[Pixels], bytes]
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (3, 64, 64), dtype=np.uint8)
    settings = {
        "train": write_table(),
        "test": write_table("test", images=[to_png(noise)]),
        "image_size": 14,
    }

    with_crops = opened(augmentation="random_resized_crop", **settings)
    without = opened(**settings)

    assert with_crops.test is not None
    assert without.test is not None
    image = Image.fromarray(noise.transpose(1, 2, 0))
    whole, larger = (image.resize((side, side), Image.Resampling.BILINEAR) for side in (14, 16))
    cut = np.asarray(larger.crop((1, 1, 15, 15))).transpose(2, 0, 1).astype(int)
    np.testing.assert_array_equal(inputs_of(without.test)[0], np.asarray(whole).transpose(2, 0, 1))
    np.testing.assert_allclose(inputs_of(with_crops.test)[0], cut, atol=1)


@pytest.mark.slow
def test_a_training_epoch_over_real_images_yields_every_image_once(shared: Path) -> None:
    splits = opened(
        train=str(shared / "data" / "cifar10_train_1.parquet"),
        label_column="noisy_worst",
        test=str(shared / "data" / "cifar10_test.parquet"),
        test_label_column="label",
        limit=500,
        augmentation="flip_crop",
    )

    plan = torch.randperm(len(splits.train)).split(128)
    draws = torch.rand(len(splits.train), 5)
    batches = list(splits.train.inputs.batches(plan, draws))

    assert sum(len(batch) for batch in batches) == 450
    assert batches[0].shape == (128, 3, 32, 32)
    assert splits.test is not None
    assert splits.test.labels.bincount().tolist() == [1000] * 10


@pytest.mark.parametrize("key", ["train", "test", "validation"])
def test_a_dataset_that_does_not_exist_is_named_by_its_key(
    images: str, tmp_path: Path, key: str
) -> None:
    locations = {"train": images, key: str(tmp_path / "missing")}

    with pytest.raises(DatasetError, match=rf'^data\.{key} = ".*missing": '):
        open_splits(ImageData(**locations), 0, torch.device("cpu"))  # type: ignore[arg-type]
