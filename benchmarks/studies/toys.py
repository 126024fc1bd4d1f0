"""Two experiments of the papers on data whose probabilities are known.

    python -m benchmarks.studies.toys

1. Mukhoti et al. (2020), appendix C: logistic regression on four clusters, two of each class, with
   flipped labels. Does cross-entropy end with larger weights than focal loss, and with more
   confidence in its mistakes?
2. arXiv 2503.22725: four overlapping classes, whose true probabilities are known. Which weight of
   a loss correlates best with the squared distance between predicted and true probabilities? The
   correlation falls with the exponent of a weight, so the losses are compared at equal exponents.

The papers' numbers of samples, deviations and networks are not all known; those here are ours.
Intervals are of 95 %, of the mean over the seeds, by Student's t.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

from trainer.losses import LOSSES
from trainer.losses.brier import brier
from trainer.metrics.calibration import adaptive_ece

CENTRES = torch.tensor([[-2.0, -2.0], [-2.0, 2.0], [2.0, -2.0], [2.0, 2.0]])
"""Corners of a square with sides of 4; the first two are of class 0, the others of class 1."""

FLIPPED = 0.1
TRAINING, TEST = 4000, 1000
STEPS, RATE = 2000, 0.5
DEVIATION = 1.2
"""Of the classes of the second experiment, whose means are the corners of the same square."""

FEW = 300
"""Training samples of the second experiment: so few that the network is overconfident."""

EXPONENTS = (1, 2, 3)
LEVEL = 0.95


def clusters(samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points around CENTRES with a random covariance each, and labels of which some are flipped."""
    corners = torch.randint(len(CENTRES), (samples,), generator=generator)
    mixing = torch.rand(len(CENTRES), 2, 2, generator=torch.Generator().manual_seed(1)) * 2 - 1
    noise = torch.randn(samples, 1, 2, generator=generator) @ mixing[corners]
    flipped = torch.rand(samples, generator=generator) < FLIPPED
    return CENTRES[corners] + noise[:, 0], (corners // 2) ^ flipped


def fit(model: nn.Module, points: Tensor, labels: Tensor, loss: str, steps: int) -> None:
    """Full-batch gradient descent without weight decay."""
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(steps):
        optimiser.zero_grad()
        LOSSES[loss](model(points), labels).mean().backward()
        optimiser.step()


def linear_model(seed: int) -> dict[str, list[float]]:
    """Norms and confidences of logistic regression with each loss."""
    generator = torch.Generator().manual_seed(seed)
    points, labels = clusters(TRAINING, generator)
    test_points, test_labels = clusters(TEST, generator)
    rows = {}
    for loss in ("cross_entropy", "focal"):
        torch.manual_seed(seed)
        model = nn.Linear(2, 2)
        fit(model, points, labels, loss, STEPS)
        with torch.inference_mode():
            logits = model(test_points)
            confidences, predicted = logits.softmax(1).max(1)
            wrong = predicted != test_labels
            rows[loss] = [
                float((model.weight[1] - model.weight[0]).norm()),
                float(logits.norm(dim=1).mean()),
                100 * float(confidences[wrong].mean()),
                100 * float(wrong.float().mean()),
                100 * adaptive_ece(logits, test_labels),
            ]
    return rows


def true_uncertainty(seed: int) -> dict[str, list[float]]:
    """Correlation of each weight with the squared distance to the true probabilities."""
    generator = torch.Generator().manual_seed(seed)
    classes = MultivariateNormal(CENTRES, DEVIATION**2 * torch.eye(2))

    def drawn(samples: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(len(CENTRES), (samples,), generator=generator)
        noise = DEVIATION * torch.randn(samples, 2, generator=generator)
        return CENTRES[labels] + noise, labels

    points, labels = drawn(FEW)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, len(CENTRES)))
    fit(model, points, labels, "cross_entropy", STEPS)
    test_points, test_labels = drawn(TEST)
    with torch.inference_mode():
        logits = model(test_points)
        probabilities = logits.softmax(1)
        true = classes.log_prob(test_points[:, None]).softmax(1)
        error = (probabilities - true).square().sum(1)
    bases = bases_of_weights(logits, test_labels)
    rows = {}
    for exponent in EXPONENTS:
        correlations = {
            name: float(torch.corrcoef(torch.stack((base**exponent, error)))[0, 1])
            for name, base in bases.items()
        }
        for name, correlation in correlations.items():
            rows[f"{name}, exponent {exponent}"] = [correlation, correlation - correlations[FOCAL]]
    return rows


FOCAL = "focal"


def bases_of_weights(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """What each loss raises to its exponent for the weight of a sample. Shape (samples,) each.

    Of focal loss `1 - p_t`, of dual focal loss the same plus the largest probability below `p_t`,
    and of the generalised Brier score (gBS) the Euclidean norm of the errors, whose square is the
    Brier score.
    """
    probabilities = logits.softmax(1)
    own = probabilities.gather(1, labels[:, None])
    below = torch.where(probabilities < own, probabilities, 0).amax(1)
    error = 1 - own[:, 0]
    return {FOCAL: error, "dual focal": error + below, "gBS": brier(logits, labels).sqrt()}


@dataclass(frozen=True)
class Experiment:
    """An experiment with its table.

    Attributes:
        title: What is measured.
        columns: Names of the numbers of a row.
        digits: Digits after the point.
        run: Gives the rows with their numbers for a seed.
    """

    title: str
    columns: tuple[str, ...]
    digits: int
    run: Callable[[int], dict[str, list[float]]]


EXPERIMENTS = {
    "linear": Experiment(
        "A linear model",
        (
            *("norm of the weights", "norm of the logits", "confidence in mistakes, %"),
            *("errors, %", "adaptive ECE, %"),
        ),
        2,
        linear_model,
    ),
    "weights": Experiment(
        "Weights of losses among four classes",
        ("correlation with the error of the probabilities", "minus that of focal"),
        3,
        true_uncertainty,
    ),
}


def print_means(experiment: Experiment, seeds: int) -> None:
    """Prints mean, standard deviation and interval of the mean over the seeds."""
    runs = [experiment.run(seed) for seed in range(seeds)]
    print(f"{experiment.title}, {seeds} seeds\n\n| | {' | '.join(experiment.columns)} |")
    print("| --- |" + " --- |" * len(experiment.columns))
    for name in runs[0]:
        values = torch.tensor([run[name] for run in runs])
        cells = [shown(column, experiment.digits) for column in values.T.tolist()]
        print(f"| {name} | {' | '.join(cells)} |")
    print()


def shown(values: Sequence[float], digits: int) -> str:
    """Mean, standard deviation and, of two values or more, the interval of the mean."""
    mean = statistics.fmean(values)
    if len(values) < 2:  # noqa: PLR2004 - a deviation takes two
        return f"{mean:.{digits}f}"
    deviation = statistics.stdev(values)
    half = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * deviation / len(values) ** 0.5
    ends = ", ".join(f"{end:.{digits}f}" for end in (mean - half, mean + half))
    return f"{mean:.{digits}f} ± {deviation:.{digits}f} [{ends}]"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", choices=EXPERIMENTS, action="append")
    arguments = parser.parse_args()
    for name in arguments.only or EXPERIMENTS:
        print_means(EXPERIMENTS[name], arguments.seeds)


if __name__ == "__main__":
    main()
