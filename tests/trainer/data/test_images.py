"""Images kept in memory."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from trainer.data.augmentation import flip_crop, keep
from trainer.data.images import Fit, MemoryImages, decode_images
from trainer.samples import NUM_DRAWS

Pixels = NDArray[np.uint8]
Write = Callable[..., str]


@pytest.fixture
def memory(pixels: Pixels) -> MemoryImages:
    """Twenty of the thirty images, backwards."""
    chosen = torch.arange(25, 5, -1)
    return MemoryImages(torch.from_numpy(pixels), chosen, partial(flip_crop, padding=2))


def test_images_are_decoded_in_the_order_of_the_dataset(
    write_folder: Write, pixels: Pixels
) -> None:
    dataset = open_dataset(write_folder(), DatasetOptions())

    decoded = decode_images(dataset, Fit(8, 8))

    numbers = [int(sample_id[-6:-4]) for sample_id in dataset.sample_ids]
    np.testing.assert_array_equal(decoded, pixels[numbers])


def test_images_of_several_decoding_tasks_stay_in_order(
    write_table: Write, to_png: Callable[[Pixels], bytes]
) -> None:
    many = np.random.default_rng(1).integers(0, 256, (200, 3, 2, 2), dtype=np.uint8)
    table = write_table(images=[to_png(image) for image in many])

    decoded = decode_images(open_dataset(table, DatasetOptions()), Fit(2, 2))

    np.testing.assert_array_equal(decoded, many)


def test_images_that_cannot_be_read_are_counted_and_named(
    write_table: Write, to_png: Callable[[Pixels], bytes], pixels: Pixels
) -> None:
    images = [b"no image" if row % 4 == 1 else to_png(image) for row, image in enumerate(pixels)]
    dataset = open_dataset(write_table(images=images), DatasetOptions())

    with pytest.raises(
        DatasetError, match=r"8 images of .*'train.parquet#1': not an image.*#17.*errors.parquet"
    ) as caught:
        decode_images(dataset, Fit(8, 8))

    assert "#21" not in str(caught.value)


def test_images_of_another_size_are_refused_with_the_remedy(
    write_table: Write, to_png: Callable[[Pixels], bytes], pixels: Pixels
) -> None:
    images = [to_png(pixels[0]), to_png(pixels[1][:, :5])]
    dataset = open_dataset(write_table(images=images), DatasetOptions())

    with pytest.raises(DatasetError, match=r"1 images .*#1': 8 x 5 pixels.* set data.image_size"):
        decode_images(dataset, Fit(8, 8, resizes=False))


def test_images_above_the_pixel_limit_are_named(write_table: Write) -> None:
    dataset = open_dataset(write_table(), DatasetOptions())

    with pytest.raises(DatasetError, match=r"30 images .*#0': 8 x 8 pixels .*the 63 allowed"):
        decode_images(dataset, Fit(8, 8, max_pixels=63))


def test_batches_follow_the_plan_and_the_positions_of_the_split(
    memory: MemoryImages, pixels: Pixels
) -> None:
    plan = [torch.tensor([3, 0]), torch.tensor([19])]

    first, second = memory.batches(plan, None)

    np.testing.assert_array_equal(first, pixels[[22, 25]])
    np.testing.assert_array_equal(second, pixels[[6]])


def test_a_split_of_a_split_keeps_its_images(memory: MemoryImages, pixels: Pixels) -> None:
    (batch,) = memory.select(torch.tensor([1, 4])).batches([torch.arange(2)], None)

    np.testing.assert_array_equal(batch, pixels[[24, 21]])


def test_a_sample_is_augmented_by_its_own_draws_for_any_plan(memory: MemoryImages) -> None:
    draws = torch.rand(20, NUM_DRAWS, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))

    (whole,) = memory.batches([torch.arange(20)], draws)
    parts = torch.cat(list(memory.batches(order.split(6), draws)))

    assert torch.equal(parts, whole[order])


def test_an_empty_plan_yields_no_batch(pixels: Pixels) -> None:
    empty: list[Tensor] = []

    batches = MemoryImages(torch.from_numpy(pixels), torch.arange(30), keep).batches(empty, None)

    assert list(batches) == []
