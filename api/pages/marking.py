"""Marks for all images that fulfil the conditions of a list."""

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Form
from numpy.typing import NDArray
from starlette.responses import JSONResponse, Response

from api.jobs.marks import SampleMark
from api.pages.rendering import query_of, redirect
from api.pages.scored import MarkedJob, ScoredJob
from api.results.conditions import ImageQuery, matching_rows
from api.results.score_pages import BadQuery
from api.routes.conditions import Conditions, as_problem, searched
from api.routes.marks import mark_many, require_few, require_mark
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import UNSEEN

router = APIRouter(prefix="/jobs/{job_id}/images", include_in_schema=False)

JSON = "application/json"
Choice = Mark | Literal["none"]
Verb = Annotated[Choice, Form()]


@router.post("/mark-matching")
async def mark_matching(job: MarkedJob, query: Conditions, mark: Verb) -> Response:
    """Marks every image that fulfils the conditions."""
    rows = await searched(job.caller, query, _rows_to_mark, job, query, mark)
    queue = job.services.queues.marking
    return await job.caller.in_turn(queue, _mark_rows, job, query, rows, mark)


def _mark_rows(
    job: ScoredJob, query: ImageQuery, rows: NDArray[np.int64], mark: Choice
) -> Response:
    caller = job.caller
    changes = _changes(job, rows, mark)
    # A script stays on the page, and can undo this.
    before = job.marks_of(changes) if JSON in caller.request.headers.get("accept", "") else None
    mark_many(caller.services.engine, caller.key.owner, job.job, changes)
    if before is not None:
        return JSONResponse(
            [
                {"id": row, "before": _decided(before[row]), "after": _decided(change)}
                for row, change in changes.items()
            ]
        )
    return redirect(f"{job.address}/images{query_of(query.conditions)}")


def _rows_to_mark(job: ScoredJob, query: ImageQuery, mark: Choice) -> NDArray[np.int64]:
    """Rows of the images that fulfil the conditions and can have the mark."""
    samples = job.samples
    try:
        found = matching_rows(samples, query, job.beside(query))
    except BadQuery as error:
        raise as_problem(error) from None
    rows = np.arange(len(samples)) if found is None else found
    if isinstance(mark, Mark):
        require_mark(samples, mark, "mark")
    if mark is Mark.RELABEL:
        rows = rows[(samples.nearest[rows] >= 0) & (samples.nearest[rows] != samples.labels[rows])]
    require_few(len(rows))
    return rows


def _changes(
    job: ScoredJob, rows: NDArray[np.int64], mark: Choice
) -> Mapping[int, SampleMark | None]:
    """The mark for each of some rows; None removes theirs."""
    samples = job.samples
    if not isinstance(mark, Mark):
        return dict.fromkeys(rows.tolist())
    return {
        row: SampleMark(
            row,
            samples.ids[row].as_py(),
            mark,
            samples.name_of(int(samples.nearest[row])) if mark.kind.needs_class else None,
            order=UNSEEN,
        )
        for row in rows.tolist()
    }


def _decided(mark: SampleMark | None) -> dict[str, str | None] | None:
    return None if mark is None else {"mark": mark.mark.value, "label": mark.label}
