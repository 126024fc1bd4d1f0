"""Marks of a finished job that another job applies to its dataset.

A job keeps them as they were when it was submitted: marks that change later do not change it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import compress
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from sqlalchemy import Engine, select

from api.http.problems import Problem
from api.jobs.marks import marks_tables
from api.jobs.rows import Job
from api.jobs.store import get_job
from api.storage.tables import APPLIED_MARKS
from difficulty_service.cleaning.marks import Mark, MarkedSample
from difficulty_service.datasets.sample import Dataset, ImageOpener
from difficulty_service.errors import DatasetError
from difficulty_service.files.wording import count_of

Marked = Mapping[str, MarkedSample]
"""What to do with a sample, by its id: relabel or drop."""


def requested_marks(engine: Engine, owner: str, request: Mapping[str, Any]) -> Marked | None:
    """The marks that a request names, as they are now; None if it names none.

    They follow those that the named job has applied itself, so that each round of review builds
    on the one before.

    Raises:
        Problem: The named job does not exist, has no result, or nothing in it is to be changed.
    """
    source_id = request.get("marks")
    if source_id is None:
        return None
    source = get_job(engine, owner, source_id)
    if source is None:
        raise _problem(422, f"there is no job {source_id!r}", "GET /v1/jobs lists all")
    if source.state != "succeeded":
        raise _problem(
            409, f"job {source_id} has no marks: it is {source.state}", "name a job that succeeded"
        )
    new: dict[str, MarkedSample] = {}
    for table in marks_tables(engine, owner, source_id):
        changed = table.filter(pc.field("mark") != Mark.KEEP.value)
        columns = (changed[name].to_pylist() for name in ("sample_id", "mark", "label"))
        for sample_id, mark, label in zip(*columns, strict=True):
            new[sample_id] = _marked_sample(mark, label)
    if not new:
        raise _problem(
            422,
            f"no image of job {source_id} is marked to be relabelled or dropped",
            "mark images first",
        )
    return {**applied_marks(engine, source), **new}


def _problem(status: int, detail: str, remedy: str) -> Problem:
    kind = "conflict" if status == 409 else "invalid-request"  # noqa: PLR2004 - HTTP
    return Problem(status, kind, detail, remedy, field="marks")


def applied_marks(engine: Engine, job: Job) -> dict[str, MarkedSample]:
    """The marks that a job applies; empty if there are none."""
    query = select(APPLIED_MARKS.c.marks).where(APPLIED_MARKS.c.job == job.id)
    with engine.connect() as connection:
        text = connection.execute(query).scalar_one_or_none()
    stored = {} if text is None else json.loads(text)
    return {sample_id: _marked_sample(*values) for sample_id, values in stored.items()}


@lru_cache(maxsize=1024)
def _marked_sample(mark: str, label: str | None) -> MarkedSample:
    # Of a million marks, few differ.
    return MarkedSample(Mark(mark), label)


def encode_marks(marks: Marked | None) -> str | None:
    """The marks as they are stored with a job."""
    if marks is None:
        return None
    return json.dumps({each: [mark.mark.value, mark.label] for each, mark in marks.items()})


def apply_marks(dataset: Dataset, marks: Marked, source_id: str) -> Dataset:
    """A dataset without the dropped samples, in which the relabelled ones have their new class.

    Args:
        dataset: The dataset.
        marks: The marks; a class that the dataset lacks is added to it.
        source_id: Id of the job that they are from, for messages.

    Raises:
        DatasetError: No sample is marked, or every sample is dropped.
    """
    names = list(dataset.class_names)
    indices = {name: index for index, name in enumerate(names)}
    labels, kept = dataset.labels.copy(), np.ones(len(dataset.labels), bool)
    num_found = 0
    for position, sample_id in enumerate(dataset.sample_ids):
        marked = marks.get(sample_id)
        if marked is None:
            continue
        num_found += 1
        if marked.label is None:
            kept[position] = False
            continue
        if marked.label not in indices:
            indices[marked.label] = len(names)
            names.append(marked.label)
        labels[position] = indices[marked.label]
    if not num_found:
        raise DatasetError(
            f"none of the {len(marks):,} images marked in job {source_id} is in the dataset",
            "submit the job with the dataset of that job",
        )
    if not kept.any():
        raise DatasetError(f"the marks of job {source_id} drop every image", "keep some")
    num_relabelled = int((labels != dataset.labels).sum())
    warnings = [
        f"the marks of job {source_id} change {count_of(num_relabelled, 'label')} and leave out "
        f"{count_of(int((~kept).sum()), 'image')}"
    ]
    if missing := len(marks) - num_found:
        warnings.append(
            f"{count_of(missing, 'image')} marked in job {source_id} cannot be found in the dataset"
        )
    digest = hashlib.sha256(dataset.fingerprint.encode())
    digest.update(json.dumps(sorted(json.loads(encode_marks(marks) or "{}").items())).encode())
    return replace(
        dataset,
        class_names=tuple(names),
        sample_ids=list(compress(dataset.sample_ids, kept)),
        labels=labels[kept],
        fingerprint=digest.hexdigest(),
        open_images=_KeptImages(dataset, kept, np.flatnonzero(kept)),
        warnings=(*dataset.warnings, *warnings),
    )


@dataclass(frozen=True)
class _KeptImages:
    """Opens the images of a dataset that are kept, by their positions among these.

    Attributes:
        dataset: The whole dataset.
        kept: Whether each sample is kept. Shape (samples,).
        positions: Positions of the samples that are. Shape (kept samples,).
    """

    dataset: Dataset
    kept: NDArray[np.bool_]
    positions: NDArray[np.int64]

    def __call__(self, wanted: range) -> Iterator[ImageOpener]:
        """The openers of the samples at ascending positions."""
        if not wanted:
            return iter(())
        span = range(int(self.positions[wanted[0]]), int(self.positions[wanted[-1]]) + 1)
        return compress(self.dataset.open_images(span), self.kept[span.start : span.stop])
