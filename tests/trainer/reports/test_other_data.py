"""What runs were evaluated on besides their test data is compared: tables, LaTeX and curves."""

import csv
import html
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.base.errors import TrainingError
from trainer import run_folder
from trainer.evaluation.prediction_file import Predictions, write_distances, write_predictions
from trainer.evaluation.record import (
    add_records,
    evaluate_ood,
    evaluate_predictions,
    ood_curves,
    write_curves,
    write_metrics,
)
from trainer.metrics.bootstrap import Resampling
from trainer.metrics.mahalanobis import FEATURE_SCORES
from trainer.metrics.selective import aurc, certainty_and_correct
from trainer.reports.columns import MAIN_COLUMNS, choose_metrics, column_of
from trainer.reports.comparison import (
    SEEDS_ALONE,
    RunComparison,
    compare_runs,
    resample_comparison,
    summarise,
)
from trainer.reports.comparison_curves import (
    FALSE_POSITIVES,
    RATES,
    CurvesOfRuns,
    draw_panels,
)
from trainer.reports.comparison_files import write_comparison, write_page
from trainer.reports.comparison_table import markdown_table
from trainer.reports.latex import escaped, latex_tables
from trainer.reports.other_data import SCORE_TITLES
from trainer.reports.pair_tables import other_tables, tabulated_metrics

OBJECTIVE = {"loss": {"name": "cross_entropy", "constants": {}}, "alpha": 0.0, "weights": "none"}
ODD = "far & odd_1"


def predictions_of(seed: int, signal: float) -> tuple[Tensor, Tensor]:
    """Logits of 120 samples, right the more often, the stronger the signal."""
    targets = torch.arange(120) % 3
    noise = torch.randn(120, 3, generator=torch.Generator().manual_seed(seed))
    return signal * F.one_hot(targets, 3) + 2 * noise, targets


def write_run(folder: Path, signal: float, *, evaluated: bool = True) -> Path:
    """Three seeds; those that are evaluated have results on OOD data and corrupted images."""
    for seed in range(3):
        path = folder / f"seed-{seed}"
        path.mkdir(parents=True)
        logits, targets = predictions_of(seed, signal)
        validation = predictions_of(seed + 10, signal)
        run_folder.write_run(path, {"recipe": {"name": folder.name}})
        run_folder.write_json(path / "objective.json", OBJECTIVE)
        write_metrics(path / "metrics.json", evaluate_predictions(logits, targets, validation))
        ids = [f"{row}.png" for row in range(120)]
        write_predictions(path / "test.npz", Predictions(ids, logits, targets))
        if not evaluated:
            continue
        others = 1.5 * torch.randn(50, 3, generator=torch.Generator().manual_seed(seed))
        distances = tuple(
            dict.fromkeys(FEATURE_SCORES, each)
            for each in (torch.arange(120) * 1.0, torch.arange(50) + 90.0)
        )
        known = logits, others, validation
        add_records(path / "ood.json", {ODD: evaluate_ood(*known, None, distances)})
        write_curves(path / "roc.parquet", ood_curves(logits, others, ODD, validation, distances))
        write_distances(path / "distances.parquet", ids, distances[0])
        corrupted = {
            name: {
                str(severity): evaluate_predictions(logits / severity, targets, validation)
                for severity in range(1, 6)
            }
            for name in ("fog", "snow")
        }
        write_metrics(path / "corruptions.json", corrupted)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A run that is evaluated on everything, and one on its test data only."""
    root = tmp_path_factory.mktemp("runs")
    return [
        write_run(root / "good", 6.0),
        write_run(root / "bad_run", 2.0, evaluated=False),
    ]


@pytest.fixture(scope="module")
def comparison(folders: list[Path]) -> RunComparison:
    return compare_runs(folders)


@pytest.mark.slow
def test_results_on_other_data_are_metrics_of_a_run(
    comparison: RunComparison, folders: list[Path]
) -> None:
    records = [run_folder.read_json(folders[0] / f"seed-{seed}" / "ood.json") for seed in range(3)]
    corrupted = run_folder.read_json(folders[0] / "seed-1" / "corruptions.json")
    run = comparison.runs[0]

    raw = summarise(run, "raw", f"ood_auroc_mahalanobis@{ODD}")
    scaled = summarise(run, "temperature_ece", f"ood_fpr_at_95_tpr_energy@{ODD}")

    assert raw is not None
    assert scaled is not None
    assert raw.mean == np.mean([record[ODD]["mahalanobis"]["auroc"] for record in records])
    rates = [record[ODD]["temperature_ece"]["energy"]["fpr_at_95_tpr"] for record in records]
    assert scaled.mean == np.mean(rates)
    record = run.records[1]["temperature_nll"]
    by_severity = [
        [corrupted[name][str(severity)]["temperature_nll"]["ece"] for name in ("fog", "snow")]
        for severity in range(1, 6)
    ]
    assert record["corrupted_ece_severity_4"] == pytest.approx(np.mean(by_severity[3]))
    assert record["corrupted_ece"] == pytest.approx(np.mean(by_severity))
    # No temperature changes the order of the largest logits, so that they are of one stage.
    assert f"ood_auroc_max_logit@{ODD}" not in record
    assert comparison.ood_names == (ODD,)
    assert summarise(comparison.runs[1], "raw", "corrupted_ece") is None


def test_tables_of_other_data_have_pairs_and_name_the_runs_without(
    comparison: RunComparison,
) -> None:
    table = markdown_table(comparison)

    rows = table.partition(f"### Out of distribution: {ODD}")[2].splitlines()
    header = next(row for row in rows if row.startswith("| run"))
    good = next(row for row in rows if row.startswith("| good"))
    assert [cell.split(" (")[0] for cell in header.strip("| ").split(" | ")[1:]] == [
        f"AUROC, {title}" for title in SCORE_TITLES.values()
    ]
    run = comparison.runs[0]
    raw = summarise(run, "raw", f"ood_auroc_msp@{ODD}")
    scaled = summarise(run, "temperature_ece", f"ood_auroc_msp@{ODD}")
    temperature = summarise(run, "temperature_ece", "temperature")
    assert raw is not None
    assert scaled is not None
    assert temperature is not None
    expected = (
        f"{100 * raw.mean:.2f} ± {100 * (raw.std or 0):.2f} / "
        f"{100 * scaled.mean:.2f} ± {100 * (scaled.std or 0):.2f} ({temperature.mean:.2f})"
    )
    assert good.split(" | ")[1] == expected
    assert " / " not in good.split(" | ")[-1]  # no temperature changes distances
    assert "bad_run was not evaluated on these data." in table
    assert "ECE, severity 5 (%) ↓" in table.partition("### Corrupted test images")[2]


def test_the_page_has_the_tables_of_other_data(comparison: RunComparison, tmp_path: Path) -> None:
    metrics = tabulated_metrics(comparison, MAIN_COLUMNS)
    intervals = resample_comparison(comparison, metrics, Resampling(50))

    write_page(tmp_path / "page.html", comparison, intervals, [])

    page = (tmp_path / "page.html").read_text("utf-8")
    (table, _) = other_tables(comparison, intervals)
    assert f"Out of distribution: {html.escape(ODD)}" in page
    cells = [pair for _, pairs in table.rows for pair in pairs]
    shown = [f'<td class="r">{pair.raw}{pair.rest_with_intervals}</td>' for pair in cells]
    assert all(cell in page for cell in shown)
    assert "[" in shown[0]


@pytest.mark.slow
def test_intervals_on_other_data_are_those_of_students_t_over_the_seeds(
    folders: list[Path], tmp_path: Path
) -> None:
    metric = f"ood_auroc_entropy@{ODD}"
    better = shutil.copytree(folders[0], tmp_path / "better")
    for path in better.glob("seed-*/ood.json"):
        record = run_folder.read_json(path)
        record[ODD]["entropy"]["auroc"] += 0.2
        write_metrics(path, record)
    both = compare_runs([folders[0], better])
    metrics = tabulated_metrics(both, MAIN_COLUMNS)[len(MAIN_COLUMNS) :]

    intervals = resample_comparison(both, metrics, Resampling(4000))

    seeds = [record["raw"][metric] or 0 for record in both.runs[0].records.values()]
    expected = stats.t.interval(0.95, 2, np.mean(seeds), stats.sem(seeds))
    low, high = (min(max(end, 0), 1) for end in expected)
    assert intervals.interval(0, "raw", metric) == pytest.approx((low, high), abs=0.03)
    # All seeds are better by the same.
    assert intervals.difference(1, 0, "raw", metric) == pytest.approx((0.2, 0.2))
    table, text = markdown_table(both, intervals=intervals), latex_tables(both, intervals=intervals)
    cell = table.partition(f"Out of distribution: {ODD}")[2].split("(better)")[1].split(" | ")[2]
    raw = f"{100 * np.mean(seeds) + 20:.2f} ± {100 * np.std(seeds, ddof=1):.2f}"
    assert cell.startswith(f"**{raw}** [")
    assert cell.count("[") == 2
    assert rf"\textbf{{{escaped(raw)}}}" in text
    assert f" {SEEDS_ALONE}" in table
    assert f" {SEEDS_ALONE}" in text
    assert SEEDS_ALONE not in markdown_table(
        both, ("accuracy",), resample_comparison(both, ("accuracy",), Resampling(5))
    )


def test_files_have_the_intervals_on_other_data_and_one_or_two_seeds_have_none(
    folders: list[Path], tmp_path: Path
) -> None:
    fewer = [Path(shutil.copytree(folders[0], tmp_path / f"of {number}")) for number in (1, 2)]
    for run, number in zip(fewer, (1, 2), strict=True):
        for seed in range(number, 3):
            shutil.rmtree(run / f"seed-{seed}")
    comparison = compare_runs([*fewer, folders[0]])
    metrics = tabulated_metrics(comparison, MAIN_COLUMNS)
    intervals = resample_comparison(comparison, metrics, Resampling(50))

    write_comparison(comparison, tmp_path / "x.json", intervals)

    rows = json.loads((tmp_path / "x.json").read_text())
    has_interval = {
        row["run"]: row["low"] is not None
        for row in rows["metrics"]
        if row["stage"] == "raw" and row["metric"] == "corrupted_ece_severity_2"
    }
    assert list(has_interval.values()) == [False, False, True]
    assert all(
        intervals.difference(0, other, "raw", "corrupted_ece_severity_2") is None
        for other in (1, 2)
    )
    pairs = {
        (row["first"], row["second"])
        for row in rows["differences"]
        if row["metric"] == "corrupted_ece_severity_2"
    }
    assert pairs == {tuple(list(has_interval)[1:])}  # two seeds and three


def test_without_distances_a_sentence_says_how_to_have_them(
    folders: list[Path], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(folders[0], tmp_path / "run"))
    for path in run.glob("seed-*/ood.json"):
        record = run_folder.read_json(path)[ODD]
        for by in FEATURE_SCORES:
            del record[by]
        write_metrics(path, {ODD: record})

    (table, _) = other_tables(compare_runs([run]))

    assert "Mahalanobis distances are left out, because no run has them" in table.note
    assert [column.title for column in table.columns][-1] == "AUROC, max logit"


def test_metrics_are_chosen_in_their_order_and_ood_ones_for_all_data(
    comparison: RunComparison,
) -> None:
    names = ("ece", "ood_aupr_id_entropy", "corrupted_nll", "accuracy")

    metrics = choose_metrics(comparison, names)
    table = markdown_table(comparison, metrics)

    assert metrics == ("ece", f"ood_aupr_id_entropy@{ODD}", "corrupted_nll", "accuracy")
    header = next(line for line in table.splitlines() if line.startswith("| run | seeds"))
    titles = [column_of(metric).header for metric in metrics]
    assert header == f"| run | seeds | {' | '.join(titles)} |"
    assert titles[1] == f"AUPR, ID positive, entropy, {ODD} (%) ↑"
    assert "Out of distribution" not in table


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("accurcy",), "'accurcy' is unknown; choose for example accuracy"),
        (("ece", "ece"), "ece is chosen twice"),
        (("ood_auroc_msp@nothing",), "no run has ood_auroc_msp@nothing; evaluate the runs with"),
        (("top_5_accuracy",), "no run has top_5_accuracy"),
    ],
)
def test_metrics_that_cannot_be_shown_are_named(
    comparison: RunComparison, names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(TrainingError, match=message):
        choose_metrics(comparison, names)


def test_latex_prints_pairs_the_temperature_once_and_the_best_in_bold(
    comparison: RunComparison,
) -> None:
    metrics = ("accuracy", "nll")
    intervals = resample_comparison(comparison, metrics, Resampling(50))

    text = latex_tables(comparison, metrics, intervals)

    lines = text.splitlines()
    assert lines[0] == r"% Needs \usepackage{booktabs}."
    assert r"run & accuracy (\%) $\uparrow$ & NLL $\downarrow$ & T \\" in lines
    good = next(line for line in lines if line.startswith("good & "))
    accuracy, nll, shown = good.removesuffix(r" \\").split(" & ")[1:]
    run = comparison.runs[0]
    raw, scaled = (summarise(run, stage, "nll") for stage in ("raw", "temperature_ece"))
    assert raw is not None
    assert scaled is not None
    assert accuracy.startswith(r"\textbf{")
    assert "/" not in accuracy
    assert nll.startswith(rf"\textbf{{{raw.mean:.4f} $\pm$ {raw.std:.4f}}} / {scaled.mean:.4f}")
    temperature = summarise(run, "temperature_ece", "temperature")
    assert temperature is not None
    assert shown == f"{temperature.mean:.2f}"
    assert shown not in nll
    assert any(line.startswith(r"bad\_run & ") for line in lines)
    commands = (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}")
    assert all(text.count(command) == 1 for command in commands)
    assert latex_tables(comparison).count(r"\begin{tabular}") == 3
    assert escaped(r"a\b_{50 %}~^") == (
        r"a\textbackslash{}b\_\{50 \%\}\textasciitilde{}\textasciicircum{}"
    )


def test_the_ending_chooses_the_format(comparison: RunComparison, tmp_path: Path) -> None:
    metrics = ("nll", "accuracy")
    for name in ("x.tex", "x.csv", "x.json"):
        write_comparison(comparison, tmp_path / name, metrics=metrics)
    with pytest.raises(TrainingError, match=r"'x.pdf' ends in '.pdf', expected is .md, .tex, .csv"):
        write_comparison(comparison, tmp_path / "x.pdf")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.csv", "x.json", "x.tex"]
    with (tmp_path / "x.csv").open(newline="") as file:
        rows = [(row["run"], row["stage"], row["metric"]) for row in csv.DictReader(file)]
    assert rows[:2] == [("good", "raw", "nll"), ("good", "raw", "accuracy")]
    assert {metric for _, _, metric in rows} == set(metrics)
    seeds = json.loads((tmp_path / "x.json").read_text())["seeds"]
    assert {row["metric"] for row in seeds} == set(metrics)


def test_curves_have_the_areas_of_the_records(comparison: RunComparison, tmp_path: Path) -> None:
    curves = CurvesOfRuns(comparison)

    titles = [panel.title for panel in curves.accuracies]
    stages = ("as trained", "temperature by NLL")
    scores = [f"{score}, {stage}" for score in ("MSP", "entropy", "energy") for stage in stages]
    assert titles == [*scores, "Mahalanobis, as trained"]
    assert set(curves.accuracies[-1].curves) == {"good"}
    logits, targets = predictions_of(1, 6.0)
    risk = 1 - curves.accuracies[4].curves["good"][1].mean()
    assert risk == pytest.approx(aurc(*certainty_and_correct(logits, targets, "energy")), abs=0.01)
    by_distance = 1 - curves.accuracies[-1].curves["good"][1].mean()
    correct = logits.argmax(1) == targets
    # The distance of a sample is its number, so that the first samples are the most certain.
    expected_area = aurc(-torch.arange(120.0), correct)
    assert by_distance == pytest.approx(expected_area, abs=1e-3)
    roc = curves.rocs[ODD][-1]
    assert roc.title == f"OOD samples of {ODD}: Mahalanobis, as trained"
    areas = np.trapezoid(roc.curves["good"], RATES, axis=1)
    expected = [
        record["raw"][f"ood_auroc_mahalanobis@{ODD}"]
        for record in comparison.runs[0].records.values()
    ]
    assert areas == pytest.approx(expected, abs=0.01)
    assert [len(group) for group in curves.rocs.values()] == [len(scores) + 1] * 2
    groups = [curves.rocs[ODD][:5], curves.rocs[ODD][-1:]]
    draw_panels(groups, FALSE_POSITIVES, ["good", "bad_run"], tmp_path / "roc")
    with Image.open(tmp_path / "roc.png") as picture:
        assert 2 * picture.height > picture.width  # three rows
    drawn = (tmp_path / "roc.svg").read_text()
    assert drawn.count("<!-- Mahalanobis, as trained -->") == 1
    assert drawn.count("<!-- good -->") == 1
