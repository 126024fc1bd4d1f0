"""The page of regions of images that look like an object and have no box."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from difficulty_service.analyses.missing_boxes.find import MissingBoxes
from difficulty_service.base.files import replacing
from difficulty_service.pages.cards import dataset_name, read_pictures
from difficulty_service.pages.html_page import render_template, require_page_file
from difficulty_service.pages.split_samples import ShownSample, shown_sample
from difficulty_service.pages.stored_images import ImageSource

STYLES, SCRIPTS = ("base.css", "report.css", "leaks.css"), ("theme.js",)

MOST_SHOWN = 300
"""Regions that are shown."""


@dataclass(frozen=True)
class ShownRegion:
    """A region with its place in its image, in the pixels that the annotations go by."""

    sample: ShownSample
    image: str
    label: str
    place: str
    score: float


def write_missing_page(path: Path, found: MissingBoxes) -> None:
    """Writes the page, which appears whole or not at all."""
    require_page_file(path)
    values = {
        "found": found,
        "name": dataset_name(found.dataset),
        "regions": _regions(found),
    }
    html = render_template(
        "missing.html.j2", values, styles=STYLES, scripts=SCRIPTS, package=__package__
    )
    with replacing(path) as temporary:
        temporary.write_text(html, "utf-8", errors="replace")


def _regions(found: MissingBoxes) -> Sequence[ShownRegion]:
    rows = found.table[:MOST_SHOWN].to_pylist()
    ids = list(found.regions.sample_ids[: len(rows)])
    pictures = read_pictures(ImageSource(found.regions, ()), ids, ids)
    return [
        ShownRegion(
            sample=shown_sample(number, key, row["label"], pictures),
            image=row["image"],
            label=row["label"],
            place=", ".join(f"{row[name]:.0f}" for name in ("x", "y", "width", "height")),
            score=row["score"],
        )
        for number, (key, row) in enumerate(zip(ids, rows, strict=True))
    ]
