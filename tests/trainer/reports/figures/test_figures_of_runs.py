"""Figures of runs: their numbers by a naive version, and what is left out."""

import csv
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from tests.trainer.reports.figures.drawn import figures_in, predictions_of, reasons_in
from trainer.evaluation.record import (
    misclassification_curves,
    ood_curves,
    read_curves,
    write_curves,
    write_metrics,
)
from trainer.losses import LOSSES
from trainer.metrics.bootstrap import Resampling
from trainer.reports.figures.epochs import PLANS, epoch_figures, gamma_figures
from trainer.reports.figures.evaluations import (
    corruption_figures,
    interval_figures,
    roc_figures,
)
from trainer.reports.figures.figure import Figure
from trainer.reports.figures.predictions import (
    gradient_figures,
    gradient_norms,
    prediction_figures,
)
from trainer.reports.figures.sources import read_sources
from trainer.run_folder import read_history, write_history
from trainer.runs.evaluate import evaluate_saved_predictions


def softmax(logits: torch.Tensor, temperature: float = 1.0) -> NDArray[np.float64]:
    scaled = np.exp(logits.double().numpy() / temperature)
    return scaled / scaled.sum(1, keepdims=True)


def test_figures_over_epochs_have_the_columns_of_the_history(run: Path) -> None:
    found = figures_in(epoch_figures(read_sources([run], "rmd")))

    assert list(found) == list(PLANS)
    for name, figure in found.items():
        expected = [
            {"run": "a $ b", "seed": seed, "epoch": record["epoch"]}
            | {column: record[column] for column in PLANS[name].panels}
            for seed in (0, 1)
            for record in read_history(run / f"seed-{seed}" / "history.jsonl")
        ]
        assert figure.rows == expected


def test_a_panel_is_drawn_for_each_column_and_the_same_data_give_the_same_file(
    run: Path, tmp_path: Path
) -> None:
    name = "entropy-and-weights-over-epochs"
    figure = figures_in(epoch_figures(read_sources([run], "rmd")))[name]

    for picture in ("one.svg", "two.svg"):
        figure.draw(tmp_path / picture)

    words = (tmp_path / "one.svg").read_text()
    assert all(f"<!-- {label} -->" in words for label in PLANS[name].panels.values())
    assert "<!-- a $ b -->" in words
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_figures_of_what_a_history_lacks_are_left_out_with_the_reason(
    run: Path, tmp_path: Path
) -> None:
    seed = tmp_path / "short" / "seed-0"
    seed.mkdir(parents=True)
    (seed / "recipe.json").write_bytes((run / "seed-0" / "recipe.json").read_bytes())
    history = read_history(run / "seed-0" / "history.jsonl")
    known = ("epoch", "validation_nll", "validation_ece", "validation_adaptive_ece")
    kept = [{key: record[key] for key in (*known, "validation_accuracy")} for record in history]
    write_history(seed / "history.jsonl", kept)

    drawn = epoch_figures(read_sources([tmp_path / "short"], "rmd"))

    assert list(figures_in(drawn)) == ["nll-and-ece-over-epochs"]
    assert [each.partition(":")[0] for each in reasons_in(drawn)] == list(PLANS)[1:]
    assert "it holds out no validation samples" in reasons_in(drawn)[0]


def test_confidence_and_rejection_are_those_of_the_test_predictions(run: Path) -> None:
    found = figures_in(prediction_figures(read_sources([run], "rmd")))

    tops, hits, entropies = [], [], []
    for seed in (0, 1):
        saved = predictions_of(run, seed)
        probabilities = softmax(saved.logits)
        tops.append(probabilities.max(1))
        entropies.append(-(probabilities * np.log(probabilities)).sum(1))
        hits.append((saved.logits.argmax(1) == saved.targets).numpy())
    top, hit = np.concatenate(tops), np.concatenate(hits)
    for name, values in (("confidence", top), ("entropy", np.concatenate(entropies))):
        for row in found[name].rows:
            inside = (float(row["lower"] or 0) < values) & (values <= float(row["upper"] or 0))
            assert row["share_right"] == pytest.approx((inside & hit).mean())
            assert row["share_wrong"] == pytest.approx((inside & ~hit).mean())
        assert len(found[name].rows) == 25
    assert found["entropy"].rows[-1]["upper"] == pytest.approx(np.log(3))
    for row in found["accuracy-over-rejection"].rows[100:]:
        kept = len(hits[1]) - int(float(row["rejected"] or 0) * len(hits[1]) + 1e-9)
        best = np.argsort(-tops[1], kind="stable")[:kept]
        assert row["seed"] == 1
        assert row["accuracy"] == pytest.approx(hits[1][best].mean())
        sure = np.argsort(entropies[1], kind="stable")[:kept]
        assert row["accuracy_by_entropy"] == pytest.approx(hits[1][sure].mean())
    risks = [row["risk"] for row in found["risk-over-coverage"].rows if row["coverage"] == 1.0]
    assert risks == pytest.approx([1 - each.mean() for each in hits])


@pytest.mark.parametrize("name", ["reliability", "reliability-temperature-scaled"])
def test_reliability_has_the_bins_of_each_seed(run: Path, name: str) -> None:
    sources = read_sources([run], "rmd")

    rows = figures_in(prediction_figures(sources))[name].rows

    assert len(rows) == 2 * 15
    seed = sources.runs[0].seeds[1]
    scaled = name != "reliability"
    saved = predictions_of(run, 1)
    top = softmax(saved.logits, (seed.temperature or 0) if scaled else 1.0).max(1)
    hit = (saved.logits.argmax(1) == saved.targets).numpy()
    for row in rows[15:]:
        inside = (float(row["lower"] or 0) < top) & (top <= float(row["upper"] or 0))
        assert row["samples"] == inside.sum()
        if inside.any():
            assert row["mean_confidence"] == pytest.approx(top[inside].mean())
            assert row["accuracy"] == pytest.approx(hit[inside].mean())
        else:
            assert row["accuracy"] is None


def test_gammas_and_gaps_are_those_that_the_run_reported(run: Path, tmp_path: Path) -> None:
    (figure,) = gamma_figures(read_sources([run], "rmd"))

    assert isinstance(figure, Figure)
    with (run / "seed-1" / "adafocal.csv").open(newline="") as file:
        reported = list(csv.DictReader(file))
    assert len(figure.rows) == 2 * len(reported)
    for row, original in zip(figure.rows[len(reported) :], reported, strict=True):
        assert (row["epoch"], row["bin"]) == (int(original["epoch"]), int(original["bin"]))
        assert row["gamma"] == float(original["gamma"])
        assert row["gap"] == float(original["gap"])
    figure.draw(tmp_path / "gammas.png")
    with Image.open(tmp_path / "gammas.png") as picture:
        assert picture.width > 1000


def test_roc_curves_come_from_the_file_of_the_evaluation(run: Path, tmp_path: Path) -> None:
    saved = predictions_of(run, 0)
    validation = (saved.logits, saved.targets)
    curves = [
        *ood_curves(saved.logits, saved.logits / 3, "digits", validation),
        *misclassification_curves(saved.logits, saved.targets, validation),
    ]
    path = run / "seed-0" / "roc.parquet"
    write_curves(path, curves)

    drawn = roc_figures(read_sources([run], "rmd"))
    again = read_curves(path)
    path.unlink()

    figures = figures_in(drawn)
    wanted = {"roc": [("msp", "raw")]}
    wanted["roc-by-entropy"] = [("entropy", "raw"), ("entropy", "temperature_ece")]
    assert list(figures) == list(wanted)
    for name, kinds in wanted.items():
        for each in (curve for curve in curves if (curve.by, curve.stage) in kinds):
            own = [
                row
                for row in figures[name].rows
                if (row["detection"], row["stage"]) == (each.detection, each.stage)
            ]
            rates = each.curve.true_positive_rates
            assert [row["true_positive_rate"] for row in own] == rates.tolist()
        assert len({row["stage"] for row in figures[name].rows}) == len(kinds)
    assert [(each.detection, each.by) for each in again] == [
        (each.detection, each.by) for each in curves
    ]
    figures["roc-by-entropy"].draw(tmp_path / "roc.svg")
    picture = (tmp_path / "roc.svg").read_text()
    assert "<!-- OOD samples of digits -->" in picture
    assert "<!-- temperature by ECE -->" in picture
    assert reasons_in(drawn)[0].startswith("roc: no curve of OOD samples (a $ b: seed 1); ")


def test_gradients_of_samples_are_those_by_the_logits(
    softmax_run: Path, run: Path, tmp_path: Path
) -> None:
    drawn = gradient_figures(read_sources([softmax_run, run], "rmd"))

    (figure,) = figures_in(drawn).values()
    saved = predictions_of(softmax_run, 0)
    error = softmax(saved.logits)
    error[np.arange(len(error)), saved.targets.numpy()] -= 1
    norms = np.sqrt((error**2).sum(1))  # the gradient of cross-entropy
    right = (saved.logits.argmax(1) == saved.targets).numpy()
    assert figure.rows[-1]["upper"] == pytest.approx(norms.max())
    for row in figure.rows:
        inside = (float(row["lower"] or 0) < norms) & (norms <= 1e-9 + float(row["upper"] or 0))
        assert row["share_right"] == pytest.approx((inside & right).mean())
        assert row["share_wrong"] == pytest.approx((inside & ~right).mean())
    figure.draw(tmp_path / "gradients.svg")
    assert "<!-- norm of the gradient by the logits -->" in (tmp_path / "gradients.svg").read_text()
    assert "the loss, adafocal, depends on more" in reasons_in(drawn)[0]


@pytest.mark.parametrize("gamma", [1.0, 3.0])
def test_focal_loss_scales_the_gradient_of_cross_entropy_as_in_proposition_1(gamma: float) -> None:
    logits, targets = torch.randn(20, 4, dtype=torch.float64), torch.arange(20) % 4
    own = torch.from_numpy(softmax(logits))[torch.arange(20), targets]

    focal, plain = (
        gradient_norms(LOSSES[name], logits, targets)
        if name == "cross_entropy"
        else gradient_norms(partial(LOSSES[name], gamma=gamma), logits, targets)
        for name in ("focal", "cross_entropy")
    )

    factor = (1 - own) ** gamma - gamma * own * (1 - own) ** (gamma - 1) * own.log()
    torch.testing.assert_close(focal, factor * plain)


def test_intervals_are_those_of_the_evaluation(run: Path, tmp_path: Path) -> None:
    path = run / "seed-0" / "evaluation.json"
    resampled = evaluate_saved_predictions(run / "seed-0", Resampling(20, 0.9))
    write_metrics(path, {"intervals": {"level": 0.9, "resamples": 20}, **resampled})

    drawn = interval_figures(read_sources([run], "rmd"))
    path.unlink()

    (figure,) = figures_in(drawn).values()
    assert "90 % intervals" in figure.caption
    for row in figure.rows:
        values = resampled[str(row["stage"])]
        names = [str(row["metric"]), f"{row['metric']}_low", f"{row['metric']}_high"]
        assert [row["value"], row["low"], row["high"]] == [values[each] for each in names]
    assert len(figure.rows) == len(resampled) * 3
    figure.draw(tmp_path / "intervals.svg")
    assert "<!-- classwise ECE -->" in (tmp_path / "intervals.svg").read_text()
    assert "no evaluation.json (a $ b: seed 1)" in reasons_in(drawn)[0]


def test_boxes_of_corruption_have_the_errors_of_each_kind(run: Path, tmp_path: Path) -> None:
    errors = {"fog": {"1": 0.1, "5": 0.3}, "snow": {"1": 0.2, "5": 0.5}}
    record = {
        kind: {
            severity: {"raw": {"accuracy": 0.5, "adaptive_ece": value}}
            for severity, value in severities.items()
        }
        for kind, severities in errors.items()
    }
    path = run / "seed-1" / "corruptions.json"
    write_metrics(path, record)

    drawn = corruption_figures(read_sources([run], "rmd"))
    path.unlink()

    (figure,) = figures_in(drawn).values()
    assert {
        (row["corruption"], str(row["severity"])): row["adaptive_ece"] for row in figure.rows
    } == {
        (kind, severity): value
        for kind, severities in errors.items()
        for severity, value in severities.items()
    }
    figure.draw(tmp_path / "boxes.svg")
    assert "<!-- severity -->" in (tmp_path / "boxes.svg").read_text()
    assert "`difficulty evaluate" in reasons_in(drawn)[0]
    assert "--corruptions`" in reasons_in(drawn)[0]
