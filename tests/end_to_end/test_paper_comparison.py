"""The block on the page of the papers that repeats a paper's comparison runs as it is printed."""

import csv
import re
import shutil
from pathlib import Path

import pytest

from tests.warm_command import run_script
from trainer.run_folder import read_json

PAGE = Path(__file__).resolve().parents[2] / "docs" / "papers.md"
LINES_TO_CHANGE = 4

LOSSES = (
    *("correctness_ranking", "cross_entropy", "entropy", "focal", "label_smoothing"),
    *("logit_l1", "poly_loss"),
)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_one_block_scores_trains_every_baseline_and_compares_them(
    few_photos: Path, tmp_path: Path, commands: Path
) -> None:
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if "runs/proposed" in block or "run proposed" in block)
    own = f"""
        train={few_photos} test={few_photos} recipe=sample_difficulty_cifar10
        settings="--set data.image_size=16 --set model.name=small_resnet --set training.epochs=1
                  --set schedule.name=constant --set training.batch_size=8 --device cpu"
        seeds="[0]"
        smoothing=0.1
    """
    block = block.replace("difficulty compare", "difficulty compare --resamples 10")
    script = "set -e\n" + own + "\n".join(block.splitlines()[LINES_TO_CHANGE:])

    done = run_script(script, commands, tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    with (tmp_path / "comparison.csv").open(newline="") as file:
        runs = {row["run"] for row in csv.DictReader(file)}
    assert runs == {"proposed", *LOSSES}
    written = read_json(tmp_path / "comparison.json")["objectives"]
    objectives = {name: seeds["0"] for name, seeds in written.items()}
    assert objectives["entropy"]["alpha"] == 0.1
    assert objectives["proposed"]["alpha"] == 0.3
    assert objectives["label_smoothing"]["loss"]["constants"] == {"smoothing": 0.1}
    assert {objectives[name]["alpha"] for name in LOSSES if name != "entropy"} == {0}


def test_the_smoothing_of_the_block_is_that_of_the_paper() -> None:
    page = PAGE.read_text()

    (shown,) = re.findall(r"^smoothing=([\d.]+)", page, re.MULTILINE)

    assert float(shown) == round(0.05 * 10 / 9, 4)
    assert f"{0.05 * 100 / 99:.4f} of 100" in page
