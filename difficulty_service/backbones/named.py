"""The backbones for images that have a name of their own, and what is known of each.

Only building one imports torch; names can be checked and listed without it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from difficulty_service.backbones.weights_files import CLIP_FILENAMES, TIMM_FILENAMES

if TYPE_CHECKING:
    from difficulty_service.backbones.backbone import Backbone, BackboneOptions

Loader = Callable[[str, "BackboneOptions"], "Backbone"]


@dataclass(frozen=True)
class Facts:
    """What somebody who chooses a backbone wants to know of it.

    Attributes:
        feature_dim: Length of its penultimate features.
        size: Side of the square image that it takes, in pixels.
        parameters: Number of parameters up to these features, in millions.
        gmacs: Multiply-adds for one image, in billions.
        licence: Licence of its weights, as the hub calls it.
    """

    feature_dim: int
    size: int
    parameters: float
    gmacs: float
    licence: str


@dataclass(frozen=True)
class BackboneSpec:
    """A backbone with a short name.

    Attributes:
        repository: Where its weights are on the hub; None where the package has them.
        filenames: Names that its file may have there, the preferred one first.
        has_int8: Whether it also computes in eight bits, on CPUs by ONNX Runtime.
    """

    description: str
    facts: Facts
    load: Loader
    repository: str | None = None
    filenames: tuple[str, ...] = ()
    has_int8: bool = False


def load_clip(name: str, options: "BackboneOptions", *, architecture: str, tag: str) -> "Backbone":
    """Calls `clip.load_clip`, which is imported here."""
    from difficulty_service.backbones import clip

    return clip.load_clip(name, options, architecture=architecture, tag=tag)


def load_timm(
    name: str, options: "BackboneOptions", *, model: str, size: int | None = None
) -> "Backbone":
    """Calls `timm_models.load_timm`, which is imported here."""
    from difficulty_service.backbones import timm_models

    return timm_models.load_timm(name, options, model=model, size=size)


def _load_builtin(name: str, options: "BackboneOptions") -> "Backbone":
    from difficulty_service.backbones.builtin import load_builtin

    return load_builtin(name, options)


def _load_builtin_photos(name: str, options: "BackboneOptions") -> "Backbone":
    from difficulty_service.backbones.builtin_photos import load_builtin_photos

    return load_builtin_photos(name, options)


def of_open_clip(
    description: str, facts: Facts, repository: str, *, architecture: str, tag: str
) -> BackboneSpec:
    """The image tower of one of open_clip's models."""
    load = partial(load_clip, architecture=architecture, tag=tag)
    return BackboneSpec(description, facts, load, repository, CLIP_FILENAMES)


def of_timm(description: str, facts: Facts, *, model: str, resampled: bool = False) -> BackboneSpec:
    """One of timm's networks; `resampled` where its size is not that of its pretraining."""
    load = partial(load_timm, model=model, size=facts.size if resampled else None)
    return BackboneSpec(description, facts, load, f"timm/{model}", TIMM_FILENAMES)


BACKBONES: dict[str, BackboneSpec] = {
    "clip-vit-b16": of_open_clip(
        "CLIP ViT-B/16 by OpenAI",
        Facts(768, 224, 85.8, 17.6, "mit"),
        "timm/vit_base_patch16_clip_224.openai",
        architecture="ViT-B-16",
        tag="openai",
    ),
    "clip-vit-b32": of_open_clip(
        "CLIP ViT-B/32 by OpenAI, four times faster",
        Facts(768, 224, 87.5, 4.4, "mit"),
        "timm/vit_base_patch32_clip_224.openai",
        architecture="ViT-B-32",
        tag="openai",
    ),
    "clip-rn50": of_open_clip(
        "CLIP ResNet-50 by OpenAI",
        Facts(2048, 224, 40.4, 6.2, "mit"),
        "timm/resnet50_clip.openai",
        architecture="RN50",
        tag="openai",
    ),
    "siglip2-vit-b16": of_open_clip(
        "SigLIP 2 ViT-B/16 by Google",
        Facts(768, 224, 92.9, 17.7, "apache-2.0"),
        "timm/ViT-B-16-SigLIP2",
        architecture="ViT-B-16-SigLIP2",
        tag="webli",
    ),
    "siglip2-so400m-14": of_open_clip(
        "SigLIP 2 So400m/14 by Google",
        Facts(1152, 224, 427.7, 110.2, "apache-2.0"),
        "timm/ViT-SO400M-14-SigLIP2",
        architecture="ViT-SO400M-14-SigLIP2",
        tag="webli",
    ),
    "pe-core-vit-s16": of_open_clip(
        "Perception Encoder Core ViT-S/16 by Meta",
        Facts(384, 384, 23.6, 15.7, "apache-2.0"),
        "timm/PE-Core-S-16-384",
        architecture="PE-Core-S-16-384",
        tag="meta",
    ),
    "pe-core-vit-b16": of_open_clip(
        "Perception Encoder Core ViT-B/16 by Meta",
        Facts(768, 224, 92.9, 17.8, "apache-2.0"),
        "timm/PE-Core-B-16",
        architecture="PE-Core-B-16",
        tag="meta",
    ),
    "pe-core-vit-l14": of_open_clip(
        "Perception Encoder Core ViT-L/14 by Meta",
        Facts(1024, 336, 316.1, 192.2, "apache-2.0"),
        "timm/PE-Core-L-14-336",
        architecture="PE-Core-L-14-336",
        tag="meta",
    ),
    "eva02-clip-vit-b16": of_open_clip(
        "EVA-02-CLIP ViT-B/16 by BAAI",
        Facts(768, 224, 85.9, 17.6, "mit"),
        "timm/eva02_base_patch16_clip_224.merged2b_s8b_b131k",
        architecture="EVA02-B-16",
        tag="merged2b_s8b_b131k",
    ),
    "eva02-clip-vit-l14": of_open_clip(
        "EVA-02-CLIP ViT-L/14 by BAAI",
        Facts(1024, 224, 303.3, 81.0, "mit"),
        "timm/eva02_large_patch14_clip_224.merged2b_s4b_b131k",
        architecture="EVA02-L-14",
        tag="merged2b_s4b_b131k",
    ),
    "mobileclip2-s0": of_open_clip(
        "MobileCLIP2-S0 by Apple, small and fast",
        Facts(1024, 256, 10.9, 2.4, "apple-amlr"),
        "timm/MobileCLIP2-S0-OpenCLIP",
        architecture="MobileCLIP2-S0",
        tag="dfndr2b",
    ),
    "mobileclip2-s2": of_open_clip(
        "MobileCLIP2-S2 by Apple",
        Facts(1280, 256, 35.2, 7.8, "apple-amlr"),
        "timm/MobileCLIP2-S2-OpenCLIP",
        architecture="MobileCLIP2-S2",
        tag="dfndr2b",
    ),
    "mobileclip2-b": of_open_clip(
        "MobileCLIP2-B by Apple",
        Facts(768, 224, 86.0, 17.7, "apple-amlr"),
        "timm/MobileCLIP2-B-OpenCLIP",
        architecture="MobileCLIP2-B",
        tag="dfndr2b",
    ),
    "dinov2-vit-s14": of_timm(
        "DINOv2 ViT-S/14 by Meta, self-supervised",
        Facts(384, 224, 21.6, 6.1, "apache-2.0"),
        model="vit_small_patch14_dinov2.lvd142m",
        resampled=True,
    ),
    "dinov2-vit-b14": of_timm(
        "DINOv2 ViT-B/14 by Meta, self-supervised",
        Facts(768, 224, 85.7, 23.2, "apache-2.0"),
        model="vit_base_patch14_dinov2.lvd142m",
        resampled=True,
    ),
    "dinov2-vit-l14": of_timm(
        "DINOv2 ViT-L/14 by Meta, self-supervised",
        Facts(1024, 224, 303.2, 81.0, "apache-2.0"),
        model="vit_large_patch14_dinov2.lvd142m",
        resampled=True,
    ),
    "dinov2-reg-vit-s14": of_timm(
        "DINOv2 ViT-S/14 with registers by Meta",
        Facts(384, 224, 21.6, 6.2, "apache-2.0"),
        model="vit_small_patch14_reg4_dinov2.lvd142m",
        resampled=True,
    ),
    "dinov2-reg-vit-b14": of_timm(
        "DINOv2 ViT-B/14 with registers by Meta",
        Facts(768, 224, 85.7, 23.5, "apache-2.0"),
        model="vit_base_patch14_reg4_dinov2.lvd142m",
        resampled=True,
    ),
    "dinov2-reg-vit-l14": of_timm(
        "DINOv2 ViT-L/14 with registers by Meta",
        Facts(1024, 224, 303.2, 82.3, "apache-2.0"),
        model="vit_large_patch14_reg4_dinov2.lvd142m",
        resampled=True,
    ),
    "dinov3-vit-s16": of_timm(
        "DINOv3 ViT-S/16 by Meta, self-supervised",
        Facts(384, 256, 21.6, 6.2, "dinov3-license"),
        model="vit_small_patch16_dinov3.lvd1689m",
    ),
    "dinov3-vit-b16": of_timm(
        "DINOv3 ViT-B/16 by Meta, self-supervised",
        Facts(768, 256, 85.6, 23.6, "dinov3-license"),
        model="vit_base_patch16_dinov3.lvd1689m",
    ),
    "dinov3-vit-l16": of_timm(
        "DINOv3 ViT-L/16 by Meta, self-supervised",
        Facts(1024, 256, 303.1, 82.4, "dinov3-license"),
        model="vit_large_patch16_dinov3.lvd1689m",
    ),
    "dinov3-convnext-tiny": of_timm(
        "DINOv3 ConvNeXt-Tiny by Meta, self-supervised",
        Facts(768, 224, 27.8, 4.5, "dinov3-license"),
        model="convnext_tiny.dinov3_lvd1689m",
    ),
    "dinov3-convnext-base": of_timm(
        "DINOv3 ConvNeXt-Base by Meta, self-supervised",
        Facts(1024, 224, 87.6, 15.4, "dinov3-license"),
        model="convnext_base.dinov3_lvd1689m",
    ),
    "dinov3-convnext-large": of_timm(
        "DINOv3 ConvNeXt-Large by Meta, self-supervised",
        Facts(1536, 224, 196.2, 34.4, "dinov3-license"),
        model="convnext_large.dinov3_lvd1689m",
    ),
    "tipsv2-vit-b14": of_timm(
        "TIPSv2 ViT-B/14 by Google, from images and texts",
        Facts(768, 448, 86.3, 107.0, "apache-2.0"),
        model="vit_base_patch14_reg1_tipsv2.webli",
    ),
    "tipsv2-vit-l14": of_timm(
        "TIPSv2 ViT-L/14 by Google, from images and texts",
        Facts(1024, 448, 304.0, 362.2, "apache-2.0"),
        model="vit_large_patch14_reg1_tipsv2.webli",
    ),
    "c-radio-v3-vit-b16": of_timm(
        "C-RADIOv3 ViT-B/16 by NVIDIA, distilled from several",
        Facts(768, 512, 86.5, 107.9, "nvidia-open-model-license"),
        model="vit_base_patch16_radio_v3.c_radio",
    ),
    "c-radio-v3-vit-l16": of_timm(
        "C-RADIOv3 ViT-L/16 by NVIDIA, distilled from several",
        Facts(1024, 512, 304.2, 364.8, "nvidia-open-model-license"),
        model="vit_large_patch16_radio_v3.c_radio",
    ),
    "c-radio-v4-so400m-16": of_timm(
        "C-RADIOv4 So400m/16 by NVIDIA, distilled from several",
        Facts(1152, 512, 413.5, 492.5, "nvidia-open-model-license"),
        model="vit_so400m_patch16_radio_v4.c_radio",
    ),
    "mae-vit-b16": of_timm(
        "MAE ViT-B/16 by Meta, self-supervised on ImageNet",
        Facts(768, 224, 85.8, 17.6, "cc-by-nc-4.0"),
        model="vit_base_patch16_224.mae",
    ),
    "vit-b16-in21k": of_timm(
        "ViT-B/16 trained on ImageNet-21k",
        Facts(768, 224, 85.8, 17.6, "apache-2.0"),
        model="vit_base_patch16_224.augreg_in21k",
    ),
    "resnet34": of_timm(
        "ResNet-34 trained on ImageNet",
        Facts(512, 224, 21.3, 3.7, "bsd-3-clause"),
        model="resnet34.tv_in1k",
    ),
    "resnet50": of_timm(
        "ResNet-50 trained on ImageNet",
        Facts(2048, 224, 23.5, 4.1, "bsd-3-clause"),
        model="resnet50.tv_in1k",
    ),
    "resnet101": of_timm(
        "ResNet-101 trained on ImageNet",
        Facts(2048, 224, 42.5, 7.8, "bsd-3-clause"),
        model="resnet101.tv_in1k",
    ),
    "builtin": BackboneSpec(
        "small convolutional network trained on CIFAR-100, works offline",
        Facts(896, 32, 2.6, 0.1, "apache-2.0"),
        _load_builtin,
    ),
    "builtin-photos": BackboneSpec(
        "EfficientNet-Lite2 trained on ImageNet, works offline",
        Facts(1280, 260, 4.8, 0.9, "apache-2.0"),
        _load_builtin_photos,
        has_int8=True,
    ),
}
