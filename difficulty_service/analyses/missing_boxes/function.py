"""`missing_boxes`: scored boxes in, regions out that look like an object and have no box."""

from pathlib import Path
from typing import Unpack

from difficulty_service.analyses.missing_boxes.find import (
    MissingBoxes,
    encoding_plan,
    find_missing,
)
from difficulty_service.analyses.missing_boxes.page import write_missing_page
from difficulty_service.interface.keywords import DeviceChoices
from difficulty_service.interface.options import (
    progress_bar,
    read_options,
    require_names,
    require_results,
)
from difficulty_service.interface.scores import warn
from difficulty_service.pages.stored_images import open_images
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scoring.pipeline import Callbacks
from difficulty_service.scoring.splits import open_split
from difficulty_service.settings.command_options import MissingOptions
from difficulty_service.settings.machine import DeviceOptions

SAMPLE: int = MissingOptions.model_fields["sample"].default
COUNT: int = MissingOptions.model_fields["count"].default


def missing_boxes(
    scores: str | Path,
    *,
    sample: int = SAMPLE,
    count: int = COUNT,
    seed: int = 0,
    out: str | Path | None = None,
    report: str | Path | None = None,
    images: str | None = None,
    progress: bool = True,
    **options: Unpack[DeviceChoices],
) -> MissingBoxes:
    """Finds regions of images that look like an object and have no box.

    Square windows slide over images that are drawn at random. Those beside all boxes are compared
    with the objects in the boxes and with each other, by the network of the scores.

    Args:
        scores: Score file of boxes, with its features beside it.
        sample: Number of images to search; all where there are fewer.
        count: Number of regions to list.
        seed: Seed of the draw of the images.
        out: Table of the regions to write, ending in .parquet, .csv or .jsonl; None for none.
        report: Page to write, with a picture of each region, ending in .html; None for none.
        images: Location of the dataset; by default the one that the features name.
        progress: Whether to show a progress bar.
        **options: See `DeviceChoices`.

    Returns:
        `table` has the regions, those most like an object first; its `score` ranks them and is no
        probability.

    Raises:
        ConfigError: An option is out of bounds.
        DatasetError: The samples are no boxes, or no image is left to search.
        FeatureStoreError: The features are not there, or do not say which network made them.
        DifficultyError: The dataset or the network cannot be read.
    """
    require_names(options, DeviceChoices, "missing_boxes")
    search = read_options(MissingOptions, {"sample": sample, "count": count, "seed": seed})
    device = read_options(DeviceOptions, options)
    require_results(out, report)
    split = open_split(Path(scores))
    description = split.source.description
    plan = encoding_plan(description, device)
    ids = split.sample_ids.to_pylist()
    source = open_images(Provenance.of_features(description), ids, images)
    with progress_bar(shown=progress) as update:
        found = find_missing(split, source.dataset, search, plan, Callbacks(update))
    if out is not None:
        found.save(Path(out))
    if report is not None:
        write_missing_page(Path(report), found)
    warn([*source.warnings, *found.warnings])
    return found
