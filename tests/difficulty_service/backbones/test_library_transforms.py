"""Every pretraining of timm and open_clip: images are prepared as the library itself does it.

No weights are needed: the libraries say how images are prepared in their lists of pretrainings.
"""

import io
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import open_clip
import pytest
import timm
import torch
import transformers
from open_clip.transform import PreprocessCfg, image_transform_v2, merge_preprocess_dict
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_sample_image
from timm.data import create_transform, resolve_data_config
from torchvision.transforms import Compose, Normalize

from difficulty_service.backbones import clip, load_backbone, timm_models
from difficulty_service.backbones.backbone import BackboneOptions, Preprocessing, size_of_sides
from difficulty_service.base.errors import BackboneError
from difficulty_service.extraction.plan import Plan
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.features.store import open_store
from difficulty_service.images.preparation import prepare
from difficulty_service.scoring.pipeline import execute


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


@pytest.mark.long
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


@pytest.mark.parametrize("crop_pct", [0.9, 1.0, 1.1])
@pytest.mark.parametrize("crop_mode", ["center", "squash", "border"])
@pytest.mark.parametrize("sides", [(96, 64), (63, 95), (80, 80)])
def test_any_description_of_timm_is_followed_also_of_inputs_that_are_not_square(
    sides: tuple[int, int], crop_mode: str, crop_pct: float
) -> None:
    stated = {"input_size": (3, *sides), "crop_mode": crop_mode, "crop_pct": crop_pct}
    config = timm_models.find_config("resnet18.tv_in1k") | stated
    transform = create_transform(**resolve_data_config({}, pretrained_cfg=config))

    plan = timm_models.preprocessing_of(config, None)

    assert in_float32(plan) == plan_of(transform)
    assert_same_pixels(str(stated), plan, transform)


def test_a_model_of_open_clip_that_wants_a_border_gets_it() -> None:
    stated = open_clip.get_pretrained_cfg("ViT-B-32", "openai") | {"resize_mode": "longest"}
    merged = merge_preprocess_dict(asdict(PreprocessCfg(size=65)), stated)
    transform = image_transform_v2(PreprocessCfg(**merged), is_train=False)

    plan = clip.preprocessing_of({"vision_cfg": {"image_size": 65}}, stated)

    assert in_float32(plan) == plan_of(transform)
    assert_same_pixels("longest", plan, transform)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"input_size": (1, 96, 96)}, "channels 1, and here they have 3"),
        ({"interpolation": "lanczos"}, "interpolation 'lanczos', and .* bicubic or bilinear"),
        ({"crop_mode": "tiles"}, "crop mode 'tiles', and .* center or squash or border"),
    ],
)
def test_images_that_cannot_be_made_here_are_refused(stated: dict[str, Any], said: str) -> None:
    config = timm_models.find_config("resnet18.tv_in1k") | stated

    with pytest.raises(BackboneError, match=said):
        timm_models.preprocessing_of(config, None)


def test_a_resize_mode_that_is_unknown_is_refused() -> None:
    stated = open_clip.get_pretrained_cfg("ViT-B-32", "openai") | {"resize_mode": "tiles"}

    with pytest.raises(BackboneError, match=r"'tiles'.*choose .*shortest or squash or longest"):
        clip.preprocessing_of({"vision_cfg": {"image_size": 64}}, stated)


STATED = {
    "squashed": {"crop_mode": "squash", "crop_pct": 0.9},
    "with a border": {"crop_mode": "border", "crop_pct": 1.0},
    "not square": {"crop_mode": "squash", "input_size": (3, 96, 64)},
}


@pytest.mark.parametrize("stated", STATED.values(), ids=STATED)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_features_of_a_store_are_those_of_timm_and_are_made_again_by_what_they_say(
    tmp_path: Path, stated: dict[str, Any], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = timm_models.find_config
    monkeypatch.setattr(timm_models, "find_config", lambda name: known(name) | stated)
    torch.manual_seed(0)
    network = timm.create_model("resnet18", num_classes=0).eval()
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    for kind, file in FILES.items():
        path = tmp_path / "photos" / "all" / f"{kind}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file)
    options = BackboneOptions(str(tmp_path / "weights.safetensors"), device=torch.device(device))
    plan = Plan(
        str(tmp_path / "photos"),
        tmp_path / "features",
        "timm:resnet18",
        network=options,
        options=ExtractOptions(preprocess="exact"),
    )

    execute(plan)

    transform = create_transform(
        **resolve_data_config({}, pretrained_cfg=known("resnet18") | stated)
    )
    images = torch.stack([transform(PHOTOGRAPHS[kind].convert("RGB")) for kind in sorted(FILES)])
    with torch.inference_mode():
        expected = network(images)
    store = open_store(tmp_path / "features")
    table = store.read_shard(0)
    torch.testing.assert_close(table.features, expected, rtol=1e-3, atol=1e-4)
    again = BackboneOptions.as_described(store.description, options.device)
    backbone = load_backbone("timm:resnet18", replace(again, weights=options.weights))
    assert backbone.preprocessing.describe() == store.description.preprocessing


def test_a_network_of_transformers_for_images_is_refused_in_words(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=32, patch_size=8
    )
    transformers.ViTModel(config).save_pretrained(tmp_path)
    transformers.ViTImageProcessor().save_pretrained(tmp_path)

    with pytest.raises(BackboneError, match=r"takes images.*choose it among those of timm"):
        load_backbone(f"transformers:{tmp_path}", BackboneOptions())
