"""What fitting and scoring load."""

import subprocess
import sys
from pathlib import Path

STORE = Path(__file__).parents[2] / "data" / "version_0_1" / "train"


def test_neither_fitting_nor_scoring_a_store_loads_pandas(tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from difficulty_service.feature_store.store import open_store
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.score_store import score_store
from difficulty_service.statistics.fit_options import FitOptions
store = open_store(Path({str(STORE)!r}))
score_store(store, fit_store(store, FitOptions()), ["rmd"], Path({str(tmp_path)!r}, "s.parquet"))
sys.exit("pandas" in sys.modules)
"""

    finished = subprocess.run([sys.executable, "-c", script], check=False)  # noqa: S603

    assert finished.returncode == 0


def test_torchvision_is_not_loaded_before_an_image_is_resized() -> None:
    script = "import sys, difficulty_service.pipeline; sys.exit('torchvision' in sys.modules)"

    finished = subprocess.run([sys.executable, "-c", script], check=False)  # noqa: S603

    assert finished.returncode == 0
