"""Names of backbones: the listing, and the errors for unknown names."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import open_clip
import pytest
import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_data_config
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from difficulty_service.backbones import (
    BACKBONES,
    DEFAULT_BACKBONE,
    backbone_names,
    clip,
    list_backbones,
    load_backbone,
    timm_models,
    warn_of_licence,
)
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.builtin.network import BuiltinEncoder
from difficulty_service.backbones.builtin_photos.network import PhotoEncoder
from difficulty_service.backbones.frozen_network import pooled_features
from difficulty_service.base.errors import BackboneError
from difficulty_service.images.preparation import normalise, prepare


def test_an_unknown_name_raises_an_error_with_similar_and_all_names() -> None:
    with pytest.raises(BackboneError) as caught:
        load_backbone("clip-vit-b61", BackboneOptions())

    assert "did you mean clip-vit-b16" in str(caught.value)
    assert all(name in str(caught.value) for name in backbone_names())


def test_open_clip_needs_a_pretraining() -> None:
    with pytest.raises(BackboneError, match="expected open_clip:ARCH/TAG"):
        load_backbone("open_clip:ViT-B-32", BackboneOptions())


def test_unknown_kinds_of_features_are_refused() -> None:
    with pytest.raises(BackboneError, match="expected penultimate or projected"):
        load_backbone(DEFAULT_BACKBONE, BackboneOptions(features="last"))


def test_the_listing_shows_which_weights_are_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--timm--resnet50.tv_in1k"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc" / "model.safetensors").write_bytes(b"")

    listing = {entry.name: entry for entry in list_backbones()}

    assert list(listing) == backbone_names()
    assert listing["resnet50"].weights == "cached"
    assert listing["resnet34"].weights == "to download"
    assert listing["timm:NAME"].feature_dim is None


def test_listed_repositories_are_those_the_libraries_download_from() -> None:
    listed = {name: spec.repository for name, spec in BACKBONES.items() if spec.repository}

    for name, repository in listed.items():
        arguments = BACKBONES[name].load.keywords
        if "tag" in arguments:
            config = open_clip.pretrained.get_pretrained_cfg(
                arguments["architecture"], arguments["tag"]
            )
            assert config["hf_hub"] == f"{repository}/"
        else:
            assert timm.get_pretrained_cfg(arguments["model"]).hf_hub_id == repository


@pytest.mark.parametrize("name", BACKBONES)
def test_listed_facts_are_those_of_the_network(name: str) -> None:
    facts = BACKBONES[name].facts
    network = build(name)
    image = torch.zeros(1, 3, facts.size, facts.size, device=next(network.parameters()).device)
    counter = FlopCounterMode(display=False)

    with torch.no_grad(), counter:
        features = pooled_features(network(image))

    parameters = sum(each.numel() for each in network.parameters())
    assert features.shape == (1, facts.feature_dim)
    assert facts.parameters == pytest.approx(parameters / 1e6, abs=0.051)
    assert facts.gmacs == pytest.approx(counter.get_total_flops() / 2e9, abs=0.051)


def build(name: str) -> nn.Module:
    """The network of a backbone up to its features, without memory for its parameters."""
    arguments = getattr(BACKBONES[name].load, "keywords", {})
    with torch.device("cpu" if name == "clip-rn50" else "meta"):  # its pooling needs numbers
        if name == "builtin":
            network = BuiltinEncoder().fold()
        elif name == "builtin-photos":
            network = PhotoEncoder()
        elif "tag" in arguments:
            network = clip.build_tower(*clip.find_configs(**arguments))
            clip.remove_projection(network)
        else:
            network = timm_models.build_random(**arguments)
    return network.eval().requires_grad_(requires_grad=False)


def test_listed_licences_are_those_that_timm_states() -> None:
    for name, spec in BACKBONES.items():
        arguments = getattr(spec.load, "keywords", {})
        if "model" in arguments:
            assert timm.get_pretrained_cfg(arguments["model"]).license == spec.facts.licence, name
        elif "tag" in arguments and not name.startswith("clip-"):
            tower = open_clip.get_model_config(arguments["architecture"])["vision_cfg"]
            tags = timm.list_pretrained(f"{tower['timm_model_name']}.*")
            licences = {timm.get_pretrained_cfg(each).license for each in tags}
            assert spec.facts.licence in licences or not tags, name


@pytest.mark.parametrize("name", [n for n, spec in BACKBONES.items() if spec.repository])
def test_images_are_prepared_as_by_the_transform_of_the_library(name: str) -> None:
    arguments, size = BACKBONES[name].load.keywords, BACKBONES[name].facts.size
    pixels = np.random.default_rng(0).integers(0, 256, (300, 431, 3), np.uint8)
    image, buffer = Image.fromarray(pixels), io.BytesIO()
    image.save(buffer, "PNG")
    if "tag" in arguments:
        configs = clip.find_configs(**arguments)
        preprocessing = clip.preprocessing_of(*configs)
        said = {k: configs[1][k] for k in ("mean", "std", "interpolation", "resize_mode")}
        transform = open_clip.image_transform(size, is_train=False, **said)
    else:
        config = timm_models.find_config(arguments["model"])
        preprocessing = timm_models.preprocessing_of(config, arguments["size"])
        data = resolve_data_config({"input_size": (3, size, size)}, pretrained_cfg=config)
        transform = create_transform(**data)

    prepared = prepare(lambda: io.BytesIO(buffer.getvalue()), preprocessing, "exact")

    assert preprocessing.size == size
    ours = normalise(prepared[None], preprocessing, torch.float32)[0]
    torch.testing.assert_close(ours, transform(image), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dinov3-vit-s16", "dinov3-license (has to be accepted"),
        ("mobileclip2-s0", "apple-amlr (research only)"),
        ("embeddinggemma-300m", "gemma (has to be accepted"),
        ("mae-vit-b16", "cc-by-nc-4.0 (no commercial use)"),
        ("timm:resnet18.fb_ssl_yfcc100m_ft_in1k", "cc-by-nc-4.0 (no commercial use)"),
    ],
)
def test_a_licence_with_a_condition_is_told_of(name: str, said: str) -> None:
    (sentence,) = warn_of_licence(name)

    assert sentence.startswith(f"the weights of {name} have a licence with a condition, {said}")


@pytest.mark.parametrize(
    "name", ["clip-vit-b16", "c-radio-v3-vit-b16", "timm:resnet18.tv_in1k", "builtin-text"]
)
def test_other_licences_are_not_told_of(name: str) -> None:
    assert warn_of_licence(name) == ()


def test_a_network_that_timm_does_not_know_is_no_matter_of_licences() -> None:
    # Whoever has a loader of its own calls it what it likes, and the usual loader refuses it.
    assert warn_of_licence("timm:no_such_network-128px") == ()


def test_listing_the_backbones_imports_no_library_of_networks() -> None:
    code = (
        "import sys; from difficulty_service.backbones import list_backbones; list_backbones(); "
        "sys.exit(bool({'open_clip', 'timm', 'torch'} & set(sys.modules)))"
    )

    finished = subprocess.run([sys.executable, "-c", code], check=False)  # noqa: S603

    assert finished.returncode == 0
