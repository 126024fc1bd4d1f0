"""Experiments of the papers on formulas, and on data whose probabilities are known.

    python -m benchmarks.studies.toys

1. Mukhoti et al. (2020), appendix C: logistic regression on four clusters, two of each class, with
   flipped labels. Does cross-entropy end with larger weights than focal loss, and with more
   confidence in its mistakes?
2. arXiv 2503.22725: four overlapping classes, whose true probabilities are known. Which weight of
   a loss correlates best with the squared distance between predicted and true probabilities? The
   correlation falls with the exponent of a weight, so the losses are compared at equal exponents.
3. Ghosh et al. (2022): do training and validation samples in the same bin of confidence both become
   less confident with a larger gamma of focal loss?
4. Mukhoti et al. (2020), figure 3a: by what does focal loss multiply the gradient of cross-entropy,
   and from which probability on is that less than 1?
5. Mukhoti et al. (2020), figure B.1: with two classes, which prediction minimises the loss where
   the first one has a probability q?
6. arXiv 2503.22725: of predictions for four classes, does a weight change where the probabilities
   of only some of them do?

The papers' numbers of samples, deviations and networks are not all known; those here are ours.
Intervals are of 95 %, of the mean over the seeds, by Student's t.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from scipy import stats
from torch import Tensor, nn
from torch.distributions import Dirichlet, MultivariateNormal

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

GAMMAS = (1, 2, 3, 5)
GAMMAS_OF_BINS = (0, 3, 5)
BINS = 3
PROBABILITIES = (0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 0.9)
TRUE_PROBABILITIES = (0.6, 0.7, 0.8, 0.9, 0.99)


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
    points, labels = overlapping(FEW, generator)
    model = hidden_layer(seed)
    fit(model, points, labels, "cross_entropy", STEPS)
    test_points, test_labels = overlapping(TEST, generator)
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


def overlapping(samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points of four overlapping classes around CENTRES, and their labels."""
    labels = torch.randint(len(CENTRES), (samples,), generator=generator)
    noise = DEVIATION * torch.randn(samples, 2, generator=generator)
    return CENTRES[labels] + noise, labels


def hidden_layer(seed: int) -> nn.Module:
    """A network that can fit FEW samples."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, len(CENTRES)))


def confidence_in_bins(seed: int) -> dict[str, list[float]]:
    """Mean confidence of training and of validation samples, in bins of equal mass of each."""
    rows = {}
    for gamma in GAMMAS_OF_BINS:
        generator = torch.Generator().manual_seed(seed)
        points, labels = overlapping(FEW, generator)
        model = hidden_layer(seed)
        optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
        for _ in range(STEPS):
            optimiser.zero_grad()
            LOSSES["focal"](model(points), labels, gamma=gamma).mean().backward()
            optimiser.step()
        validation_points, _ = overlapping(TEST, generator)
        with torch.inference_mode():
            training, validation = (
                model(each).softmax(1).amax(1) for each in (points, validation_points)
            )
        for name, confidences in (("training", training), ("validation", validation)):
            bins = confidences.sort().values.tensor_split(BINS)
            rows[f"gamma {gamma}, {name}"] = [float(each.mean()) for each in bins]
    return rows


def gradient_factors(_seed: int) -> dict[str, list[float]]:
    """Gradient of focal loss by that of cross-entropy, at some probabilities of the target."""
    grid = torch.linspace(1e-4, 1 - 1e-4, 9999, dtype=torch.float64)
    labels = torch.zeros(len(grid), dtype=torch.long)

    def slope(loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        logits = torch.stack((grid.logit(), torch.zeros_like(grid)), 1).requires_grad_()
        (gradient,) = torch.autograd.grad(loss(logits, labels).sum(), logits)
        return gradient[:, 0]

    plain, rows = slope(LOSSES["cross_entropy"]), {}
    for gamma in GAMMAS:
        factors = slope(partial(LOSSES["focal"], gamma=gamma)) / plain
        places = [int((grid - each).abs().argmin()) for each in PROBABILITIES]
        last = int(torch.nonzero(factors >= 1).max())
        rows[f"gamma {gamma}"] = [*factors[places].tolist(), float(grid[last])]
    return rows


def minimisers(_seed: int) -> dict[str, list[float]]:
    """Prediction for the first of two classes that minimises a loss, by its true probability."""
    logits = torch.linspace(-8, 8, 16001, dtype=torch.float64)
    both = torch.stack((logits, torch.zeros_like(logits)), 1)
    rows = {}
    for gamma in (0, *GAMMAS):
        first, second = (
            LOSSES["focal"](both, torch.full((len(both),), label), gamma=gamma) for label in (0, 1)
        )
        best = [int((q * first + (1 - q) * second).argmin()) for q in TRUE_PROBABILITIES]
        rows[f"gamma {gamma}"] = logits[best].sigmoid().tolist()
    return rows


def changes_of_weights(seed: int) -> dict[str, list[float]]:
    """Largest minus smallest weight, over predictions that agree in some probabilities."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
    own, next_below = 0.4, 0.3
    three = (1 - own) * Dirichlet(torch.ones(3, dtype=torch.float64)).sample((TEST,))
    share = torch.rand(TEST, 1, dtype=torch.float64) * (1 - own - next_below)
    two = torch.cat((torch.full_like(share, next_below), share, 1 - own - next_below - share), 1)
    labels = torch.zeros(TEST, dtype=torch.long)
    columns = []
    for others in (three, two):
        logits = torch.cat((torch.full((TEST, 1), own, dtype=torch.float64), others), 1).log()
        weights = bases_of_weights(logits, labels)
        columns.append({name: float(each.max() - each.min()) for name, each in weights.items()})
    return {name: [column[name] for column in columns] for name in columns[0]}


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
    "bins": Experiment(
        "Mean confidence in bins, by gamma of focal loss",
        ("lowest bin", "middle bin", "highest bin"),
        3,
        confidence_in_bins,
    ),
    "gradients": Experiment(
        "Gradient of focal loss, in units of that of cross-entropy, by the target's probability",
        (*(f"{each:g}" for each in PROBABILITIES), "last probability with at least 1"),
        3,
        gradient_factors,
    ),
    "minimisers": Experiment(
        "Prediction with the smallest loss, by the true probability of the first of two classes",
        tuple(f"{each:g}" for each in TRUE_PROBABILITIES),
        3,
        minimisers,
    ),
    "changes": Experiment(
        "How far weights change among four classes",
        ("with the target's probability fixed", "with the next smaller one fixed too"),
        3,
        changes_of_weights,
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
