"""The page of a comparison says which run is the best, and holds everything that it shows."""

import html
import re
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from trainer import run_folder
from trainer.evaluation.prediction_file import Predictions, write_predictions
from trainer.evaluation.record import evaluate_predictions, write_metrics
from trainer.metrics.bootstrap import Resampling
from trainer.reports.columns import COLUMNS, MAIN_COLUMNS, best_run
from trainer.reports.comparison import compare_runs, resample_comparison
from trainer.reports.comparison_files import best_metrics, write_comparison, write_page
from trainer.reports.comparison_table import markdown_table

OBJECTIVE = {"loss": {"name": "cross_entropy", "constants": {}}, "alpha": 0.0, "weights": "none"}
SAMPLES = 200


def write_run(folder: Path, signal: float, num_seeds: int = 1) -> Path:
    """Seeds that are right the more often, the stronger the signal; without validation samples."""
    targets = torch.arange(SAMPLES) % 3
    for seed in range(num_seeds):
        noise = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(seed))
        logits = signal * F.one_hot(targets, 3) + noise
        path = folder / f"seed-{seed}"
        path.mkdir(parents=True)
        run_folder.write_run(path, {"recipe": {"name": folder.name}})
        run_folder.write_json(path / "objective.json", OBJECTIVE)
        write_metrics(path / "metrics.json", evaluate_predictions(logits, targets))
        ids = [f"{row}.png" for row in range(SAMPLES)]
        write_predictions(path / "test.npz", Predictions(ids, logits, targets))
    return folder


def page_of(folder: Path, *runs: Path, resamples: int = 100) -> str:
    comparison, intervals = compare_runs(runs), None
    if resamples:
        intervals = resample_comparison(comparison, MAIN_COLUMNS, Resampling(resamples))
    write_page(folder / "table.html", comparison, intervals, [])
    return (folder / "table.html").read_text("utf-8")


def words(page: str) -> str:
    """The text that a reader sees."""
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_the_first_sentence_names_the_run_that_is_best_in_most_metrics(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "bad", 0.5), write_run(tmp_path / "good", 4.0)]
    comparison = compare_runs(runs)
    intervals = resample_comparison(comparison, MAIN_COLUMNS, Resampling(100))

    text = words(page_of(tmp_path, *runs))

    good = best_metrics(comparison, intervals)[0]
    columns = [COLUMNS[metric] for metric in MAIN_COLUMNS]
    best = [column for column in columns if best_run(comparison, "raw", column, intervals) == 1]
    assert good.run == "good"
    assert good.titles == [column.title for column in best]
    assert f"good is better than the other run in {len(best)} of 8 metrics." in text
    assert f"good : {' · '.join(good.titles)}" in text


def test_runs_that_do_not_differ_beyond_the_intervals_have_no_best(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, 2.0) for name in ("one", "copy")]

    page = page_of(tmp_path, *runs)

    assert "No run is better than the other in any of 8 metrics." in words(page)
    assert 'class="r best"' not in page


def test_two_seeds_are_no_reason_to_say_that_runs_do_not_differ(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "bad", 0.5, 2), write_run(tmp_path / "good", 4.0, 2)]

    text = words(page_of(tmp_path, *runs))

    assert "2 runs with too few seeds to tell them apart." in text
    assert "Two seeds are too few for an interval, so both values are shown of bad, good" in text
    records = [record["raw"]["ece"] or 0 for record in compare_runs(runs).runs[0].records.values()]
    low, high = sorted(f"{100 * value:.2f}" for value in records)
    assert f"({low} and {high})" in text


@pytest.mark.parametrize(
    ("names", "resamples", "sentence"),
    [
        (["one"], 100, "The results of one ."),
        (["one", "two"], 0, "There are no intervals, so no run is marked as the best."),
    ],
)
def test_one_run_and_no_intervals_have_sentences_of_their_own(
    tmp_path: Path, names: list[str], resamples: int, sentence: str
) -> None:
    runs = [write_run(tmp_path / name, 1.0 + number) for number, name in enumerate(names)]

    page = page_of(tmp_path, *runs, resamples=resamples)

    assert sentence in words(page)
    assert 'class="r best"' not in page


def test_the_page_has_the_numbers_of_the_table(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "bad", 0.5), write_run(tmp_path / "good", 4.0)]

    text = words(page_of(tmp_path, *runs))

    comparison = compare_runs(runs)
    intervals = resample_comparison(comparison, MAIN_COLUMNS, Resampling(100))
    table = markdown_table(comparison, intervals=intervals)
    (line,) = [line for line in table.splitlines() if line.startswith("| good | 1 |")]
    cells = [cell.replace("**", "").strip() for cell in line.strip("|").split(" | ")]
    assert " ".join(cells) in text.replace("best: ", "")


def test_every_run_is_compared_with_the_best_of_each_metric(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, each) for name, each in (("good", 4.0), ("bad", 0.5))]
    runs.append(write_run(tmp_path / "copy", 4.0))
    comparison = compare_runs(runs)
    intervals = resample_comparison(comparison, MAIN_COLUMNS, Resampling(100))

    page = page_of(tmp_path, *runs)

    (table,) = re.findall(r'<table class="runs" id="differences">.*?</table>', page, re.DOTALL)
    rows = [words(row) for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)]
    low, high = intervals.difference(1, 0, "raw", "accuracy") or (0, 0)
    means = [run.records[0]["raw"]["accuracy"] for run in comparison.runs]
    expected = f"{100 * (means[1] - means[0]):+.2f} [{100 * low:+.2f}, {100 * high:+.2f}] worse"
    assert rows[0] == "metric good bad copy"
    assert rows[1] == (
        f"accuracy (%) ↑ best mean {expected} +0.00 [+0.00, +0.00] interval contains 0"
    )
    assert len(rows) == 1 + len(MAIN_COLUMNS)


def test_without_a_second_run_or_intervals_there_are_no_differences(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, 2.0) for name in ("one", "two")]

    assert 'id="differences"' not in page_of(tmp_path, runs[0])
    assert 'id="differences"' not in page_of(tmp_path, *runs, resamples=0)


@pytest.mark.slow
def test_the_diagrams_are_in_the_page_which_refers_to_no_other_file(tmp_path: Path) -> None:
    write_comparison(compare_runs([write_run(tmp_path / "run", 2.0)]), tmp_path / "table.md")
    page = (tmp_path / "table.html").read_text("utf-8")

    sources = re.findall(r'\s(?:src|href)="([^"]*)"', page)
    assert {source.split(":")[0] for source in sources if not source.startswith("#")} == {"data"}
    assert page.count('src="data:image/svg+xml;base64,') == 4
    assert "default-src 'none'" in html.unescape(page)
    assert not re.search(r"<[^>]*\s(style|on\w+)=", page)
