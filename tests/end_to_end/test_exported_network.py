"""`difficulty score` exports a convolutional network once, and ONNX Runtime runs it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from difficulty_service.backbones import exported_graph
from difficulty_service.extraction import policy
from difficulty_service.scores.file import read_scores

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.long
def test_the_first_run_exports_and_later_ones_take_what_it_kept(
    difficulty: Command, few_photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    monkeypatch.setattr(exported_graph, "LEAST_SPEEDUP", 0.0)
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "weights.safetensors")
    words = ["score", few_photos, "--backbone", "timm:test_resnet", "--image-size", 64]
    words += ["--weights", tmp_path / "weights.safetensors", "--device", "cpu"]
    words += ["--shrinkage", 0.5]

    few = difficulty(*words, "--out", tmp_path / "few.parquet")
    monkeypatch.setattr(policy, "LEAST_IMAGES", 20)
    first = difficulty(*words, "--out", tmp_path / "first.parquet")
    (graph,) = (tmp_path / "assets").rglob("test_resnet-64-*.onnx")
    kept = graph.stat().st_mtime_ns
    monkeypatch.setattr(policy, "LEAST_IMAGES", 2048)
    again = difficulty(*words, "--out", tmp_path / "again.parquet")

    assert [each.returncode for each in (few, first, again)] == [0, 0, 0], first.stderr
    assert "the network runs by" not in few.stderr
    for each in (first, again):
        assert "the network runs by ONNX Runtime, which is " in each.stderr
    assert graph.stat().st_mtime_ns == kept
    scores = [read_scores(tmp_path / f"{name}.parquet") for name in ("few", "first", "again")]
    assert [each.provenance.runtime for each in scores] == [None, "onnxruntime", "onnxruntime"]
    rmd = [each.table["rmd"].to_numpy() for each in scores]
    np.testing.assert_array_equal(rmd[1], rmd[2])
    np.testing.assert_allclose(rmd[1], rmd[0], rtol=1e-3, atol=1e-3)
