"""Figures over the epochs of training: NLL, calibration, entropy and norms of the last layer."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from trainer.reports.figures.figure import Drawn, Figure, LeftOut
from trainer.reports.figures.lines import draw_lines
from trainer.reports.figures.sources import Sources


@dataclass(frozen=True)
class _Plan:
    """A figure of columns of the history.

    Attributes:
        panels: Label of each column.
        caption: Caption of the figure.
        paper: The figures of the papers that it corresponds to.
        missing: Why a run may lack the columns.
    """

    panels: Mapping[str, str]
    caption: str
    paper: str
    missing: str


NO_VALIDATION = "it holds out no validation samples"
PLANS: Mapping[str, _Plan] = {
    "nll-and-ece-over-epochs": _Plan(
        {
            "validation_nll": "validation NLL (nats)",
            "validation_ece": "validation ECE",
            "validation_adaptive_ece": "validation adaptive ECE",
            "validation_accuracy": "validation accuracy",
        },
        "NLL, calibration errors and accuracy of the validation samples after each epoch.",
        "Mukhoti et al. (2020), figures 1c and 2a",
        NO_VALIDATION,
    ),
    "right-and-wrong-over-epochs": _Plan(
        {
            "validation_nll_right": "NLL, rightly classified",
            "validation_nll_wrong": "NLL, wrongly classified",
            "validation_entropy_right": "entropy, rightly classified",
            "validation_entropy_wrong": "entropy, wrongly classified",
        },
        "Mean NLL and entropy, in nats, of the validation samples that are classified rightly and "
        "wrongly after each epoch. A rising NLL of the wrong ones whose entropy falls is a network "
        "that grows sure of its errors.",
        "Mukhoti et al. (2020), figures 1a, 1b, 2b, 2c and 2d",
        NO_VALIDATION,
    ),
    "entropy-and-weights-over-epochs": _Plan(
        {
            "validation_entropy": "validation entropy (nats)",
            "norm_last_weights": "norm of the last layer's weights",
        },
        "Mean entropy of the predictions for validation samples, and the Euclidean norm of the "
        "weights of the last linear layer, after each epoch.",
        "Mukhoti et al. (2020), figure 2e",
        f"{NO_VALIDATION}, or its model has no linear layer",
    ),
    "gradients-over-epochs": _Plan(
        {"norm_last_gradient": "norm of the last layer's gradient"},
        "Euclidean norm of the gradient of the last linear layer's weights, before it is clipped, "
        'on average over the steps of each epoch. With `training.reduction = "sum"` it grows with '
        "the size of a batch.",
        "Mukhoti et al. (2020), figures 3b to 3d, whose histograms are of single samples",
        "its model has no linear layer, or that layer is not trained",
    ),
}


def epoch_figures(sources: Sources) -> Drawn:
    """The figures of PLANS, of the runs that have any of their columns."""
    return [each for name in PLANS for each in _figure(sources, name)]


def _figure(sources: Sources, name: str) -> Drawn:
    plan = PLANS[name]
    rows = [
        {"run": run.name, "seed": seed.seed, "epoch": record["epoch"]}
        | {column: record.get(column) for column in plan.panels}
        for run, seed in sources.seeds()
        for record in seed.history
    ]
    found: list[Figure | LeftOut] = []
    kept = []
    for run in sources.runs:
        own = [row for row in rows if row["run"] == run.name]
        lacking = [column for column in plan.panels if all(row[column] is None for row in own)]
        if not own:
            found.append(LeftOut(name, f"{run.name} has not saved an epoch"))
        elif lacking:
            names = ", ".join(lacking)
            found.append(LeftOut(name, f"{run.name} has no {names}: {plan.missing}"))
        if len(lacking) < len(plan.panels):
            kept += own
    if not sources.runs:
        return [LeftOut(name, "no run is given")]
    panels = {
        column: label
        for column, label in plan.panels.items()
        if any(row[column] is not None for row in kept)
    }
    if panels:
        draw = partial(draw_lines, kept, ("epoch", "epoch"), panels)
        found.append(Figure(name, plan.caption, plan.paper, kept, draw))
    return found
