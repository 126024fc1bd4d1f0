"""Features with mirror images are those of hand-mirrored images, averaged."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.extraction.plan import Plan
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.images.preparation import (
    decode,
    normalise,
    prepare,
    stack,
)
from difficulty_service.images.views import Augmentation, to_views
from difficulty_service.interface.encoder import backbone
from difficulty_service.scoring.pipeline import execute

EVEN_MARGIN, ODD_MARGIN = (48, 32), (49, 32)
"""Widths and heights that the centre crop to 32 x 32 pixels cuts by 16 or by 17 columns."""


def photograph(size: tuple[int, int], seed: int = 0) -> Image.Image:
    """An image whose two sides differ: smooth colours that get brighter to the right."""
    small = np.random.default_rng(seed).integers(0, 160, (6, 8, 3), dtype=np.uint8)
    pixels = np.asarray(Image.fromarray(small).resize(size, Image.Resampling.BICUBIC), np.float64)
    ramp = np.linspace(0, 90, size[0])[None, :, None]
    return Image.fromarray((pixels + ramp).clip(0, 255).astype(np.uint8))


def opener(image: Image.Image) -> Callable[[], io.BytesIO]:
    file = io.BytesIO()
    image.save(file, "PNG")
    return lambda: io.BytesIO(file.getvalue())


def mean_of_both(images: Sequence[Image.Image]) -> Tensor:
    """The naive features: two extractions, of the images and of images mirrored by hand."""
    plain = backbone("builtin", device="cpu")
    mirrored = [ImageOps.mirror(image) for image in images]
    return torch.from_numpy((plain.encode(images) + plain.encode(mirrored)) / 2)


@pytest.mark.parametrize("size", [(32, 32), EVEN_MARGIN, (32, 64), (150, 100)])
def test_features_are_the_mean_of_two_extractions_where_the_crop_is_in_the_middle(
    size: tuple[int, int],
) -> None:
    images = [photograph(size, seed) for seed in range(3)]
    expected = mean_of_both(images)

    features = torch.from_numpy(backbone("builtin", device="cpu", flip=True).encode(images))

    plain = torch.from_numpy(backbone("builtin", device="cpu").encode(images))
    assert (plain - expected).abs().max() > 0.1
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)


def test_the_square_that_the_network_sees_is_mirrored_also_where_the_crop_is_off_the_middle() -> (
    None
):
    image = photograph(ODD_MARGIN)
    network = load_backbone("builtin", BackboneOptions())
    view = prepare(opener(image), network.preprocessing)
    both = normalise(torch.stack([view, view.flip(2)]), network.preprocessing, torch.float32)
    expected = network.encode(both).mean(dim=0, keepdim=True)

    features = torch.from_numpy(backbone("builtin", device="cpu", flip=True).encode([image]))

    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)
    # Mirrored before the crop, which is half a column off, other pixels are seen.
    assert (features - mean_of_both([image])).abs().max() > 0.01


def test_an_image_and_its_mirror_image_have_the_same_features() -> None:
    image = photograph(EVEN_MARGIN)

    one, other = backbone("builtin", device="cpu", flip=True).encode(
        [image, ImageOps.mirror(image)]
    )

    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("runs", [1, 3])
def test_the_view_of_each_augmentation_run_is_mirrored_too(runs: int, tmp_path: Path) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    image = photograph(EVEN_MARGIN)
    image.save(tmp_path / "photos" / "cat" / "0.png")
    network = load_backbone("builtin", BackboneOptions())
    views = stack(
        list(
            to_views(decode(opener(image)), network.preprocessing, "cat/0.png", Augmentation(runs))
        )
    )
    mirrored = stack([view.flip(2) for view in views])
    expected = sum(
        network.encode(normalise(each, network.preprocessing, torch.float32))
        for each in (views, mirrored)
    )
    plan = Plan(
        str(tmp_path / "photos"),
        tmp_path / "store",
        "builtin",
        network=BackboneOptions(flip=True),
        options=ExtractOptions(augment_runs=runs),
    )

    table = execute(plan).store.read_shard(0)

    assert table.runs.tolist() == list(range(1, runs + 1))
    torch.testing.assert_close(table.features, expected / 2, rtol=1e-4, atol=1e-4)
