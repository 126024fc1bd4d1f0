"""Names of backbones: the listing, and the errors for unknown names."""

import subprocess
import sys
from pathlib import Path

import open_clip
import pytest
import timm
import torch

from difficulty_service.backbones import (
    BACKBONES,
    DEFAULT_BACKBONE,
    backbone_names,
    list_backbones,
    load_backbone,
)
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.base.errors import BackboneError


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


def test_listed_dimensions_match_the_networks() -> None:
    for name, spec in BACKBONES.items():
        arguments = getattr(spec.load, "keywords", {})
        if "model" in arguments:
            architecture = arguments["model"].split(".")[0]
            with torch.device("meta"):
                network = timm.create_model(architecture, num_classes=0)
            assert network.num_features == spec.feature_dim, name


def test_listing_the_backbones_imports_no_library_of_networks() -> None:
    code = (
        "import sys; from difficulty_service.backbones import list_backbones; list_backbones(); "
        "sys.exit(bool({'open_clip', 'timm', 'torch'} & set(sys.modules)))"
    )

    finished = subprocess.run([sys.executable, "-c", code], check=False)  # noqa: S603

    assert finished.returncode == 0
