"""Networks of timm without their classifier: DINOv2, MAE, ViT, ResNet and all others."""

import math
from collections.abc import Collection
from typing import Any

from torch import Tensor, nn

from difficulty_service.backbones.backbone import (
    INTERPOLATIONS,
    NO_FILL,
    Backbone,
    BackboneOptions,
    Fit,
    Preprocessing,
    Size,
    no_projection,
    require_multiple,
    size_of_sides,
    takes_only,
)
from difficulty_service.backbones.exported_graph import run_fastest
from difficulty_service.backbones.frozen_network import freeze
from difficulty_service.backbones.initialisation import WithoutRandomValues
from difficulty_service.backbones.onnx_network import suits_onnx
from difficulty_service.backbones.weights import describe_difference, read_weights
from difficulty_service.backbones.weights_files import TIMM_FILENAMES, locate_weights
from difficulty_service.base.errors import BackboneError, Setting

FITS: dict[str, Fit] = {"center": "crop", "squash": "squash", "border": "border"}
"""What timm calls the ways in which images of any shape come to that of the input."""

PUBLISHED_NETWORK, PUBLISHED_HEAD = "model.", "unc_module."
RUN_PREFIX = "network."
RUN_STATISTICS = {"mean": "normalisation.mean", "std": "normalisation.std"}


def load_timm(
    name: str, options: BackboneOptions, *, model: str, size: int | None = None
) -> Backbone:
    """One of timm's networks, such as `resnet50.tv_in1k`, up to its pooled or class-token features.

    A side of the input in pixels, unless None, replaces that of the pretraining, and one among the
    options either; position embeddings are then resampled.
    """
    if options.features != "penultimate":
        raise no_projection(name)
    config = find_config(model)
    size = choose_size(name, model, config, options.image_size, size)
    # Networks of convolutions are the same for all sizes, and are not built for one.
    built_for = size if config["fixed_input_size"] else None
    if options.random:
        network = build_random(model, built_for)
        return freeze(name, network, preprocessing_of(config, size), None, options)
    repository = config.get("hf_hub_id") or ""
    if not repository and options.weights is None:
        raise BackboneError(
            f"timm knows no weights on the hub for {model}",
            "give a weights file as ",
            Setting("weights"),
            parameter="weights",
        )
    filename = config.get("hf_hub_filename")
    filenames = TIMM_FILENAMES if filename is None else safe_alternatives(filename)
    path = locate_weights(options.weights, name, repository, filenames, options.downloads)
    weights, statistics = split_run(without_uncertainty(read_weights(path)))
    network = build(model, config, weights, built_for, f"{path} as {name}")
    preprocessing = preprocessing_of(config | statistics, size)
    backbone = freeze(name, network, preprocessing, path, options)
    return run_fastest(backbone, model) if suits_onnx(options) else backbone


def find_config(model: str) -> dict[str, Any]:
    """Timm's description of a pretrained network."""
    import difflib

    import timm

    architecture, _, _ = model.partition(".")
    if not timm.is_model(architecture):
        close = difflib.get_close_matches(architecture, timm.list_models(), n=5)
        hint = f"similar names are {', '.join(close)}" if close else ""
        raise BackboneError(f"timm has no network {architecture!r}", hint, parameter="backbone")
    try:
        config = timm.get_pretrained_cfg(model)
    except RuntimeError as error:
        tags = ", ".join(timm.list_pretrained(f"{architecture}.*")) or "none"
        raise BackboneError(
            f"timm has no pretraining {model!r}", f"it has {tags}", parameter="backbone"
        ) from error
    if config is None:
        raise BackboneError(f"timm has no pretraining of {model!r}", parameter="backbone")
    fields: dict[str, Any] = config.to_dict(remove_source=False, remove_null=False)
    return fields


def choose_size(
    name: str, model: str, config: dict[str, Any], asked: int | None, size: int | None
) -> int | None:
    """The side of a square input in pixels that replaces that of the pretraining; None for that.

    Args:
        asked: Side that was asked for; None for none.
        size: Side that the backbone has otherwise; None for that of the pretraining.

    Raises:
        BackboneError: The network cannot take images of the side that was asked for.
    """
    own = preprocessing_of(config, size).size
    if asked is None or asked == own:
        return size
    import torch

    with torch.device("meta"):
        network = build_random(model, size)
    if config["fixed_input_size"]:
        require_fitting(name, network, own, asked)
    elif (patch := patch_side(network)) is not None and not _fills_patches(network):
        require_multiple(name, asked, patch)
    return asked


def require_fitting(name: str, network: nn.Module, own: Size, asked: int) -> None:
    """Refuses an input that a network of timm with tokens in a grid does not take.

    Args:
        own: Size of the input that it was built for.
        asked: Side in pixels that was asked for.
    """
    patch = patch_side(network)
    if patch is None or not hasattr(network, "set_input_size"):
        raise takes_only(name, own)
    require_multiple(name, asked, patch)


def patch_side(network: nn.Module) -> int | None:
    """Side in pixels of the patches of a network of timm; None where it has no grid of them."""
    patches: Any = getattr(network, "patch_embed", None)
    grid = getattr(patches, "grid_size", None)
    return None if grid is None else int(patches.img_size[0]) // int(grid[0])


def _fills_patches(network: nn.Module) -> bool:
    """Whether a network whose input has any size adds to it what the last patches lack."""
    return bool(getattr(network.patch_embed, "dynamic_img_pad", True))


def safe_alternatives(filename: str) -> tuple[str, ...]:
    """File names under which the hub may hold these weights, safetensors first."""
    stem, _, _ = filename.rpartition(".")
    replaced = stem.replace("open_clip_pytorch_model", "open_clip_model")
    return (f"{replaced}.safetensors", filename)


def without_uncertainty(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the network, where an uncertainty head was saved with it.

    Kirchhof et al. (2024) publish both in one file, the network under `model.`.
    """
    if not any(name.startswith(PUBLISHED_HEAD) for name in weights):
        return weights
    return {
        name.removeprefix(PUBLISHED_NETWORK): tensor
        for name, tensor in weights.items()
        if not name.startswith(PUBLISHED_HEAD)
    }


def split_run(weights: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of the network, and the normalisation where a training run saved them together.

    Those of a run of `difficulty train` are under `network.`, beside mean and standard deviation of
    its training images in [0, 255], which become `mean` and `std` for values in [0, 1].
    """
    if not set(RUN_STATISTICS.values()) <= weights.keys():
        return weights, {}
    network = {
        name.removeprefix(RUN_PREFIX): tensor
        for name, tensor in weights.items()
        if name not in RUN_STATISTICS.values()
    }
    statistics = {
        field: tuple((weights[name].flatten().double() / 255).tolist())
        for field, name in RUN_STATISTICS.items()
    }
    return network, statistics


def build(
    model: str, config: dict[str, Any], weights: dict[str, Tensor], size: int | None, what: str
) -> nn.Module:
    """The network without its classifier, with weights converted and resampled by timm."""
    import timm

    num_classes, weights = match_classifier(config, weights)
    arguments: dict[str, Any] = {} if size is None else {"img_size": size}
    overlay = {"state_dict": dict(weights), "num_classes": num_classes}
    try:
        # With the number of classes in the file, timm requires every tensor to fit. If it were to
        # drop the classifier as well, it would only log what is missing.
        with WithoutRandomValues():
            network: nn.Module = timm.create_model(
                model,
                pretrained=True,
                num_classes=num_classes,
                pretrained_cfg_overlay=overlay,
                **arguments,
            )
    except (RuntimeError, KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        expected = timm.create_model(model, num_classes=num_classes).state_dict()
        difference = describe_difference(expected, weights) or f"  {error}"
        raise BackboneError(f"{what}: the weights are of another network\n{difference}") from error
    # Timm keeps a copy of them with its description of the network.
    network.pretrained_cfg.pop("state_dict")  # type: ignore[operator, union-attr]
    network.reset_classifier(0)  # type: ignore[operator]
    return network


def build_random(model: str, size: int | None) -> nn.Module:
    """The network without its classifier and with random weights; arguments as for `build`."""
    import timm

    arguments: dict[str, Any] = {} if size is None else {"img_size": size}
    network: nn.Module = timm.create_model(model, pretrained=False, num_classes=0, **arguments)
    return network


def match_classifier(
    config: dict[str, Any], weights: dict[str, Tensor]
) -> tuple[int, dict[str, Tensor]]:
    """Number of classes to build with, and the weights without a classifier of another size.

    A file may hold the classifier of the pretraining, a fine-tuned one, or none.
    """
    classifiers = config.get("classifier") or ()
    names = (classifiers,) if isinstance(classifiers, str) else tuple(classifiers)
    num_classes: int = config["num_classes"] or 0
    heads = [weights[f"{name}.weight"] for name in names if f"{name}.weight" in weights]
    if heads and len(heads) == len(names) and all(len(head) == num_classes for head in heads):
        return num_classes, weights
    dropped = {f"{name}.{part}" for name in names for part in ("weight", "bias")}
    return 0, {name: tensor for name, tensor in weights.items() if name not in dropped}


def preprocessing_of(config: dict[str, Any], size: int | None) -> Preprocessing:
    """The evaluation transform of timm, as its `transforms_imagenet_eval` makes it.

    Args:
        size: Side of a square input in pixels that replaces that of the pretraining; None for that.

    Raises:
        BackboneError: The network expects images that cannot be made here.
    """
    from timm.data.config import resolve_data_config

    data = resolve_data_config({}, pretrained_cfg=config)
    channels, *own = data["input_size"]
    _require_known("channels", channels, (3,))
    _require_known("interpolation", data["interpolation"], INTERPOLATIONS)
    _require_known("crop mode", data["crop_mode"], FITS)
    fit = FITS[data["crop_mode"]]
    sides = own if size is None else (size, size)
    return Preprocessing(
        size=size_of_sides(*sides),
        resize=size_of_sides(*(math.floor(side / data["crop_pct"]) for side in sides)),
        interpolation=data["interpolation"],
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
        fit=fit,
        fill=tuple(round(255 * each) for each in data["mean"]) if fit == "border" else NO_FILL,
    )


def _require_known(what: str, value: object, known: Collection[object]) -> None:
    if value not in known:
        expected = " or ".join(str(each) for each in known)
        raise BackboneError(
            f"the network takes images with {what} {value!r}, and here they have {expected}",
            "choose another network",
            parameter="backbone",
        )
