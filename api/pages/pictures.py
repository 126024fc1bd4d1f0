"""What a sample looks like: the picture of an image, or the words of a text.

Pictures in place of images that cannot be shown, and of texts.
"""

from http import HTTPStatus
from typing import Annotated
from xml.sax.saxutils import escape

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.http.api_keys import Principal, ReadKey
from api.http.problems import Problem, not_found
from api.http.public_text import hide_paths, public_names
from api.pages.images import Row
from api.pages.rendering import render
from api.pages.scored import existing_card, scored_job
from api.results.thumbnails import Wanted
from api.routes.thumbnails import read_text, send_thumbnail
from difficulty_service.base.errors import DatasetError, ImageError

LETTERS = 22
"""Largest number of letters of a line."""

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
    headers = {"Cache-Control": "no-store"}
    return Response(svg, status, headers, "image/svg+xml")


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
    headers = {"Cache-Control": "private, max-age=600"}
    return Response(svg, 200, headers, "image/svg+xml")


def _lines(text: str, letters: int) -> list[str]:
    """Words in lines of so many letters, without what XML cannot have."""
    lines = [""]
    for word in "".join(sign if sign.isprintable() else " " for sign in text).split():
        if len(lines[-1]) + len(word) > letters and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word[:letters]}".strip()
    return lines


router = APIRouter(prefix="/jobs/{job_id}/images/{row}", include_in_schema=False)

SMALLEST = 16
UNREADABLE = "the dataset can no longer be read"


@router.get("/text")
async def show_text(job_id: str, row: Row, request: Request, key: ReadKey) -> Response:
    """The beginning of a sample that is a text, as part of the page of the sample."""
    wanted = await run_in_threadpool(_wanted, job_id, row, request, key, SMALLEST)
    try:
        text = await read_text(request, key, wanted) if wanted.job.is_text else None
    except (DatasetError, ImageError):
        text = None
    if text is None:
        raise not_found("sample", str(row))
    return await run_in_threadpool(render, request, "whole_text", {"text": text})


@router.get("/picture")
async def show_picture(
    job_id: str,
    row: Row,
    request: Request,
    key: ReadKey,
    size: Annotated[int, Query(ge=SMALLEST, le=512)] = 224,
) -> Response:
    """A small version of an image; the reason as a picture where it cannot be shown."""
    wanted = await run_in_threadpool(_wanted, job_id, row, request, key, size)
    try:
        if wanted.job.is_text:
            text = await read_text(request, key, wanted)
            answer = None if text is None else text_picture(text)
        else:
            answer = await send_thumbnail(request, key, wanted)
    except ImageError as error:
        return placeholder(422, hide_paths(error.problem, public_names(request.app.state.settings)))
    except Problem as problem:
        if problem.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise
        return placeholder(410, UNREADABLE)
    except DatasetError:
        return placeholder(410, UNREADABLE)
    if answer is None:
        return placeholder(404, f"the {wanted.job.kind} is no longer in the dataset")
    return answer


def _wanted(job_id: str, row: int, request: Request, key: Principal, size: int) -> Wanted:
    job = scored_job(request, key, job_id)
    return Wanted(job.job, existing_card(job, row).sample_id, size, row)
