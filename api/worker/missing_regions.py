"""Regions without a box, which a job looks for once its boxes are scored."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from api.http.problems import invalid
from api.jobs.files import MISSING_FILE
from api.jobs.missing_table import COUNTS, PICTURE
from api.jobs.store import Job
from difficulty_service.backbones import Loader
from difficulty_service.base.analyses import ability
from difficulty_service.base.errors import ImageError
from difficulty_service.base.files import replacing
from difficulty_service.base.tables import write_parquet
from difficulty_service.bodies.jobs import JobRequest
from difficulty_service.datasets.sample import Dataset
from difficulty_service.extraction.plan import Plan
from difficulty_service.features.source import FeatureSource
from difficulty_service.pages.cards import LARGE, to_webp
from difficulty_service.pages.stored_images import ImageSource
from difficulty_service.scoring.pipeline import Callbacks
from difficulty_service.scoring.splits import Split
from difficulty_service.settings.command_options import MissingOptions


def require_boxes(wanted: JobRequest, dataset: Dataset) -> None:
    """Raises a `Problem` where missing boxes are to be looked for among whole images."""
    if wanted.missing_boxes is not None and dataset.scenes is None:
        raise invalid(
            "the samples are whole images and not boxes, so none can be missing",
            "leave it out, or name a dataset of boxes, such as COCO, YOLO or Pascal VOC",
            "missing_boxes",
        )


def write_missing(
    job: Job, store: FeatureSource, dataset: Dataset, plan: Plan, callbacks: Callbacks, load: Loader
) -> Path:
    """Looks for missing boxes, and writes a table of them beside the features of the boxes.

    Args:
        job: The job, whose request has `missing_boxes`.
        store: The boxes that were scored.
        plan: How they were encoded.
    """
    wanted = job.wanted
    assert wanted.missing_boxes is not None  # noqa: S101 - they are to be looked for
    options = MissingOptions(sample=wanted.missing_boxes, seed=wanted.seed)
    split = Split(f"job {job.id}", store)
    find = ability("missing_boxes", "find")
    found = find(split, dataset, options, plan, callbacks, load)
    table = found.table.append_column(PICTURE, pa.array(_pictures(found.regions), pa.binary()))
    path = plan.out.parent / MISSING_FILE
    with replacing(path) as temporary:
        write_parquet(
            temporary, table.replace_schema_metadata({COUNTS: found.counts.model_dump_json()})
        )
    return path


def _pictures(regions: Dataset) -> Sequence[bytes | None]:
    """A picture of each region; None where its image can no longer be read."""
    ids = list(regions.sample_ids)
    pictures: dict[str, bytes] = {}
    for sample_id, image in ImageSource(regions, ()).images(ids, lambda _id, _reason: None):
        try:
            pictures[sample_id] = to_webp(image.read(), LARGE)
        except (ImageError, OSError):
            continue
    return [pictures.get(each) for each in ids]
