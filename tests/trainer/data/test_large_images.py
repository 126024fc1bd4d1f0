"""Images read by worker processes."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from trainer.config import Augmentation
from trainer.data.augmentation import augmentation_of
from trainer.data.images import BatchReader, Fit, LargeImages, MemoryImages, decode_images
from trainer.samples import NUM_DRAWS

Pixels = NDArray[np.uint8]
Write = Callable[..., str]

CPU = torch.device("cpu")


@pytest.fixture
def draws() -> torch.Tensor:
    return torch.rand(30, NUM_DRAWS, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["none", "flip", "flip_crop"])
@pytest.mark.parametrize("kind", ["folder", "table"])
def test_a_worker_reads_the_same_pixels_as_images_in_memory(
    name: Augmentation, kind: str, write_folder: Write, write_table: Write, draws: torch.Tensor
) -> None:
    location = write_folder() if kind == "folder" else write_table()
    dataset = open_dataset(location, DatasetOptions())
    kept = decode_images(dataset, Fit(8, 8))
    memory = MemoryImages(kept, torch.arange(30), augmentation_of(name, 2))
    reader = BatchReader(dataset.open_images, Fit(8, 8), name, 2)
    chosen = torch.tensor([17, 3, 3, 29])
    (expected,) = memory.batches([chosen], draws)

    batch = reader[chosen.numpy(), draws[chosen].double().numpy()]

    assert isinstance(batch, torch.Tensor)
    assert torch.equal(batch, expected)


def test_a_random_resized_crop_is_cut_from_the_whole_image(
    write_table: Write, to_png: Callable[[Pixels], bytes]
) -> None:
    slope = np.broadcast_to(np.arange(200, dtype=np.uint8), (3, 100, 200))
    dataset = open_dataset(write_table(images=[to_png(slope)]), DatasetOptions())
    reader = BatchReader(dataset.open_images, Fit(16, 16), "random_resized_crop")
    place = np.array([[0.9, 0.0, 1.0, 0.0, 0.5]])  # the smallest square, at the right border

    batch = reader[np.array([0]), place]

    assert isinstance(batch, torch.Tensor)
    side = (0.08 * 100 * 200) ** 0.5
    centres = 200 - side + (np.arange(16) + 0.5) * side / 16 - 0.5
    np.testing.assert_allclose(batch[0, 0, 8], centres, atol=1.2)


def test_a_flip_of_a_random_resized_crop_follows_its_draw(
    write_table: Write, draws: torch.Tensor
) -> None:
    dataset = open_dataset(write_table(), DatasetOptions())
    reader = BatchReader(dataset.open_images, Fit(8, 8), "random_resized_crop")
    rows = draws[:1].repeat(2, 1).double().numpy()
    rows[:, 0] = [0.1, 0.9]

    batch = reader[np.array([5, 5]), rows]

    assert isinstance(batch, torch.Tensor)
    assert torch.equal(batch[0], batch[1].flip(-1))


@pytest.mark.slow
def test_processes_yield_batches_in_the_order_of_the_plan_in_every_epoch(
    write_folder: Write, draws: torch.Tensor
) -> None:
    dataset = open_dataset(write_folder(), DatasetOptions())
    kept = decode_images(dataset, Fit(8, 8))
    positions = torch.arange(29, -1, -1)
    memory = MemoryImages(kept, positions, augmentation_of("flip_crop", 2))
    reader = BatchReader(dataset.open_images, Fit(8, 8), "flip_crop", 2)
    large = LargeImages(dataset, positions, reader, CPU, workers=2)
    before = torch.get_rng_state()

    for seed, given in ((0, draws), (1, draws.flip(0)), (2, None)):
        plan = torch.randperm(30, generator=torch.Generator().manual_seed(seed)).split(4)
        pairs = list(zip(large.batches(plan, given), memory.batches(plan, given), strict=True))

        assert len(pairs) == 8
        assert all(torch.equal(batch, expected) for batch, expected in pairs)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
@pytest.mark.usefixtures("new_interpreters")
def test_an_image_that_a_process_cannot_read_is_named(
    write_table: Write, to_png: Callable[[Pixels], bytes], pixels: Pixels
) -> None:
    images = [to_png(pixels[0]), b"no image", to_png(pixels[2])]
    dataset = open_dataset(write_table(images=images), DatasetOptions())
    reader = BatchReader(dataset.open_images, Fit(8, 8))
    large = LargeImages(dataset, torch.arange(3), reader, CPU, workers=1)

    with pytest.raises(DatasetError, match=r"1 images of .*'train.parquet#1': not an image"):
        list(large.batches([torch.arange(3)], None))
