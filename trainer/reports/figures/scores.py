"""Figures of score files: errors and severity over difficulty, and the most extreme images."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

from difficulty_service.base.errors import DifficultyError
from difficulty_service.images.header import decode_to_pil, open_header
from difficulty_service.pages.stored_images import StoredImage, open_images
from difficulty_service.scores.provenance import Provenance
from trainer.metrics.predictions import confidence_and_correct
from trainer.reports.diagrams import ORANGE, save_picture, style
from trainer.reports.figures.figure import Drawn, Figure, LeftOutOfFigure, Row, draw_lines
from trainer.reports.figures.sources import ScoreSource, SeedFolder, Sources

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ERROR_NAME = "error-over-difficulty"


def error_figures(sources: Sources) -> Drawn:
    """The figure ERROR_NAME, of every run with every score file of images as they are."""
    if not sources.runs or not sources.clean_scores:
        missing = "score file of images without corruption" if sources.runs else "run"
        return [LeftOutOfFigure(ERROR_NAME, f"no {missing} is given; it takes both")]
    rows: list[Row] = []
    found: list[Figure | LeftOutOfFigure] = []
    for scores in sources.clean_scores:
        difficulty = dict(zip(scores.sample_ids, scores.scores.tolist(), strict=True))
        for run, seed in sources.seeds():
            alone = len(sources.clean_scores) == 1
            name = run.name if alone else f"{run.name}, {scores.name}"
            binned, problem = _error_rates(seed, difficulty, sources.num_bins)
            rows += [{"run": name, "seed": seed.seed, **row} for row in binned]
            if problem:
                reason = f"{scores.path}: {problem}"
                found.append(LeftOutOfFigure(ERROR_NAME, reason, run=run.name, seed=seed.seed))
    if rows:
        column = " and ".join(dict.fromkeys(each.column for each in sources.clean_scores))
        caption = (
            f"Error rate in {sources.num_bins} bins of equal size, from the easiest to the "
            f"hardest samples by `{column}`: those of the run's test data that have a score, "
            "joined by their ids."
        )
        paper = "Cui et al. (2023), figures 2, 6 and 7"
        over = ("share", "samples, easiest to hardest")
        draw = partial(draw_lines, rows, over, {"error_rate": "error rate"})
        found.append(Figure(ERROR_NAME, caption, paper, rows, draw))
    return found


def _error_rates(
    seed: SeedFolder, difficulty: dict[str, float], num_bins: int
) -> tuple[Sequence[dict[str, float | int]], str]:
    """The cells of each bin, easiest first, and what is missing; equal scores keep their order."""
    saved = seed.predictions
    if saved is None:
        return [], "it is not finished and has no predictions"
    scores = np.array([difficulty.get(each, np.nan) for each in saved.sample_ids])
    known = np.flatnonzero(np.isfinite(scores))
    if len(known) < num_bins:
        return [], f"{len(known)} of its samples have a score, fewer than {num_bins} bins"
    order = known[np.argsort(scores[known], kind="stable")]
    wrong = ~confidence_and_correct(saved.logits, saved.targets)[1]
    rows = []
    for number, chosen in enumerate(np.array_split(order, num_bins)):
        values = scores[chosen]
        rows.append(
            {
                "share": (number + 0.5) / num_bins,
                "samples": len(chosen),
                "lowest": float(values.min()),
                "highest": float(values.max()),
                "error_rate": float(wrong[torch.from_numpy(chosen)].double().mean()),
            }
        )
    lacking = len(scores) - len(known)
    return rows, f"{lacking:,} of {len(scores):,} samples have no score" if lacking else ""


SEVERITY_NAME = "difficulty-over-severity"
Group = tuple[str, ...]


def severity_figures(sources: Sources) -> Drawn:
    """The figure SEVERITY_NAME: a line for each corruption of each dataset, backbone and fit.

    Severity 0 are the images as they are, where a score file of the same ones is given.
    """
    corrupted = [each for each in sources.scores if each.corruption is not None]
    if not corrupted:
        reason = "no score file of corrupted images is given; `difficulty score --corrupt` makes it"
        return [LeftOutOfFigure(SEVERITY_NAME, reason)]
    found: list[Figure | LeftOutOfFigure] = []
    usable: dict[tuple[Group, str], ScoreSource] = {}
    for each in corrupted:
        key = (_group(each.provenance), str(each.corruption))
        if reason := _problem(each, usable.get(key)):
            found.append(LeftOutOfFigure(SEVERITY_NAME, reason))
        else:
            usable[key] = each
    groups = list(dict.fromkeys(group for group, _ in usable))
    rows: list[Row] = []
    for number, group in enumerate(groups):
        own = [each for (other, _), each in usable.items() if other == group]
        ids = set(own[0].sample_ids)
        same = (
            each
            for each in sources.clean_scores
            if _group(each.provenance) == group and set(each.sample_ids) == ids
        )
        clean = next(same, None)
        if clean is None:
            reason = f"{own[0].path}: no score file of the same images without corruption is given"
            found.append(LeftOutOfFigure(SEVERITY_NAME, f"{reason}, so that severity 0 is missing"))
        rows += _severity_rows(own, clean, f", {_title(own[0], number)}" if len(groups) > 1 else "")
    if rows:
        caption = (
            f"Mean `{corrupted[0].column}` of the images at each severity of each corruption, by "
            "Gaussians of other features; severity 0 are the images as they are. `interval` is the "
            "half-width of the 95 % interval."
        )
        panels = {"mean": f"mean {corrupted[0].column}"}
        draw = partial(draw_lines, rows, ("severity", "severity"), panels)
        found.append(Figure(SEVERITY_NAME, caption, "Cui et al. (2023), figure 1b", rows, draw))
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


def _title(scores: ScoreSource, number: int) -> str:
    backbone = scores.provenance.backbone
    return f"{backbone} {number + 1}" if backbone else str(number + 1)


def _severity_rows(own: Sequence[ScoreSource], clean: ScoreSource | None, ending: str) -> list[Row]:
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


SHEET_NAME = "hardest-and-easiest"
ACROSS = 8
"""Images in a row of a sheet."""

SIDE = 160
"""Longer side in pixels that an image is reduced to; smaller images keep their size."""

LONGEST_TITLE = 14


def sheet_figures(sources: Sources) -> Drawn:
    """A sheet for each score file of images as they are, whose dataset can be opened."""
    if not sources.clean_scores:
        return [LeftOutOfFigure(SHEET_NAME, "no score file of images without corruption is given")]
    return [part for each in sources.clean_scores for part in _sheet(each, sources)]


def _sheet(scores: ScoreSource, sources: Sources) -> Drawn:
    stem = "".join(each if each.isalnum() or each in "-_." else "-" for each in scores.name)
    name = SHEET_NAME if len(sources.clean_scores) == 1 else f"{SHEET_NAME}-{stem}"
    rows = _extremes(scores, sources.num_images)
    predicted, note = _predicted(sources)
    if predicted:
        rows = [{**row, "predicted": predicted.get(str(row["sample_id"]))} for row in rows]
    ids = [str(row["sample_id"]) for row in rows]
    problems: dict[str, str] = {}
    try:
        source = open_images(scores.provenance, ids)
        pictures = {
            sample_id: _shrunk(image)
            for sample_id, image in source.images(set(ids), problems.__setitem__)
        }
    except (DifficultyError, OSError) as error:
        problem = error.problem if isinstance(error, DifficultyError) else error
        return [LeftOutOfFigure(name, f"the images of {scores.path} cannot be shown: {problem}")]
    found: list[Figure | LeftOutOfFigure] = [
        LeftOutOfFigure(name, f"sample {sample_id} of {scores.path} cannot be shown: {problem}")
        for sample_id, problem in problems.items()
    ]
    if not pictures:
        return found
    caption = (
        f"The hardest and the easiest images of {scores.name} by `{scores.column}`, with their "
        f"labels and scores, the most extreme first.{note}"
    )
    paper = "Cui et al. (2023), figures 1a, 5, 8, 9 and 12"
    draw = partial(_draw_sheet, rows, scores.column, pictures)
    return [*found, Figure(name, caption, paper, rows, draw)]


def _predicted(sources: Sources) -> tuple[Mapping[str, str], str]:
    """The class that the first run predicts of each of its samples, and a sentence about it."""
    for run, seed in sources.seeds():
        if (saved := seed.predictions) is not None:
            names = seed.class_names
            predictions = saved.logits.argmax(dim=1).tolist()
            classes = zip(saved.sample_ids, (names[each] for each in predictions), strict=True)
            sentence = (
                f" Where seed {seed.seed} of {run.name} predicts another class, it stands behind "
                "the label."
            )
            return dict(classes), sentence
    return {}, ""


def _extremes(scores: ScoreSource, num_images: int) -> list[Row]:
    """The rows of the hardest and of the easiest samples; none is in both."""
    known = np.flatnonzero(np.isfinite(scores.scores))
    order = known[np.argsort(scores.scores[known], kind="stable")]
    count = min(num_images, (len(order) + 1) // 2)
    chosen = {"hardest": order[::-1][:count], "easiest": order[: min(count, len(order) - count)]}
    labels = scores.table["label_name"]
    return [
        {
            "group": group,
            "rank": rank,
            "sample_id": scores.sample_ids[place],
            "label_name": labels[int(place)].as_py(),
            scores.column: float(scores.scores[place]),
        }
        for group, places in chosen.items()
        for rank, place in enumerate(places, start=1)
    ]


def _shrunk(stored: StoredImage) -> Image.Image:
    image = decode_to_pil(open_header(stored.read()), stored.pixels)
    image.thumbnail((SIDE, SIDE))
    return image


def _draw_sheet(
    rows: Sequence[Row], column: str, pictures: Mapping[str, Image.Image], path: Path
) -> None:
    from matplotlib.figure import Figure as Canvas

    # The places are given, because to compute them takes seconds for so many axes.
    down_each = -(-max(int(str(row["rank"])) for row in rows) // ACROSS)
    width, height = 1 / ACROSS, 1 / (2 * down_each + 0.6)
    with style():
        figure = Canvas(figsize=(1.2 * ACROSS, 1.45 * (2 * down_each + 0.6)))
        top = 1.0
        for group in ("hardest", "easiest"):
            top -= 0.3 * height
            figure.text(0.01, top + 0.05 * height, group, fontsize="medium")
            for place, row in enumerate(each for each in rows if each["group"] == group):
                down, across = divmod(place, ACROSS)
                left, bottom = (across + 0.05) * width, top - (down + 0.97) * height
                axes = figure.add_axes((left, bottom, 0.9 * width, 0.7 * height))
                axes.axis("off")
                _show(axes, row, column, pictures)
            top -= down_each * height
        save_picture(figure, path)


def _show(axes: "Axes", row: Row, column: str, pictures: Mapping[str, Image.Image]) -> None:
    label, predicted = str(row["label_name"]), row.get("predicted")
    is_wrong = predicted is not None and predicted != label
    lines = [_shortened(label), *([f"→ {_shortened(str(predicted))}"] if is_wrong else [])]
    lines.append(f"{float(row[column] or 0):.4g}")
    colour = ORANGE if is_wrong else "black"
    axes.set_title("\n".join(lines), fontsize="x-small", color=colour, parse_math=False)
    if (picture := pictures.get(str(row["sample_id"]))) is not None:
        axes.imshow(np.asarray(picture.convert("RGB")))


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_TITLE else f"{name[: LONGEST_TITLE - 1]}…"
