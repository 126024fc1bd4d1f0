"""Every pretraining of timm and open_clip: images are prepared as the library itself does it.

No weights are needed: the libraries say how images are prepared in their lists of pretrainings.
"""

import io
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial

import open_clip
import pytest
import timm
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2, merge_preprocess_dict
from PIL import Image
from sklearn.datasets import load_sample_image
from timm.data import create_transform, resolve_data_config
from torchvision.transforms import Compose, Normalize

from difficulty_service.backbones import clip, timm_models
from difficulty_service.backbones.backbone import Preprocessing, size_of_sides
from difficulty_service.images.preparation import prepare


def photographs() -> dict[str, Image.Image]:
    """Parts of two photographs of scikit-learn, with odd sides."""
    china, flower = (
        Image.fromarray(load_sample_image(name)) for name in ("china.jpg", "flower.jpg")
    )
    transparent = flower.crop((30, 10, 428, 409))
    transparent.putalpha(Image.linear_gradient("L").resize(transparent.size))
    return {
        "landscape": china,
        "portrait": china.crop((200, 3, 402, 424)),
        "small and grey": flower.crop((101, 50, 274, 141)).convert("L"),
        "nearly square, with alpha": transparent,
    }


def as_png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


PHOTOGRAPHS = photographs()
FILES = {kind: as_png(photograph) for kind, photograph in PHOTOGRAPHS.items()}


def plan_of(transform: Compose) -> Preprocessing:
    """What the steps of a transform of one of the libraries do."""
    resize, *steps = transform.transforms
    crops = [step for step in steps if "CenterCrop" in type(step).__name__]
    (normalise,) = (step for step in steps if isinstance(step, Normalize))
    keeps_shape = isinstance(resize.size, int) or type(resize).__name__ == "ResizeKeepRatio"
    has_border = getattr(resize, "longest", 0) == 1
    fill = crops[0].fill if has_border else (0, 0, 0)
    return Preprocessing(
        size=as_size(crops[0].size if crops else resize.size),
        resize=as_size(resize.size),
        interpolation=resize.interpolation.value,
        mean=rounded(normalise.mean),
        std=rounded(normalise.std),
        fit="border" if has_border else "crop" if keeps_shape else "squash",
        fill=(fill,) * 3 if isinstance(fill, int) else tuple(fill),
    )


def as_size(size: int | tuple[int, int]) -> int | tuple[int, int]:
    return size if isinstance(size, int) else size_of_sides(*size)


def rounded(statistic: object) -> tuple[float, ...]:
    """Values in float32, in which every library normalises."""
    return tuple(torch.as_tensor(statistic, dtype=torch.float32).tolist())


def in_float32(preprocessing: Preprocessing) -> Preprocessing:
    statistics = {"mean": rounded(preprocessing.mean), "std": rounded(preprocessing.std)}
    return replace(preprocessing, **statistics)


def plans_of_timm() -> Iterator[tuple[str, Preprocessing, Compose]]:
    for name in timm.list_pretrained():
        config = timm_models.find_config(name)
        data = resolve_data_config({}, pretrained_cfg=timm.get_pretrained_cfg(name).to_dict())
        yield name, timm_models.preprocessing_of(config, None), create_transform(**data)


def plans_of_open_clip() -> Iterator[tuple[str, Preprocessing, Compose]]:
    for architecture, tag in open_clip.list_pretrained():
        stated = open_clip.get_pretrained_cfg(architecture, tag)
        # As `create_model_and_transforms` makes it, but without a network: the size is its own.
        merged = merge_preprocess_dict(asdict(PreprocessCfg()), stated)
        model = open_clip.get_model_config(architecture)
        merged["size"] = model["vision_cfg"]["image_size"]
        transform = image_transform_v2(PreprocessCfg(**merged), is_train=False)
        yield f"{architecture}/{tag}", clip.preprocessing_of(model, stated), transform


LIBRARIES = {"timm": plans_of_timm, "open_clip": plans_of_open_clip}


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_pretraining_is_planned_and_prepared_as_by_its_library(library: str) -> None:
    seen: dict[Preprocessing, str] = {}
    names = 0

    for name, plan, transform in LIBRARIES[library]():
        names += 1
        expected = plan_of(transform)
        assert in_float32(plan) == expected, name
        # Statistics do not change the pixels, but for the colour of a border.
        if seen.setdefault(replace(plan, mean=(0,) * 3, std=(1,) * 3), name) == name:
            assert_same_pixels(name, plan, transform)

    assert names > 100


def assert_same_pixels(name: str, plan: Preprocessing, transform: Compose) -> None:
    """Compares prepared photographs with those of a library's transform before normalisation."""
    steps = [step for step in transform.transforms if not isinstance(step, Normalize)]
    for kind, photograph in PHOTOGRAPHS.items():
        prepared = prepare(partial(io.BytesIO, FILES[kind]), plan, "exact")
        expected = Compose(steps)(photograph.convert("RGB"))
        assert torch.equal(prepared.float() / 255, expected), f"{name}: {kind}"
