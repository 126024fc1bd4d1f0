"""Error rate of a run over the difficulty of its samples, in bins of equal size."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from trainer.metrics.predictions import confidence_and_correct
from trainer.reports.figures.figure import Drawn, Figure, LeftOut, Row
from trainer.reports.figures.lines import draw_lines
from trainer.reports.figures.sources import RunSource, ScoreSource, SeedFolder, Sources

NAME = "error-over-difficulty"
NUM_BINS = 10


def error_figures(sources: Sources) -> Drawn:
    """The figure NAME, of every run with every score file of images as they are."""
    if not sources.runs or not sources.clean_scores:
        missing = "score file of images without corruption" if sources.runs else "run"
        return [LeftOut(NAME, f"no {missing} is given; it takes both")]
    rows: list[Row] = []
    found: list[Figure | LeftOut] = []
    for scores in sources.clean_scores:
        difficulty = dict(zip(scores.sample_ids, scores.scores.tolist(), strict=True))
        for run, seed in sources.seeds():
            name = _name(run, scores, sources)
            binned, problem = _error_rates(seed, difficulty)
            rows += [{"run": name, "seed": seed.seed, **row} for row in binned]
            if problem:
                where = f"seed {seed.seed} of {run.name} and {scores.path}"
                found.append(LeftOut(NAME, f"{where}: {problem}"))
    if rows:
        column = " and ".join(dict.fromkeys(each.column for each in sources.clean_scores))
        caption = (
            f"Error rate in {NUM_BINS} bins of equal size, from the easiest to the hardest samples "
            f"by `{column}`: those of the run's test data that have a score, joined by their ids."
        )
        paper = "Cui et al. (2023), figures 2, 6 and 7"
        over = ("share", "samples, easiest to hardest")
        draw = partial(draw_lines, rows, over, {"error_rate": "error rate"})
        found.append(Figure(NAME, caption, paper, rows, draw))
    return found


def _name(run: RunSource, scores: ScoreSource, sources: Sources) -> str:
    return run.name if len(sources.clean_scores) == 1 else f"{run.name}, {scores.name}"


def _error_rates(
    seed: SeedFolder, difficulty: dict[str, float]
) -> tuple[Sequence[dict[str, float | int]], str]:
    """The cells of each bin, easiest first, and what is missing; equal scores keep their order."""
    saved = seed.predictions
    if saved is None:
        return [], "it is not finished and has no predictions"
    scores = np.array([difficulty.get(each, np.nan) for each in saved.sample_ids])
    known = np.flatnonzero(np.isfinite(scores))
    if len(known) < NUM_BINS:
        return [], f"{len(known)} of its samples have a score, fewer than {NUM_BINS} bins"
    order = known[np.argsort(scores[known], kind="stable")]
    wrong = ~confidence_and_correct(saved.logits, saved.targets)[1]
    rows = []
    for number, chosen in enumerate(np.array_split(order, NUM_BINS)):
        values = scores[chosen]
        rows.append(
            {
                "share": (number + 0.5) / NUM_BINS,
                "samples": len(chosen),
                "lowest": float(values.min()),
                "highest": float(values.max()),
                "error_rate": float(wrong[torch.from_numpy(chosen)].double().mean()),
            }
        )
    lacking = len(scores) - len(known)
    return rows, f"{lacking:,} of {len(scores):,} samples have no score" if lacking else ""
