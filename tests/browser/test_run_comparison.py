"""The page of compared training runs in a real browser, offline."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from tests.browser.kinds import OpenPage
from tests.browser.reports import axe_findings
from trainer import run_folder
from trainer.evaluation.prediction_file import Predictions, write_predictions
from trainer.evaluation.record import evaluate_predictions, write_metrics
from trainer.metrics.bootstrap import Resampling
from trainer.reports.columns import MAIN_COLUMNS
from trainer.reports.comparison import compare_runs, resample_comparison
from trainer.reports.comparison_files import write_comparison

HOSTILE = "</style><img src=x onerror=alert(1)> {{ 7 * 7 }}"
OBJECTIVE = {
    "loss": {"name": "focal", "constants": {"gamma": 2.0}},
    "alpha": 0.0,
    "weights": "none",
}
SAMPLES = 300


def write_run(folder: Path, name: str, signal: float) -> Path:
    """Three seeds of a run that is right the more often, the stronger the signal."""
    targets = torch.arange(SAMPLES) % 3
    for seed in range(3):
        noise = torch.randn(2, SAMPLES, 3, generator=torch.Generator().manual_seed(seed))
        logits, validation = signal * F.one_hot(targets, 3) + noise
        seed_folder = folder / f"seed-{seed}"
        seed_folder.mkdir(parents=True)
        run_folder.write_run(seed_folder, {"recipe": {"name": name}})
        run_folder.write_json(seed_folder / "objective.json", OBJECTIVE)
        record = evaluate_predictions(logits, targets, (validation, targets))
        write_metrics(seed_folder / "metrics.json", record)
        ids = [f"{row}.png" for row in range(SAMPLES)]
        write_predictions(seed_folder / "test.npz", Predictions(ids, logits, targets))
    return folder


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a good run with a hostile name and of a bad one."""
    root = tmp_path_factory.mktemp("runs")
    folders = [write_run(root / "good", HOSTILE, 4.0), write_run(root / "bad", "bad", 1.0)]
    compared = compare_runs(folders)
    intervals = resample_comparison(compared, MAIN_COLUMNS, Resampling(num_resamples=100))
    write_comparison(compared, root / "comparison.md", intervals)
    return root / "comparison.html"


@pytest.mark.long
def test_the_diagrams_load_and_are_named(open_page: OpenPage, comparison: Path) -> None:
    page = open_page(comparison)

    page.wait_for_function(
        "[...document.querySelectorAll('#diagrams img')].every((each) => each.naturalWidth > 300)"
    )

    texts = page.locator("#diagrams img").evaluate_all("(all) => all.map((each) => each.alt)")
    assert [text.split(" of ")[0] for text in texts] == [
        "Reliability diagrams",
        "Risk-coverage curves",
        "Accuracy over rejection",
        "ROC curves",
    ]


def test_the_best_run_is_marked_and_hostile_names_are_text(
    open_page: OpenPage, comparison: Path
) -> None:
    page = open_page(comparison)

    heading = page.get_by_role("heading", level=1).inner_text()
    good, bad = page.locator("#metrics table").first.locator("tbody tr").all()

    assert heading.startswith(f"{HOSTILE} is better than the other run in ")
    assert good.get_by_role("rowheader").inner_text() == HOSTILE
    assert good.locator(".best").first.inner_text().startswith("best:")
    assert bad.locator(".best").count() == 0
    assert "focal (gamma = 2)" in page.locator("#objectives").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_axe_finds_nothing(open_page: OpenPage, comparison: Path, device: str, scheme: str) -> None:
    page = open_page(comparison, device, color_scheme=scheme)

    assert axe_findings(page) == []
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_reads_without_javascript(open_page: OpenPage, comparison: Path) -> None:
    page = open_page(comparison, java_script_enabled=False)

    assert page.get_by_role("heading", name="As trained").is_visible()
    assert not page.locator("#theme").is_visible()
