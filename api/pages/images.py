"""Pages of images: the list, one image, marking without a script, and pictures of them."""

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any, Literal
from xml.sax.saxutils import escape

import numpy as np
from fastapi import APIRouter, Form, Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.http.problems import Problem, conflict, invalid, not_found
from api.http.public_text import hide_paths, public_names
from api.jobs.marks import marked_rows
from api.pages.column_filters import captions, column_filters, column_orders
from api.pages.marking import Choice, Verb
from api.pages.rendering import is_fragment, query_of, redirect, render
from api.pages.scored import IMAGES, MarkedJob, ScoredJob, SeenJob, existing_card
from api.results import conditions, image_pages
from api.results.conditions import ImageQuery
from api.results.further import Further, find_further
from api.results.image_pages import ImagePage
from api.results.overview import BINS, typical_rows
from api.results.saved_views import (
    LONGEST_NAME,
    LONGEST_QUERY,
    MOST_VIEWS,
    Reviewed,
    SavedView,
    SavedViews,
    TooManyViews,
)
from api.results.score_pages import BadQuery
from api.results.thumbnails import Wanted
from api.routes.conditions import Conditions, search, searched
from api.routes.jobs import OwnedJob
from api.routes.marks import MOST_AT_ONCE, apply_changes
from api.routes.results import read_text, send_thumbnail
from api.storage.tables import FINAL
from difficulty_service.base.errors import DatasetError, ImageError
from difficulty_service.bodies.marks import Decision, ListOrder, MarkChange
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.pages.charts import Bar, histogram
from difficulty_service.pages.html_page import chance
from difficulty_service.scores.samples import ScoredSamples

router = APIRouter(prefix="/jobs/{job_id}/images", include_in_schema=False)

USUAL_ORDER = "Closest to the words, else doubtful first"
PAGE = 60
TYPICAL = 6
AHEAD = 5  # number of images whose pictures are fetched before they are looked at
MOST_RESTORED = 6000  # number of images up to which a list is shown again as it was left
MOST_SEARCHED_AT_ONCE = 200_000
"""Among more images, a search takes longer than the page may; a script asks for it afterwards."""

Row = Annotated[int, Path(ge=0, le=2**53)]
ViewName = Annotated[str, Form(max_length=LONGEST_NAME)]
Label = Annotated[str, Form(max_length=4000)]


@router.get("")
async def show_images(
    job: SeenJob, query: Conditions, through: Annotated[int | None, Query(ge=0, le=2**53)] = None
) -> Response:
    """The images that fulfil the conditions, a page at a time; without any, doubtful labels.

    As many pages at once as lead `through` the image of a row, for whoever comes back from it.
    """
    return await searched(job.caller, query, _list_page, job, query, through)


def _list_page(job: ScoredJob, query: ImageQuery, through: int | None) -> Response:
    request = job.caller.request
    if not request.query_params and job.samples.is_doubtful.any():
        query = replace(query, margin=conditions.DOUBTFUL)
    problem, number, restored = "", PAGE, None
    try:
        beside = job.beside(query)
        if through is not None and through < len(job.samples):
            restored = image_pages.neighbours(job.samples, query, through, 1, beside).place
            number = PAGE * (restored // PAGE + 1) if restored < MOST_RESTORED else PAGE
        page = image_pages.find_images(job.samples, query, number, beside)
    except BadQuery as error:
        problem, page = (
            "; ".join(filter(None, (str(error), error.remedy))),
            ImagePage([], np.empty(0, np.int64), 0, ""),
        )
    values = _list_values(job, query, page) | {"problem": problem, "restored": restored}
    part = "cards" if query.after else "results"
    return job.page(part if is_fragment(request) else "images", IMAGES, values)


@router.post("/views")
def save_view(job: MarkedJob, query: Conditions, name: ViewName) -> Response:
    """Keeps the conditions of a list under a name."""
    if not name.strip():
        raise invalid("a view needs a name", "enter one", "name")
    here = query_of(query.conditions)
    if len(here) > LONGEST_QUERY:
        raise invalid(
            f"the conditions of this view have more than {LONGEST_QUERY:,} characters",
            "leave some out, or keep the address of the page",
        )
    views, of = _views(job)
    try:
        views.save(of, SavedView(name.strip(), here))
    except TooManyViews:
        raise conflict(
            f"there are {MOST_VIEWS} views already", "remove one, or keep the address of the page"
        ) from None
    return redirect(f"{job.address}/images{here}")


@router.post("/views/delete")
def delete_view(job: MarkedJob, query: Conditions, name: ViewName) -> Response:
    """Forgets the list of a name."""
    views, of = _views(job)
    views.delete(of, name)
    return redirect(f"{job.address}/images{query_of(query.conditions)}")


def _views(job: ScoredJob) -> tuple[SavedViews, Reviewed]:
    """Where views are kept, and whose."""
    return job.services.saved_views, Reviewed(job.job.id, job.caller.key.owner)


@router.get("/{row}")
async def show_image(job: SeenJob, row: Row, query: Conditions) -> Response:
    """One image with its scores, the most similar images, and typical ones of two classes."""
    return await searched(job.caller, query, _one_image, job, row, query)


def _one_image(job: ScoredJob, row: int, query: ImageQuery) -> Response:
    if is_fragment(job.caller.request):
        existing_card(job, row)
        values = _list_values(job, query, ImagePage([row], None, 1, "")) | {"problem": ""}
        return job.page("cards", IMAGES, values)
    return _image_page(job, row, query, is_searched=len(job.samples) <= MOST_SEARCHED_AT_ONCE)


@router.get("/{row}/similar")
async def show_similar(job: SeenJob, row: Row, query: Conditions) -> Response:
    """The most similar images for the page of one image; without a script, the whole page."""
    if is_fragment(job.caller.request):
        return await search(job.caller, _similar_part, job, row)
    return await search(job.caller, _image_page, job, row, query, is_searched=True)


def _similar_part(job: ScoredJob, row: int) -> Response:
    values = {"card": existing_card(job, row)} | _similar_values(job, row)
    return job.page("similar", IMAGES, values)


def _image_page(job: ScoredJob, row: int, query: ImageQuery, *, is_searched: bool) -> Response:
    card = existing_card(job, row)
    try:
        around = image_pages.neighbours(job.samples, query, row, AHEAD, job.beside(query))
    except BadQuery:
        around = image_pages.Neighbours(0, None, [])
    samples = job.samples
    strips = [
        (samples.name_of(label), job.cards(typical_rows(samples, label, TYPICAL, row)))
        for label in dict.fromkeys((card.label, card.nearest))
        if label >= 0 and samples.has_labels
    ]
    values = {
        "card": card,
        "is_one_image": True,
        "marks": job.marks_of([row]),
        "said": job.said_of(row),
        "may_decide": job.caller.key.manages(job.job.owner),
        "agnostic": None if samples.agnostic is None else float(samples.agnostic[row]),
        "copy_of": samples.copy_of[row].as_py(),
        "column_facts": [(column.name, column.at([row])[0]) for column in job.columns.values()],
        "is_searched": is_searched,
        "strips": strips,
        "around": around,
        "order": query.order,
        "conditions": query.conditions,
        "further": None if around.following else further_after(job, query),
        **job.classes(),
    }
    values |= _similar_values(job, row) if is_searched else {}
    return job.page("image", IMAGES, values)


@router.post("/{row}")
def mark_image(
    job: MarkedJob, row: Row, query: Conditions, mark: Verb, label: Label = ""
) -> Response:
    """Marks one image by a form, and shows it again."""
    change = _change(job, row, mark, label, query.order)
    apply_changes(job.services, job.caller.key.owner, job.job, [change])
    return redirect(f"{job.address}/images/{row}{query_of(query.conditions)}")


@router.post("/{row}/decide")
def decide_finally(
    job: MarkedJob, _owned: OwnedJob, row: Row, query: Conditions, mark: Verb, label: Label = ""
) -> Response:
    """Decides about one image, whatever its reviewers decided, and shows it again."""
    apply_changes(job.services, FINAL, job.job, [_change(job, row, mark, label, "")])
    return redirect(f"{job.address}/images/{row}{query_of(query.conditions)}")


def _change(
    job: ScoredJob, row: int, mark: Choice, label: str, order: ListOrder | Literal[""]
) -> MarkChange:
    """What a form says of one image."""
    card = existing_card(job, row)
    decision = None
    if isinstance(mark, Mark):
        new_label = (label or card.nearest_name) if mark.kind.needs_class else None
        if mark.kind.needs_class and not new_label:
            raise invalid("no other class fits this image", "choose a class", "label")
        if new_label == card.name:
            mark, new_label = Mark.KEEP, None
        decision = Decision(mark=mark, label=new_label)
    return MarkChange(row=row, decision=decision, order=order)


def _list_values(job: ScoredJob, query: ImageQuery, page: ImagePage) -> dict[str, Any]:
    samples, columns = job.samples, job.columns
    views, of = _views(job)
    like = conditions.row_of(query.like, samples) if query.like else None
    knows_words = _knows_words(job)
    return {
        "cards": job.cards(page.rows),
        "marks": job.marks_of(page.rows),
        "num_matching": page.num_matching,
        "num_samples": len(samples),
        "bars": [] if query.after else _bars(job, page),
        "query": replace(query, after=""),
        "conditions": query.conditions,
        "all_conditions": replace(query, margin="").conditions,
        "more": {**query.conditions, "after": page.next} if page.next else None,
        "further": None if page.next else further_after(job, query),
        "sorts": _sorts(job, query),
        "sort": "" if knows_words and query.sort == query.usual_sort else query.sort,
        "knows_words": knows_words,
        "column_sorts": column_orders(columns),
        "column_filters": column_filters(columns, query),
        "in_words": query.in_words(job.scores.provenance.noun),
        "captions": captions(columns, query, page.rows),
        "like": None if like is None else job.cards([like])[0],
        "saved_views": views.all(of),
        "mark_filters": {
            **conditions.marks_of(samples),
            **(conditions.REVIEWED if job.shows_reviewers else {}),
        },
        "verified_filters": {} if samples.verified is None else conditions.VERIFIED,
        **job.classes(),
        "most_at_once": MOST_AT_ONCE,
        "suspicions": _suspicions(query),
        "has_doubtful": bool(samples.is_doubtful.any()),
        "number_name": _name_of_number(samples, query),
        "by_doubt": is_by_doubt(samples, query),
    }


def further_after(job: ScoredJob, query: ImageQuery) -> Further | None:
    """The labels that a page offers to check after a list; None for who may mark none."""
    if "write" not in job.caller.key.scopes:
        return None
    marked = marked_rows(job.services.engine, job.caller.key.owner, job.job.id)
    return find_further(job.samples, query, marked.tolist())


def _knows_words(job: ScoredJob) -> bool:
    return job.services.word_search.offers(job.job)


def _sorts(job: ScoredJob, query: ImageQuery) -> dict[str, str]:
    """The orders that a list offers; the first is the one of an address that names none."""
    usual = {"": USUAL_ORDER} if _knows_words(job) else {}
    alike = {conditions.ALIKE: "Most alike first"} if query.like else {}
    orders = image_pages.orders_of(job.samples)
    if job.samples.by_suspicion and query.sort != "suspicion":
        orders.pop("suspicion", None)  # the same as the doubtful labels first
    return usual | alike | orders


def is_by_doubt(samples: ScoredSamples, query: ImageQuery) -> bool:
    """Whether the number of each card is what speaks against its label."""
    orders = ("doubtful", "suspicion") if samples.by_suspicion else ("doubtful",)
    return samples.compares_classes and query.sort in orders


def _name_of_number(samples: ScoredSamples, query: ImageQuery) -> str:
    """What the number of each card is: what the images are ordered by, else the difficulty."""
    if is_by_doubt(samples, query):
        return "suspicion" if samples.by_suspicion else "margin"
    return samples.measure_name


def _suspicions(query: ImageQuery) -> Mapping[str, str]:
    """The chances of a wrong label that a list is filtered by, with that of its address."""
    known = {"0": "above 50 %", "2.944": "above 95 %", "4.595": "above 99 %"}
    try:
        given = float(query.margin) if query.margin else None
    except ValueError:
        given = None  # which the page explains
    return known if given is None else {query.margin: f"above {chance(given)}"} | known


def _bars(job: ScoredJob, page: ImagePage) -> list[Bar]:
    columns = job.scores
    if columns.scale is None or not page.num_matching:
        return []
    if page.matching is None:
        return list(columns.overview.bars)
    return list(histogram(columns.samples.rmd[page.matching], columns.scale, BINS))


def _similar_values(job: ScoredJob, row: int) -> dict[str, Any]:
    """The most similar images, and which are copies, in words; None where that is not known."""
    awaits_features = job.awaits_features
    rows = job.services.similar_images.get(job.job, row)
    cards = None if rows is None else [(card, job.copy_sign(card, row)) for card in job.cards(rows)]
    return {"similar": cards, "awaits_features": awaits_features}


LETTERS = 22  # largest number of letters of a line

TEXT_LETTERS, TEXT_LINES = 34, 14


def placeholder(status: int, reason: str) -> Response:
    """A picture with the reason why the image cannot be shown."""
    lines = _lines(reason[:140], LETTERS)
    text = "".join(
        f'<text x="80" y="{80 + 15 * (number - (len(lines) - 1) / 2)}">{escape(line)}</text>'
        for number, line in enumerate(lines[:8])
    )
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 160 160" width="160" height="160" '
        'font-family="sans-serif" font-size="12" text-anchor="middle" fill="#777b74">'
        f"{text}</svg>"
    )
    return Response(svg, status, {"Cache-Control": "no-store"}, "image/svg+xml")


def text_picture(content: str) -> Response:
    """A picture with the beginning of a text."""
    lines = _lines(content[: 2 * TEXT_LETTERS * TEXT_LINES], TEXT_LETTERS)
    if len(lines) > TEXT_LINES:
        lines[TEXT_LINES - 1 :] = [f"{lines[TEXT_LINES - 1]} …"]
    text = "".join(
        f'<text x="10" y="{16 + 14 * number}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    # Grey is legible on the light and on the dark ground of the pages.
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 224 224" width="224" height="224" '
        f'font-family="sans-serif" font-size="11" fill="#777b74">{text}</svg>'
    )
    return Response(svg, 200, {"Cache-Control": "private, max-age=600"}, "image/svg+xml")


def _lines(text: str, letters: int) -> list[str]:
    """Words in lines of so many letters, without what XML cannot have."""
    lines = [""]
    for word in "".join(sign if sign.isprintable() else " " for sign in text).split():
        if len(lines[-1]) + len(word) > letters and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word[:letters]}".strip()
    return lines


SMALLEST = 16
WHOLE = 4096
UNREADABLE = "the dataset can no longer be read"


@router.get("/{row}/text")
async def show_text(job: SeenJob, row: Row) -> Response:
    """The beginning of a sample that is a text, as part of the page of the sample."""
    wanted = await run_in_threadpool(_wanted, job, row, SMALLEST)
    try:
        text = await read_text(job.caller, wanted) if job.job.is_text else None
    except (DatasetError, ImageError):
        text = None
    if text is None:
        raise not_found("sample", str(row))
    return await run_in_threadpool(render, job.caller.request, "whole_text", {"text": text})


@router.get("/{row}/picture")
async def show_picture(
    job: SeenJob, row: Row, size: Annotated[int, Query(ge=SMALLEST, le=512)] = 224
) -> Response:
    """A small version of an image; the reason as a picture where it cannot be shown."""
    return await _picture(job, row, size)


@router.get("/{row}/whole")
async def show_whole(job: SeenJob, row: Row) -> Response:
    """An image in its own size, up to a limit, for looking at it from near."""
    return await _picture(job, row, WHOLE)


async def _picture(job: ScoredJob, row: int, size: int) -> Response:
    wanted = await run_in_threadpool(_wanted, job, row, size)
    try:
        if job.job.is_text:
            text = await read_text(job.caller, wanted)
            answer = None if text is None else text_picture(text)
        else:
            answer = await send_thumbnail(job.caller, wanted)
    except ImageError as error:
        names = public_names(job.services.settings)
        return placeholder(422, hide_paths(error.problem, names))
    except (Problem, DatasetError) as error:
        if isinstance(error, Problem) and error.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise
        return placeholder(410, UNREADABLE)
    if answer is None:
        return placeholder(404, f"the {job.job.kind} is no longer in the dataset")
    return answer


def _wanted(job: ScoredJob, row: int, size: int) -> Wanted:
    return Wanted(job.job, existing_card(job, row).sample_id, size, row)
