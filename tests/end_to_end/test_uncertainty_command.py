"""`difficulty uncertainty` with a head that `difficulty train` made on features of photos."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from difficulty_service.base.errors import TrainingError
from difficulty_service.cli import create_app
from difficulty_service.features.description import read_description
from tests.factories import store_of
from trainer.uncertainty.application import read_uncertainties
from trainer.uncertainty.head import read_head, write_head


def difficulty(*words: object) -> None:
    create_app()([str(word) for word in words])


@pytest.fixture(scope="module")
def folder(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of photos, and a run with a head that was trained on them."""
    folder = tmp_path_factory.mktemp("uncertainty")
    options = "--backbone", "builtin", "--device", "cpu", "--augment-runs", 2
    difficulty("extract", photos, "--out", folder / "features", *options)
    settings = ("data.test=", "training.epochs=1", "uncertainty.epochs=2", "uncertainty.hidden=[8]")
    changes = [word for each in settings for word in ("--set", each)]
    data = "--set", f"data.train={folder / 'features'}"
    out = "--out", folder / "run", "--device", "cpu"
    difficulty("train", "uncertainty", *data, *changes, *out)
    return folder


@pytest.mark.slow
def test_a_store_gets_uncertainties_and_an_r_auroc(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "u.parquet"

    difficulty("uncertainty", folder / "run", folder / "features", "--out", out, "--device", "cpu")

    table = read_uncertainties(out).table
    printed = capsys.readouterr().out
    assert f"{len(table):,} uncertainties are in {out}" in printed
    assert "R-AUROC: 0." in printed


@pytest.mark.slow
def test_images_are_extracted_with_the_backbone_of_the_head(
    folder: Path, photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "u.parquet"

    difficulty("uncertainty", folder / "run", photos, "--out", out, "--device", "cpu")

    written = read_uncertainties(out)
    assert (tmp_path / "u.features" / "store.json").exists()
    assert written.provenance["backbone"] == "builtin"
    assert written.provenance["dataset"] == str(photos)
    assert len(written.table) > 0


@pytest.mark.slow
def test_images_are_mirrored_where_those_of_the_head_were(
    folder: Path, photos: Path, tmp_path: Path
) -> None:
    trained = read_head(folder / "run")
    kind = {**trained.description["features"], "flip": True}
    write_head(
        tmp_path / "head.safetensors",
        replace(trained, description={**trained.description, "features": kind}),
    )
    out = "--out", tmp_path / "u.parquet", "--device", "cpu"

    difficulty("uncertainty", tmp_path, photos, *out)

    assert read_description(tmp_path / "u.features").flip is True
    assert read_uncertainties(tmp_path / "u.parquet").provenance["flip"] is True
    with pytest.raises(TrainingError, match="flip: true for the head, false in"):
        difficulty("uncertainty", tmp_path, folder / "features", *out)


def test_features_of_another_backbone_are_refused(folder: Path, tmp_path: Path) -> None:
    labels = torch.zeros(2, dtype=torch.int64)
    store_of(tmp_path / "other", torch.zeros(2, 8), labels, backbone="other")
    out = "--out", tmp_path / "u.parquet", "--device", "cpu"

    with pytest.raises(TrainingError, match=r'backbone: "builtin" for the head, "other" in'):
        difficulty("uncertainty", folder / "run", tmp_path / "other", *out)


def test_a_wrong_name_of_the_output_is_refused_before_anything_else(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"expected is \.parquet"):
        difficulty("uncertainty", tmp_path / "none", tmp_path, "--out", tmp_path / "u.csv")
