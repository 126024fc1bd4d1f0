"""Differences between runs count where the same test samples and the seeds bear them out."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from trainer import run_folder
from trainer.evaluation.prediction_file import Predictions, write_predictions
from trainer.evaluation.record import evaluate_predictions, write_metrics
from trainer.metrics import METRICS
from trainer.metrics.bootstrap import Resampling, paired_differences, resamples
from trainer.reports.columns import COLUMNS, best_run
from trainer.reports.comparison import (
    ComparisonIntervals,
    ResampledMetric,
    RunComparison,
    compare_runs,
    error_over_seeds,
    resample_comparison,
)
from trainer.reports.comparison_table import lacks_seeds, markdown_table

OBJECTIVE = {"loss": {"name": "cross_entropy", "constants": {}}, "alpha": 0.0, "weights": "none"}
METRIC_NAMES = ("accuracy", "nll", "ece", "misclassification_auroc_msp")
RESAMPLING = Resampling(num_resamples=200)


def predictions_of(seed: int, signal: float, num_samples: int = 300) -> tuple[Tensor, Tensor]:
    """Logits that are right the more often, the stronger the signal; the samples are the same."""
    targets = torch.arange(num_samples) % 3
    easiness = torch.randn(num_samples, 1, generator=torch.Generator().manual_seed(99))
    noise = torch.randn(num_samples, 3, generator=torch.Generator().manual_seed(seed))
    return (signal + easiness) * torch.nn.functional.one_hot(targets, 3) + noise, targets


def write_run(
    folder: Path,
    seeds: dict[int, tuple[Tensor, Tensor]],
    file: str = "test.npz",
    order: Sequence[int] | None = None,
) -> Path:
    for seed, (logits, targets) in seeds.items():
        seed_folder = folder / f"seed-{seed}"
        seed_folder.mkdir(parents=True)
        run_folder.write_run(seed_folder, {"recipe": {"name": folder.name}})
        run_folder.write_json(seed_folder / "objective.json", OBJECTIVE)
        validation = predictions_of(50 + seed, 1.0) if file == "test.npz" else None
        record = evaluate_predictions(logits, targets, validation)
        write_metrics(seed_folder / "metrics.json", record)
        rows = list(range(len(targets))) if order is None else list(order)
        ids = [f"{row:04d}.png" for row in rows]
        write_predictions(seed_folder / file, Predictions(ids, logits[rows], targets[rows]))
    return folder


def compared(*folders: Path) -> RunComparison:
    return compare_runs(folders)


def test_with_one_seed_a_difference_is_that_of_the_paired_bootstrap(tmp_path: Path) -> None:
    first, second = predictions_of(0, 2.0), predictions_of(1, 1.0)
    order = list(reversed(range(len(first[1]))))
    comparison = compared(
        write_run(tmp_path / "one", {0: first}),
        write_run(tmp_path / "two", {0: second}, order=order),
    )

    intervals = resample_comparison(comparison, METRIC_NAMES, RESAMPLING)

    expected = paired_differences(first, second, RESAMPLING, METRIC_NAMES)
    for metric in METRIC_NAMES:
        ends = expected[metric].low, expected[metric].high
        assert intervals.difference(0, 1, "raw", metric) == pytest.approx(ends), metric


@pytest.mark.slow
def test_seeds_are_averaged_in_every_resample(tmp_path: Path) -> None:
    seeds = {seed: predictions_of(seed, 1.0 + seed / 4) for seed in range(3)}
    comparison = compared(write_run(tmp_path / "run", seeds))

    intervals = resample_comparison(comparison, ("accuracy",), RESAMPLING)

    counts = np.concatenate(list(resamples(300, RESAMPLING)))
    naive = []
    for drawn in counts:
        rows = torch.arange(300).repeat_interleave(torch.tensor(drawn).long())
        each = [
            METRICS["accuracy"](logits[rows], targets[rows]) for logits, targets in seeds.values()
        ]
        naive.append(np.mean(each))
    assert intervals.metrics["raw", "accuracy"].means[0] == pytest.approx(np.array(naive))


@pytest.mark.slow
def test_where_only_seeds_differ_the_interval_is_that_of_students_t(tmp_path: Path) -> None:
    # All samples are alike, so that only the choice of seeds is left.
    targets = torch.zeros(50, dtype=torch.long)
    seeds = {
        seed: (torch.tensor([[value, 0.0]]).repeat(50, 1), targets)
        for seed, value in enumerate((0.5, 0.6, 0.8, 0.7))
    }
    losses = [METRICS["nll"](*each) for each in seeds.values()]
    comparison = compared(write_run(tmp_path / "run", seeds, "validation.npz"))

    intervals = resample_comparison(comparison, ("nll",), Resampling(num_resamples=100_000))

    expected = stats.t.interval(0.95, 3, np.mean(losses), stats.sem(losses))
    assert intervals.interval(0, "raw", "nll") == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("metric", "lowest", "highest"),
    [("accuracy", 0, 1), ("ece", 0, 1), ("brier_score", 0, 2), ("corrupted_nll", 0, np.inf)],
)
def test_an_interval_ends_where_the_range_of_the_metric_does(
    metric: str, lowest: float, highest: float
) -> None:
    runs = [{0: 0.05, 1: 0.95, 2: 0.5}, {3: 0.95, 4: 0.15, 5: 0.6}]
    means = np.array([[np.mean(list(run.values()))] * 1000 for run in runs])
    resampled = ResampledMetric(means, runs)
    intervals = ComparisonIntervals({("raw", metric): resampled}, Resampling(1000))

    own = intervals.interval(0, "raw", metric)
    difference = intervals.difference(0, 1, "raw", metric)

    # Student's t with two degrees of freedom reaches 4.3 standard errors to each side.
    ends = 0.5 - 4.3 * 0.26, 0.5 + 4.3 * 0.26
    assert own == pytest.approx((max(ends[0], lowest), min(ends[1], highest)), abs=0.35)
    assert own[0] == lowest
    assert own[1] <= highest
    assert difference is not None
    assert difference[0] >= -highest
    assert difference[0] == -highest or highest > 1
    assert -difference[0] == pytest.approx(difference[1], rel=0.3)


def test_two_seeds_have_both_values_in_place_of_an_interval(tmp_path: Path) -> None:
    seeds = {seed: predictions_of(seed, 1.0 + seed) for seed in (0, 1)}
    folders = [
        write_run(tmp_path / "one", seeds),
        write_run(tmp_path / "two", {seed: (2 * each[0], each[1]) for seed, each in seeds.items()}),
    ]
    comparison = compared(*folders)
    intervals = resample_comparison(comparison, ("accuracy",), RESAMPLING)

    table = markdown_table(comparison, ("accuracy",), intervals)

    assert intervals.interval(0, "raw", "accuracy") is None
    assert intervals.difference(0, 1, "raw", "accuracy") is None
    low, high = sorted(
        record["raw"]["accuracy"] or 0 for record in comparison.runs[0].records.values()
    )
    mean = f"{50 * (low + high):.2f}"
    assert f"| one | 2 | {mean} ({100 * low:.2f} and {100 * high:.2f}) |" in table
    assert "Two seeds are too few for an interval, so both values are shown of one, two" in table
    assert "`--set training.seeds=[0,1,2,3,4]`" in table
    assert "**" not in table
    assert lacks_seeds(comparison)


@pytest.mark.slow
def test_a_run_of_two_seeds_is_not_the_best_however_good_it_is(tmp_path: Path) -> None:
    seeds = {seed: predictions_of(seed, 0.01) for seed in (0, 1, 2)}
    certain = {
        seed: (100 * torch.nn.functional.one_hot(each[1], each[0].shape[1]).float(), each[1])
        for seed, each in seeds.items()
    }
    two = write_run(tmp_path / "two", {seed: certain[seed] for seed in (0, 1)})
    three = write_run(tmp_path / "three", certain)
    guesses = write_run(tmp_path / "guesses", seeds)

    tables = [
        markdown_table(each, ("accuracy",), resample_comparison(each, ("accuracy",), RESAMPLING))
        for each in (compared(two, guesses), compared(three, guesses))
    ]

    assert "no run of two seeds is the best" in tables[0]
    assert "**" not in tables[0]
    assert "**100.00**" in tables[1]


def test_a_run_of_two_seeds_is_told_from_one_of_three_by_what_both_spread() -> None:
    runs = [{0: 0.5, 1: 0.5001}, {0: 0.9, 1: 0.9001, 2: 0.9002}]
    means = np.array([[np.mean(list(run.values()))] * 1000 for run in runs])
    metric = ResampledMetric(means, runs)
    intervals = ComparisonIntervals({("raw", "accuracy"): metric}, Resampling(1000))

    low, high = intervals.difference(0, 1, "raw", "accuracy") or (0, 0)

    assert low < high < -0.39


def test_the_error_over_seeds_is_that_of_the_t_tests() -> None:
    one, two = {0: 0.1, 1: 0.5, 2: 0.4}, {0: 0.2, 1: 0.9, 2: 0.3}
    others = {7: 0.2, 8: 0.9}

    paired, independent = error_over_seeds(one, two), error_over_seeds(one, others)

    difference = np.mean(list(one.values())) - np.mean(list(two.values()))
    test = stats.ttest_rel(list(one.values()), list(two.values()))
    assert paired == pytest.approx((difference / test.statistic, test.df))
    difference = np.mean(list(one.values())) - np.mean(list(others.values()))
    test = stats.ttest_ind(list(one.values()), list(others.values()))
    assert independent == pytest.approx((difference / test.statistic, test.df))
    assert error_over_seeds({0: 0.5}) == error_over_seeds({0: 0.5}, {1: 0.6}) == (0, 0)


def test_equal_methods_with_three_seeds_are_rarely_told_apart() -> None:
    generator = np.random.default_rng(0)
    wrong = 0
    for _ in range(400):
        runs = [dict(enumerate(generator.normal(size=3))) for _ in range(2)]
        means = np.array([[np.mean(list(run.values()))] * 1000 for run in runs])
        metric = ResampledMetric(means, runs)
        intervals = ComparisonIntervals({("raw", "nll"): metric}, Resampling(1000))
        low, high = intervals.difference(0, 1, "raw", "nll") or (0, 0)
        wrong += not low < 0 < high

    assert 0.02 < wrong / 400 < 0.08


@pytest.mark.slow
def test_what_all_runs_share_by_seed_cancels(tmp_path: Path) -> None:
    seeds = {seed: predictions_of(seed, 1.0 + seed) for seed in range(3)}
    comparison = compared(
        write_run(tmp_path / "one", seeds),
        write_run(tmp_path / "two", {seed: (2 * each[0], each[1]) for seed, each in seeds.items()}),
    )

    intervals = resample_comparison(comparison, ("accuracy",), RESAMPLING)

    low, high = intervals.interval(0, "raw", "accuracy") or (0, 0)
    assert high - low > 0.1
    assert intervals.difference(0, 1, "raw", "accuracy") == (0, 0)


def test_temperatures_scale_the_logits_of_their_stage(tmp_path: Path) -> None:
    logits, targets = predictions_of(0, 1.0)
    comparison = compared(write_run(tmp_path / "run", {0: (logits, targets)}))
    temperature = comparison.runs[0].records[0]["temperature_nll"]["temperature"]
    assert temperature is not None

    intervals = resample_comparison(comparison, ("nll",), RESAMPLING)

    counts = np.concatenate(list(resamples(300, RESAMPLING)))
    rows = torch.arange(300).repeat_interleave(torch.tensor(counts[7]).long())
    expected = METRICS["nll"](logits[rows].double() / temperature, targets[rows])
    assert intervals.metrics["temperature_nll", "nll"].means[0, 7] == pytest.approx(expected)


def test_validation_samples_of_each_seed_are_drawn_alike_for_all_runs(tmp_path: Path) -> None:
    seeds = {
        0: predictions_of(0, 1.0, num_samples=120),
        1: predictions_of(1, 1.0, num_samples=90),
        2: predictions_of(2, 1.0, num_samples=60),
    }
    comparison = compared(
        write_run(tmp_path / "one", seeds, "validation.npz"),
        write_run(tmp_path / "two", seeds, "validation.npz"),
    )

    intervals = resample_comparison(comparison, ("nll",), RESAMPLING)

    assert intervals.difference(0, 1, "raw", "nll") == (0, 0)


def test_a_metric_without_a_value_has_no_interval(tmp_path: Path) -> None:
    targets = torch.arange(40) % 2
    perfect = 5.0 * torch.nn.functional.one_hot(targets, 2)
    comparison = compared(write_run(tmp_path / "run", {0: (perfect, targets)}, "validation.npz"))

    intervals = resample_comparison(comparison, METRIC_NAMES, RESAMPLING)

    assert intervals.interval(0, "raw", "misclassification_auroc_msp") is None
    assert intervals.interval(0, "raw", "top_5_accuracy") is None
    assert intervals.interval(0, "raw", "accuracy") == (1, 1)


def test_bold_is_only_what_lies_beyond_the_intervals(tmp_path: Path) -> None:
    good, bad = predictions_of(0, 4.0), predictions_of(1, 1.0)
    slightly_better = good[0].clone()
    slightly_better[0] += 0.01 * torch.nn.functional.one_hot(good[1][0], 3)
    folders = [
        write_run(tmp_path / "good", {0: good}),
        write_run(tmp_path / "bad", {0: bad}),
        write_run(tmp_path / "almost-equal", {0: (slightly_better, good[1])}),
    ]
    clear, close = compared(*folders[:2]), compared(*folders)

    chosen = [
        best_run(
            comparison,
            "raw",
            COLUMNS["nll"],
            resample_comparison(comparison, ("nll",), RESAMPLING),
        )
        for comparison in (clear, close)
    ]

    assert chosen == [0, None]


def test_a_smaller_value_is_better_where_its_column_says_so(tmp_path: Path) -> None:
    comparison = compared(
        write_run(tmp_path / "bad", {0: predictions_of(1, 1.0)}),
        write_run(tmp_path / "good", {0: predictions_of(0, 4.0)}),
    )
    intervals = resample_comparison(comparison, ("accuracy", "nll"), RESAMPLING)

    table = markdown_table(comparison, ("accuracy", "nll"), intervals)

    bad, good = [line for line in table.splitlines() if line.startswith(("| bad", "| good"))][2:4]
    assert "**" not in bad
    assert good.count("**") == 4


def test_a_cell_has_the_interval_and_the_legend_explains_it(tmp_path: Path) -> None:
    comparison = compared(write_run(tmp_path / "run", {0: predictions_of(0, 1.0)}))
    resampling = Resampling(num_resamples=100, level=0.9)
    intervals = resample_comparison(comparison, ("accuracy",), resampling)

    table = markdown_table(comparison, ("accuracy",), intervals)

    low, high = intervals.interval(0, "raw", "accuracy") or (0, 0)
    assert f" [{100 * low:.2f}, {100 * high:.2f}] |" in table
    assert "90 % interval" in table
    assert "100 resamples" in table
    assert "**" not in table
