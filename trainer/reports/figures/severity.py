"""Mean difficulty over the severity of corruptions, from a score file for each."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from difficulty_service.scores.provenance import Provenance
from trainer.reports.figures.figure import Drawn, Figure, LeftOut, Row
from trainer.reports.figures.lines import draw_lines
from trainer.reports.figures.sources import ScoreSource, Sources

NAME = "difficulty-over-severity"
Group = tuple[str, ...]


def severity_figures(sources: Sources) -> Drawn:
    """The figure NAME: a line for each corruption of each dataset, backbone and fit.

    Severity 0 are the images as they are, where a score file of the same ones is given.
    """
    corrupted = [each for each in sources.scores if each.corruption is not None]
    if not corrupted:
        reason = "no score file of corrupted images is given; `difficulty score --corrupt` makes it"
        return [LeftOut(NAME, reason)]
    found: list[Figure | LeftOut] = []
    usable: dict[tuple[Group, str], ScoreSource] = {}
    for each in corrupted:
        key = (_group(each.provenance), str(each.corruption))
        if reason := _problem(each, usable.get(key)):
            found.append(LeftOut(NAME, reason))
        else:
            usable[key] = each
    groups = list(dict.fromkeys(group for group, _ in usable))
    rows: list[Row] = []
    for number, group in enumerate(groups):
        own = [each for (other, _), each in usable.items() if other == group]
        clean = _clean(own[0], sources.clean_scores)
        if clean is None:
            reason = f"{own[0].path}: no score file of the same images without corruption is given"
            found.append(LeftOut(NAME, f"{reason}, so that severity 0 is missing"))
        rows += _rows(own, clean, f", {_title(own[0], number)}" if len(groups) > 1 else "")
    if rows:
        caption = (
            f"Mean `{corrupted[0].column}` of the images at each severity of each corruption, by "
            "Gaussians of other features; severity 0 are the images as they are. `interval` is the "
            "half-width of the 95 % interval."
        )
        panels = {"mean": f"mean {corrupted[0].column}"}
        draw = partial(draw_lines, rows, ("severity", "severity"), panels)
        found.append(Figure(NAME, caption, "Cui et al. (2023), figure 1b", rows, draw))
    return found


def _group(provenance: Provenance) -> Group:
    """What score files of one line have in common."""
    samples = provenance.dataset, provenance.dataset_options
    scored_by = provenance.backbone, provenance.weights_sha256, provenance.fitted_on
    return tuple(map(repr, (*samples, *scored_by)))


def _problem(scores: ScoreSource, earlier: ScoreSource | None) -> str:
    """Why a score file of corrupted images cannot be used; empty where it can."""
    if earlier is not None:
        return f"{scores.path} is of {scores.corruption}, as {earlier.path} is"
    fitted_on = scores.provenance.fitted_on
    if fitted_on is not None and fitted_on.corruption:
        return (
            f"{scores.path} is scored by Gaussians of corrupted images, to which none of them is "
            "hard; fit them to clean ones and name them in `difficulty score --gaussians`"
        )
    return ""


def _clean(scores: ScoreSource, among: Sequence[ScoreSource]) -> ScoreSource | None:
    """The file of the same samples without corruption."""
    ids = set(scores.sample_ids)
    for each in among:
        same = _group(each.provenance) == _group(scores.provenance)
        if same and set(each.sample_ids) == ids:
            return each
    return None


def _title(scores: ScoreSource, number: int) -> str:
    backbone = scores.provenance.backbone
    return f"{backbone} {number + 1}" if backbone else str(number + 1)


def _rows(own: Sequence[ScoreSource], clean: ScoreSource | None, ending: str) -> list[Row]:
    lines: dict[str, list[tuple[int, ScoreSource]]] = {}
    for each in own:
        name, _, strength = str(each.corruption).partition(":")
        lines.setdefault(name, []).append((int(strength), each))
    rows: list[Row] = []
    for name, line in lines.items():
        start = [] if clean is None else [(0, clean)]
        for severity, each in sorted((*start, *line), key=lambda pair: pair[0]):
            values = each.scores[np.isfinite(each.scores)]
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else None
            rows.append(
                {
                    "run": f"{name.replace('_', ' ')}{ending}",
                    "severity": severity,
                    "samples": len(values),
                    "mean": float(values.mean()),
                    "interval": None if error is None else float(1.96 * error),
                }
            )
    return rows
