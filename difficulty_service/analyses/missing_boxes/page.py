"""The page of regions of images that look like an object and have no box."""

from pathlib import Path

from difficulty_service.analyses.missing_boxes.find import MissingBoxes
from difficulty_service.pages.cards import dataset_name, read_pictures
from difficulty_service.pages.html_page import require_page_file, write_page
from difficulty_service.pages.split_samples import shown_sample
from difficulty_service.pages.stored_images import ImageSource

STYLES = ("base.css", "report.css", "leaks.css")

MOST_SHOWN = 300
"""Regions that are shown."""


def write_missing_page(path: Path, found: MissingBoxes) -> None:
    """Writes the page, which appears whole or not at all."""
    require_page_file(path)
    rows = found.table[:MOST_SHOWN].to_pylist()
    ids = list(found.regions.sample_ids[: len(rows)])
    pictures = read_pictures(ImageSource(found.regions, ()), ids, ids)
    regions = [
        {
            **row,
            "sample": shown_sample(number, key, row["label"], pictures),
            # In the pixels that the annotations go by.
            "place": ", ".join(f"{row[name]:.0f}" for name in ("x", "y", "width", "height")),
        }
        for number, (key, row) in enumerate(zip(ids, rows, strict=True))
    ]
    values = {"found": found, "name": dataset_name(found.dataset), "regions": regions}
    write_page(path, "missing.html.j2", values, styles=STYLES, package=__package__)
