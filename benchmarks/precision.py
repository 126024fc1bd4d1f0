"""Do bfloat16 networks rank samples as float32 ones do? Spearman of RMD, and the speed of both.

Run: python -m benchmarks.precision [--images 10000]

CIFAR-10's test images through the built-in encoder, through MobileNetV2 with its real weights, both
read from DIFFICULTY_SHARED (default ../shared), and through a ViT-B/32 with random weights, whose
speed is that of the real ones; scored once in float32 and once in bfloat16.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.extraction import random_weights
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder, skipped
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.base.process_setup import enable_avx512_kernels, keep_freed_memory
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.plan import Plan
from difficulty_service.features.description import LEAST_AGREEMENT
from difficulty_service.scores.file import read_scores
from difficulty_service.scoring.pipeline import ScoreRequest, execute, score_features
from difficulty_service.settings.options import ScoringOptions

SHARED = shared_folder()
IMAGES = SHARED / "data" / "cifar10_test.parquet"
WEIGHTS = SHARED / "weights" / "mobilenetv2_100.imagenet1k.safetensors"
VIT = "open_clip:ViT-B-32/openai"


def scored(
    backbone: str, weights: str | None, precision: torch.dtype, limit: int
) -> tuple[NDArray[np.float64], float]:
    """RMD of every image, and images per second of the extraction."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(
            location=str(IMAGES),
            out=Path(folder) / "features",
            backbone=backbone,
            dataset=DatasetOptions(limit=limit, id_column="index"),
            network=BackboneOptions(weights=weights, precision=precision),
        )
        began = time.perf_counter()
        store = execute(plan).store
        rate = limit / (time.perf_counter() - began)
        out = Path(folder) / "scores.parquet"
        score_features(store, ScoreRequest(out, ScoringOptions(scorers=("rmd",))))
        return read_scores(out, ["rmd"]).table["rmd"].to_numpy(), rate


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    limit = parser.parse_args().images
    if not IMAGES.is_file() or not WEIGHTS.is_file():
        sys.exit(skipped(f"{IMAGES.name} or {WEIGHTS.name}"))
    enable_avx512_kernels()
    keep_freed_memory()
    print(f"{machine()}\n{limit} test images of CIFAR-10")
    with tempfile.TemporaryDirectory() as folder:
        vit = random_weights(VIT, Path(folder))
        compare((("builtin", None), (VIT, vit), ("timm:mobilenetv2_100", str(WEIGHTS))), limit)


def compare(networks: Sequence[tuple[str, str | None]], limit: int) -> None:
    """Prints a line for each network."""
    for backbone, weights in networks:
        full, full_rate = scored(backbone, weights, torch.float32, limit)
        half, half_rate = scored(backbone, weights, torch.bfloat16, limit)
        agreement = float(spearmanr(full, half).statistic)
        hardest = [set(np.argsort(-scores)[: limit // 10].tolist()) for scores in (full, half)]
        overlap = len(hardest[0] & hardest[1]) / (limit // 10)
        print(
            f"{backbone:24} Spearman {agreement:.5f}, hardest tenth shared {overlap:.3f}, "
            f"float32 {full_rate:.0f} images/s, bfloat16 {half_rate:.0f}; "
            f"{LEAST_AGREEMENT} is {'reached' if agreement >= LEAST_AGREEMENT else 'missed'}"
        )


if __name__ == "__main__":
    main()
