"""What fitting and scoring load."""

import subprocess
import sys
from pathlib import Path

import torch

from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.part import Part
from difficulty_service.features.store import create_store

DESCRIPTION = {
    "class_names": ["cat", "dog"],
    "num_samples": 40,
    "num_shards": 1,
    "shard_size": 40,
    "augment_runs": 0,
    "dataset": "photos",
    "fingerprint": "of the photos",
}


def test_neither_fitting_nor_scoring_a_store_loads_pandas(tmp_path: Path) -> None:
    features = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    ids, labels = [f"{row}.png" for row in range(40)], torch.arange(40) % 2
    create_store(tmp_path / "store", FeatureDescription.of(DESCRIPTION)).write_part(
        0, Part(ids, labels, torch.zeros(40), features), []
    )
    script = f"""
import sys
from pathlib import Path
from difficulty_service.features.store import open_store
from difficulty_service.scores.fit_store import fit_store
from difficulty_service.scores.store import score_store
from difficulty_service.gaussians.fit_options import FitOptions
store = open_store(Path({str(tmp_path)!r}, "store"))
score_store(store, fit_store(store, FitOptions()), Path({str(tmp_path)!r}, "s.parquet"))
sys.exit("pandas" in sys.modules)
"""

    finished = subprocess.run([sys.executable, "-c", script], check=False)  # noqa: S603

    assert finished.returncode == 0


def test_torchvision_is_not_loaded_before_an_image_is_resized() -> None:
    script = "import sys, difficulty_service.pipeline; sys.exit('torchvision' in sys.modules)"

    finished = subprocess.run([sys.executable, "-c", script], check=False)  # noqa: S603

    assert finished.returncode == 0
