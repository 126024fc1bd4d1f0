"""Sheets of the hardest and of the easiest images of a score file."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from difficulty_service.base.errors import DifficultyError
from difficulty_service.images.header import decode_to_pil, open_header
from difficulty_service.review.stored_images import open_images
from trainer.reports.diagrams import save_picture, style
from trainer.reports.figures.figure import Drawn, Figure, LeftOut, Row
from trainer.reports.figures.sources import ScoreSource, Sources

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "hardest-and-easiest"
ACROSS, DOWN = 8, 3
SIDE = 160
"""Longer side in pixels that an image is reduced to; smaller images keep their size."""

LONGEST_TITLE = 14


def sheet_figures(sources: Sources) -> Drawn:
    """A sheet for each score file of images as they are, whose dataset can be opened."""
    if not sources.clean_scores:
        return [LeftOut(NAME, "no score file of images without corruption is given")]
    return [part for each in sources.clean_scores for part in _sheet(each, sources)]


def _sheet(scores: ScoreSource, sources: Sources) -> Drawn:
    stem = "".join(each if each.isalnum() or each in "-_." else "-" for each in scores.name)
    name = NAME if len(sources.clean_scores) == 1 else f"{NAME}-{stem}"
    rows = _extremes(scores)
    ids = [str(row["sample_id"]) for row in rows]
    problems: dict[str, str] = {}
    try:
        source = open_images(scores.provenance, ids)
        pictures = {
            sample_id: _shrunk(image.read())
            for sample_id, image in source.images(set(ids), problems.__setitem__)
        }
    except (DifficultyError, OSError) as error:
        problem = error.problem if isinstance(error, DifficultyError) else error
        return [LeftOut(name, f"the images of {scores.path} cannot be shown: {problem}")]
    found: list[Figure | LeftOut] = [
        LeftOut(name, f"sample {sample_id} of {scores.path} cannot be shown: {problem}")
        for sample_id, problem in problems.items()
    ]
    if not pictures:
        return found
    caption = (
        f"The hardest and the easiest images of {scores.name} by `{scores.column}`, with their "
        "labels and scores, the most extreme first."
    )
    paper = "Cui et al. (2023), figures 1a, 5, 8, 9 and 12"
    return [*found, Figure(name, caption, paper, rows, partial(_draw, rows, pictures))]


def _extremes(scores: ScoreSource) -> list[Row]:
    """The rows of the hardest and of the easiest samples; none is in both."""
    known = np.flatnonzero(np.isfinite(scores.scores))
    order = known[np.argsort(scores.scores[known], kind="stable")]
    count = min(ACROSS * DOWN, (len(order) + 1) // 2)
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


def _shrunk(encoded: bytes) -> Image.Image:
    image = decode_to_pil(open_header(encoded))
    image.thumbnail((SIDE, SIDE))
    return image


def _draw(rows: Sequence[Row], pictures: Mapping[str, Image.Image], path: Path) -> None:
    from matplotlib.figure import Figure as Canvas

    # The places are given, because to compute them takes seconds for so many axes.
    width, height = 1 / ACROSS, 1 / (2 * DOWN + 0.6)
    with style():
        figure = Canvas(figsize=(1.2 * ACROSS, 1.45 * (2 * DOWN + 0.6)))
        top = 1.0
        for group in ("hardest", "easiest"):
            top -= 0.3 * height
            figure.text(0.01, top + 0.05 * height, group, fontsize="medium")
            for place, row in enumerate(each for each in rows if each["group"] == group):
                down, across = divmod(place, ACROSS)
                left, bottom = (across + 0.05) * width, top - (down + 0.97) * height
                axes = figure.add_axes((left, bottom, 0.9 * width, 0.7 * height))
                axes.axis("off")
                _show(axes, row, pictures)
            top -= DOWN * height
        save_picture(figure, path)


def _show(axes: "Axes", row: Row, pictures: Mapping[str, Image.Image]) -> None:
    *_, score = row.values()
    label = str(row["label_name"])
    shown = label if len(label) <= LONGEST_TITLE else f"{label[: LONGEST_TITLE - 1]}…"
    axes.set_title(f"{shown}\n{float(score or 0):.4g}", fontsize="x-small", parse_math=False)
    if (picture := pictures.get(str(row["sample_id"]))) is not None:
        axes.imshow(np.asarray(picture.convert("RGB")))
