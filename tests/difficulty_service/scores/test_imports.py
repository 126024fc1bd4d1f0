"""What fitting and scoring load."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.factories import store_of, write_image_folder


@pytest.mark.slow
def test_neither_fitting_nor_scoring_a_store_loads_pandas(tmp_path: Path) -> None:
    features = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    store_of(tmp_path / "store", features, torch.arange(40) % 2)
    script = f"""
import sys
from pathlib import Path
from difficulty_service.features.store import open_store
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.store import score_store
from difficulty_service.gaussians.fit_options import FitOptions
store = open_store(Path({str(tmp_path)!r}, "store"))
score_store(store, fit_store(store, FitOptions()), Path({str(tmp_path)!r}, "s.parquet"))
sys.exit("pandas" in sys.modules)
"""

    finished = subprocess.run([sys.executable, "-c", script], check=False)  # noqa: S603

    assert finished.returncode == 0


@pytest.mark.long
def test_scoring_images_by_the_networks_of_the_package_does_not_load_torchvision(
    tmp_path: Path,
) -> None:
    folder = write_image_folder(tmp_path / "photos", size=(70, 90), each=3)
    script = f"""
import sys
import difficulty_service as ds
for backbone in ("builtin", "builtin-photos"):
    ds.score_dataset({str(folder)!r}, backbone=backbone, progress=False)
sys.exit("torchvision" in sys.modules)
"""

    finished = subprocess.run([sys.executable, "-c", script], check=False)  # noqa: S603

    assert finished.returncode == 0
