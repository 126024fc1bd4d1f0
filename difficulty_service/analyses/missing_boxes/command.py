"""`difficulty missing`: scored boxes in, regions out that look like an object and have no box."""

from pathlib import Path
from typing import TYPE_CHECKING

from difficulty_service.cli.console import (
    err,
    print_json,
    print_page,
    print_table,
    print_warnings,
    without,
)
from difficulty_service.cli.console import out as console
from difficulty_service.cli.extract import report_settled
from difficulty_service.cli.progress import exit_when_interrupted
from difficulty_service.cli.scored_images import reading_of
from difficulty_service.cli.written_files import require_writable
from difficulty_service.settings.command_options import MissingOptions
from difficulty_service.settings.machine import DeviceOptions
from difficulty_service.settings.options import JsonOption, ScoredImages

if TYPE_CHECKING:
    from difficulty_service.analyses.missing_boxes.find import MissingBoxes

SHOWN = 10
"""Number of regions that are printed."""


def missing(
    scores: Path,
    /,
    *,
    out: Path,
    report: Path | None = None,
    search: MissingOptions = MissingOptions(),
    images: ScoredImages = ScoredImages(),
    device: DeviceOptions = DeviceOptions(),
    output: JsonOption = JsonOption(),
) -> None:
    """Finds regions of images that look like an object and have no box.

    Square windows slide over randomly drawn images. Windows beside all boxes are compared with the
    objects in the boxes and with each other, by the network of the scores.

    Args:
        scores: Score file of boxes, with its features beside it.
        out: Table of the regions to write, most object-like first, ending in .parquet, .csv or
            .jsonl.
        report: Page to write, with a picture of each region.
    """
    from difficulty_service.analyses.missing_boxes.find import encoding_plan, find_missing
    from difficulty_service.analyses.missing_boxes.page import write_missing_page
    from difficulty_service.cli.progress import ImageProgressBar
    from difficulty_service.pages.stored_images import open_images
    from difficulty_service.scores.provenance import Provenance
    from difficulty_service.scoring.pipeline import Callbacks
    from difficulty_service.scoring.splits import open_split

    require_writable([scores], tables=[out], pages=[report])
    split = open_split(scores)
    description = split.source.description
    plan = encoding_plan(description, device)
    ids = split.sample_ids.to_pylist()
    made = Provenance.of_features(description)
    source = open_images(made, ids, images.images, reading_of(images))
    print_warnings(source.warnings)
    with exit_when_interrupted("stopped; nothing is written"), ImageProgressBar() as bar:
        err.print(f"listing windows of {source.dataset.location}")
        callbacks = Callbacks(bar.update, report_settled)
        found = find_missing(split, source.dataset, search, plan.reporting(bar.download), callbacks)
    print_warnings(found.warnings)
    found.save(out)
    with without(*([console] if output.json_ else [])):
        report_missing(found, out)
        if report is not None:
            write_missing_page(report, found)
            print_page(report)
    if output.json_:
        print_json(found.counts)


def report_missing(found: "MissingBoxes", out: Path) -> None:
    """Prints what was searched, and the first regions."""
    from difficulty_service.base.wording import count_of
    from difficulty_service.cli.score_report import class_text

    sides = ", ".join(f"{side:g}" for side in found.sides)
    console.print(
        f"{count_of(found.num_windows, 'window')} of {sides} pixels were compared, in "
        f"{found.num_images:,} of {count_of(found.images_of_dataset, 'image')}"
    )
    rows = [
        (
            row["image"],
            " ".join(f"{row[name]:.0f}" for name in ("x", "y", "width", "height")),
            class_text(row["label"]),
            f"{row['score']:.2f}",
        )
        for row in found.table[:SHOWN].to_pylist()
    ]
    print_table(("image", "x y width height", "looks like", "score"), rows, shorten="image")
    console.print(
        f"{count_of(len(found.table), 'region')} in {out}, those most like an object first; the "
        "score ranks them and is no probability"
    )
