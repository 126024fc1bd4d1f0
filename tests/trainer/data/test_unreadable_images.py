"""Images that cannot be read: left out before the run starts, listed, or the end of it."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError
from trainer.config import ImageData
from trainer.data import open_splits
from trainer.data.splits import Splits

Pixels = NDArray[np.uint8]
Write = Callable[..., str]

BAD = (0, 7, 19)
READABLE = [row for row in range(30) if row not in BAD]
KINDS = pytest.mark.parametrize("in_memory", [True, False])


@pytest.fixture
def with_bad_images(
    write_table: Write, to_png: Callable[[Pixels], bytes], pixels: Pixels
) -> Callable[[str], str]:
    """Writes a table with three images that cannot be read, one of them cut off."""
    whole = [to_png(image) for image in pixels]
    images = [whole[7][:60] if row == 7 else image for row, image in enumerate(whole)]
    images[0] = images[19] = b"no image"
    return lambda name: write_table(name, images=images)


def opened(train: str, **settings: object) -> Splits:
    config = ImageData(train=train, **settings)  # type: ignore[arg-type]
    return open_splits(config, 0, torch.device("cpu"))


def rows_of(ids: Sequence[str]) -> list[int]:
    return [int(sample_id.partition("#")[2]) for sample_id in ids]


@KINDS
def test_they_are_left_out_with_their_labels_and_pixels(
    with_bad_images: Write, pixels: Pixels, *, in_memory: bool
) -> None:
    splits = opened(with_bad_images("train"), validation=0.0, in_memory=in_memory, workers=1)

    assert rows_of(splits.train.sample_ids) == READABLE
    assert splits.train.labels.tolist() == [row % 3 for row in READABLE]
    (batch,) = splits.train.inputs.batches([torch.arange(27)], None)
    np.testing.assert_array_equal(batch, pixels[READABLE])
    assert rows_of(splits.all_ids) == list(range(30))


@KINDS
def test_they_are_listed_with_a_warning(with_bad_images: Write, *, in_memory: bool) -> None:
    location = with_bad_images("train")

    splits = opened(location, in_memory=in_memory)

    assert [entry.dataset for entry in splits.skipped] == [location] * 3
    assert rows_of([entry.sample_id for entry in splits.skipped]) == list(BAD)
    assert "truncated" in splits.skipped[1].reason
    (warning,) = splits.warnings
    assert "3 of 30 images cannot be read and are skipped, first 'train.parquet#0'" in warning


def test_both_ways_of_reading_give_the_same_splits(with_bad_images: Write) -> None:
    location = with_bad_images("train")

    memory, large = (opened(location, in_memory=in_memory) for in_memory in (True, False))

    assert memory.train.sample_ids == large.train.sample_ids
    assert memory.validation is not None
    assert large.validation is not None
    assert memory.validation.sample_ids == large.validation.sample_ids


def test_the_mean_is_that_of_the_readable_training_images(
    with_bad_images: Write, pixels: Pixels
) -> None:
    splits = opened(with_bad_images("train"), validation=0.0)

    expected = pixels[READABLE].mean(axis=(0, 2, 3))
    np.testing.assert_allclose(splits.spec.mean, expected, rtol=1e-5)


def test_those_of_validation_and_test_datasets_are_left_out_too(
    write_table: Write, with_bad_images: Write
) -> None:
    splits = opened(
        write_table(), validation=with_bad_images("validation"), test=with_bad_images("test")
    )

    assert splits.validation is not None
    assert splits.test is not None
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (30, 27, 27)
    assert len(splits.skipped) == 6
    assert len(splits.warnings) == 2


def test_stopping_names_them(with_bad_images: Write) -> None:
    with pytest.raises(DatasetError, match=r"3 images of .*#0': not an image.*#7.*#19"):
        opened(with_bad_images("train"), image_size=8, on_error="stop")


def test_stopping_leaves_out_the_pass_over_images_that_are_not_kept(
    with_bad_images: Write,
) -> None:
    splits = opened(
        with_bad_images("train"), validation=0.0, image_size=8, on_error="stop", in_memory=False
    )

    assert len(splits.skipped) == 0
    with pytest.raises(DatasetError, match="3 images of"):
        list(splits.train.inputs.batches([torch.arange(len(splits.train))], None))


def test_images_of_another_size_are_still_an_error(
    write_table: Write, to_png: Callable[[Pixels], bytes], pixels: Pixels
) -> None:
    images = [b"no image", to_png(pixels[0]), to_png(pixels[1][:, :5])]

    with pytest.raises(DatasetError, match=r"1 images .*#2': 8 x 5 pixels.* set data.image_size"):
        opened(write_table(images=images))


def test_rows_without_a_label_are_listed_beside_them(write_table: Write) -> None:
    labels = [-1 if row == 4 else row % 3 for row in range(30)]

    splits = opened(write_table(labels=labels))

    assert [(entry.sample_id, entry.reason) for entry in splits.skipped] == [
        ("train.parquet#4", "the label is -1")
    ]
    assert "1 entry is skipped (the label is -1): 'train.parquet#4'" in splits.warnings[0]
