"""Pages of images: the list, one image, its picture, and marking without a script."""

from dataclasses import replace
from typing import Annotated, Any, Literal
from xml.sax.saxutils import escape

import numpy as np
from fastapi import APIRouter, Depends, Form, Path, Query, Request
from starlette.responses import Response

from api.http.api_keys import ReadKey, WriteKey
from api.http.problems import Problem, not_found
from api.http.small_files import small_file
from api.jobs.failures import hide_paths, public_names
from api.jobs.marks import SampleMark, set_marks
from api.pages.rendering import is_fragment, query_of, redirect, render
from api.pages.scored import ScoredJob, scored_job
from api.results.image_query import (
    MARKS,
    SORTS,
    ImagePage,
    ImageQuery,
    find_images,
    matching_rows,
    neighbours,
)
from api.results.overview import typical_rows
from api.results.score_pages import BadQuery
from api.results.thumbnails import Thumbnails
from api.routes.marks import apply_changes
from api.routes.results import JPEG
from api.schemas.marks import Decision, MarkChange
from difficulty_service.cleaning.marks import Mark
from difficulty_service.errors import DatasetError, ImageError
from difficulty_service.reporting.cards import Card
from difficulty_service.reporting.charts import Bar, histogram

router = APIRouter(prefix="/jobs/{job_id}/images", include_in_schema=False)

PAGE = 60
TYPICAL = 6
BINS = 48
LETTERS = 22  # of a line in a placeholder
MOST_CLASSES = 1000
"""Number of classes that the filters suggest."""

DIGITS = 9
MOST_AT_ONCE = 100_000
"""Number of images that can be marked at once."""

Text = Annotated[str, Query(max_length=1000)]
Row = Annotated[int, Path(ge=0, le=2**53)]


def read_query(  # noqa: PLR0913, PLR0917 - one parameter for each condition
    label: Text = "",
    near: Text = "",
    pmin: Text = "",
    pmax: Text = "",
    margin: Text = "",
    q: Text = "",
    mark: Text = "",
    sort: Text = "doubtful",
    after: Text = "",
) -> ImageQuery:
    """The conditions in an address."""
    return ImageQuery(label, near, pmin, pmax, margin, q, mark, sort or "doubtful", after)


Conditions = Annotated[ImageQuery, Depends(read_query)]


@router.get("")
def show_images(job_id: str, request: Request, key: ReadKey, query: Conditions) -> Response:
    """The images that fulfil the conditions, a page at a time."""
    job = scored_job(request, key, job_id)
    problem = ""
    try:
        page = find_images(job.samples, query, job.marked, PAGE)
    except BadQuery as error:
        problem, page = str(error), ImagePage([], np.empty(0, np.int64), 0, "")
    values = _list_values(job, query, page) | {"problem": problem}
    if is_fragment(request):
        return render(request, "cards" if query.after else "results", values)
    return render(request, "images", values)


@router.post("/mark-matching")
def mark_matching(
    job_id: str,
    request: Request,
    key: WriteKey,
    query: Conditions,
    mark: Annotated[Literal["keep", "relabel", "drop", "none"], Form()],
) -> Response:
    """Marks every image that fulfils the conditions."""
    job = scored_job(request, key, job_id)
    samples = job.samples
    try:
        rows = matching_rows(samples, query, job.marked)
    except BadQuery as error:
        raise Problem(
            422, "invalid-request", str(error), "correct this field", error.field
        ) from None
    rows = np.arange(len(samples)) if rows is None else rows
    if mark == "relabel":
        rows = rows[(samples.nearest[rows] >= 0) & (samples.nearest[rows] != samples.labels[rows])]
    if len(rows) > MOST_AT_ONCE:
        raise Problem(
            422,
            "too-large",
            f"{len(rows):,} images are more than the {MOST_AT_ONCE:,} that can be marked at once",
            "narrow the filters, or use `difficulty clean --drop` with a condition",
        )
    changes: dict[int, SampleMark | None] = {
        row: None
        if mark == "none"
        else SampleMark(
            row,
            samples.ids[row].as_py(),
            Mark(mark),
            samples.name_of(int(samples.nearest[row])) if mark == "relabel" else None,
        )
        for row in rows.tolist()
    }
    set_marks(request.app.state.engine, key.owner, job.job.id, changes, {})
    return redirect(f"{job.address}/images{_query(query)}")


@router.get("/{row}")
def show_image(
    job_id: str, row: Row, request: Request, key: ReadKey, query: Conditions
) -> Response:
    """One image with its scores, and typical images of its class and of the nearest one."""
    job = scored_job(request, key, job_id)
    card = _existing(job, row)
    if is_fragment(request):
        values = _list_values(job, query, ImagePage([row], None, 1, "")) | {"problem": ""}
        return render(request, "cards", values)
    try:
        previous, following = neighbours(job.samples, query, job.marked, row)
    except BadQuery:
        previous, following = None, None
    samples = job.samples
    strips = [
        (samples.name_of(label), job.cards(typical_rows(samples, label, TYPICAL, row)))
        for label in dict.fromkeys((card.label, card.nearest))
        if label >= 0
    ]
    values = job.values("Images") | {
        "card": card,
        "agnostic": float(samples.agnostic[row]),
        "copy_of": samples.copy_of[row].as_py(),
        "strips": strips,
        "previous": previous,
        "following": following,
        "conditions": query.conditions,
        "classes": list(samples.names.values())[:MOST_CLASSES],
    }
    return render(request, "image", values)


@router.post("/{row}")
def mark_image(  # noqa: PLR0913, PLR0917 - one parameter for each field of the form
    job_id: str,
    row: Row,
    request: Request,
    key: WriteKey,
    query: Conditions,
    mark: Annotated[Literal["keep", "relabel", "drop", "none"], Form()],
    label: Annotated[str, Form(max_length=4000)] = "",
) -> Response:
    """Marks one image by a form, and shows it again."""
    job = scored_job(request, key, job_id)
    card = _existing(job, row)
    decision = None
    if mark != "none":
        new_label = (label or card.nearest_name) if mark == "relabel" else None
        if mark == "relabel" and not new_label:
            raise Problem(
                422, "invalid-request", "no other class fits this image", "choose a class", "label"
            )
        decision = Decision(mark=Mark(mark), label=new_label)
    apply_changes(request, key, job.job, [MarkChange(row=row, decision=decision)])
    return redirect(f"{job.address}/images/{row}{_query(query)}")


@router.get("/{row}/picture")
def show_picture(
    job_id: str,
    row: Row,
    request: Request,
    key: ReadKey,
    size: Annotated[int, Query(ge=16, le=512)] = 224,
) -> Response:
    """A small version of an image; the reason as a picture where it cannot be shown."""
    job = scored_job(request, key, job_id)
    sample_id = _existing(job, row).sample_id
    thumbnails: Thumbnails = request.app.state.thumbnails
    try:
        path = thumbnails.get(job.job, sample_id, size, row)
    except ImageError as error:
        return _placeholder(
            422, hide_paths(error.problem, public_names(request.app.state.settings))
        )
    except (DatasetError, Problem):
        return _placeholder(410, "the dataset can no longer be read")
    if path is None:
        return _placeholder(404, "the image is no longer in the dataset")
    return small_file(request, path, JPEG)


def _list_values(job: ScoredJob, query: ImageQuery, page: ImagePage) -> dict[str, Any]:
    samples = job.samples
    names = list(samples.names.values())
    return job.values("Images") | {
        "cards": job.cards(page.rows),
        "num_matching": page.num_matching,
        "num_samples": len(samples),
        "bars": [] if query.after else _bars(job, page),
        "query": replace(query, after=""),
        "conditions": query.conditions,
        "more": {**query.conditions, "after": page.next} if page.next else None,
        "sorts": SORTS,
        "mark_filters": MARKS,
        "classes": names[:MOST_CLASSES],
        "num_classes": len(names),
        "digits": names[:DIGITS],
        "most_at_once": MOST_AT_ONCE,
        "has_doubtful": bool((samples.margins > 0).any()) if not page.rows else True,
    }


def _bars(job: ScoredJob, page: ImagePage) -> list[Bar]:
    columns = job.open_scores.get(job.job)
    if columns.scale is None or not page.num_matching:
        return []
    rmd = columns.samples.rmd
    return list(
        histogram(rmd if page.matching is None else rmd[page.matching], columns.scale, BINS)
    )


def _existing(job: ScoredJob, row: int) -> Card:
    if row >= len(job.samples):
        raise not_found("sample", str(row))
    return job.cards([row])[0]


def _placeholder(status: int, reason: str) -> Response:
    """A picture with the reason why the image cannot be shown."""
    words, lines = reason[:140].split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > LETTERS and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word[:LETTERS]}".strip()
    text = "".join(
        f'<text x="80" y="{80 + 15 * (number - (len(lines) - 1) / 2)}">{escape(line)}</text>'
        for number, line in enumerate(lines[:8])
    )
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 160 160" width="160" height="160" '
        'font-family="sans-serif" font-size="12" text-anchor="middle" fill="#777b74">'
        f"{text}</svg>"
    )
    headers = {"Cache-Control": "no-store"}
    return Response(svg, status, headers, "image/svg+xml")


def _query(query: ImageQuery) -> str:
    return query_of(query.conditions)
