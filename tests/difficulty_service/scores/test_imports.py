"""What fitting and scoring load."""

import subprocess
import sys
from pathlib import Path

import torch

from tests.factories import store_of


def test_neither_fitting_nor_scoring_a_store_loads_pandas(tmp_path: Path) -> None:
    features = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    store_of(tmp_path / "store", features, torch.arange(40) % 2)
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
