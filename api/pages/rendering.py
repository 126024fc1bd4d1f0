"""Templates of the pages and what all of them show."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import ChoiceLoader, Environment, PackageLoader, PrefixLoader
from starlette.responses import Response

from api.http.principals import Principal
from api.http.problems import Problem
from api.jobs.store import Job
from api.pages.assets import page_assets
from api.services import services_of
from difficulty_service.bodies.comparison_kinds import Comparison
from difficulty_service.bodies.comparisons import COMPARISONS
from difficulty_service.bodies.jobs import WeightsDownload
from difficulty_service.pages.html_page import environment_of

UNAUTHORISED = 401
SEE_OTHER = 303
UNITS = (("day", 86400), ("hour", 3600), ("minute", 60))
SIZES = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
MOST_OF_MB = 10**9 - 1


def render(
    request: Request, name: str, values: Mapping[str, Any] | None = None, status: int = 200
) -> HTMLResponse:
    """Fills a template; every value is escaped."""
    principal: Principal | None = getattr(request.state, "principal", None)
    html = (
        _environment()
        .get_template(f"{name}.html.j2")
        .render(
            signed_in=bool(principal and principal.owner),
            may_write=bool(principal and "write" in principal.scopes),
            caller=principal,
            path=request.url.path,
            explores=services_of(request).rounds is not None,
            static=f"/static/{page_assets().version}",
            **(values or {}),
        )
    )
    # A page shows what is true now; going back asks for it again.
    headers = {"Cache-Control": "private, no-cache", "Vary": "HX-Request, Cookie"}
    return HTMLResponse(html, status, headers)


def words_of(question: Comparison) -> str:
    """The template with the words of what was found, and of each of its rows."""
    return (
        f"{question.kind}/comparison.html.j2" if question.templates else "plain_comparison.html.j2"
    )


def is_fragment(request: Request) -> bool:
    """Whether a script asks for a part of the page only."""
    return request.headers.get("hx-request") == "true"


def redirect(path: str) -> RedirectResponse:
    """Sends the browser to another page after a form."""
    return RedirectResponse(path, SEE_OTHER)


def problem_page(problem: Problem, request: Request) -> Response:
    """The page of a problem; without a valid key, the sign-in."""
    if problem.status == UNAUTHORISED:
        if is_fragment(request):
            return Response(status_code=UNAUTHORISED, headers={"HX-Redirect": "/sign-in"})
        path, query = request.url.path, request.url.query
        wanted = quote(f"{path}?{query}" if query else path, safe="")
        is_named = request.method == "GET" and wanted != quote("/", safe="")
        return redirect(f"/sign-in?next={wanted}" if is_named else "/sign-in")
    name = "problem_text" if is_fragment(request) else "problem"
    page = render(request, name, {"problem": problem}, problem.status)
    page.headers.update(problem.headers)
    return page


def job_name(job: Job) -> str:
    """What people call a job: its own name, else its dataset in a few words."""
    dataset = job.wanted.dataset
    name = job.wanted.name or "/".join(part for part in (dataset.root, dataset.path) if part)
    if not name:
        name = f"upload {dataset.upload[-6:]}"
    return f"{name} with marks" if job.wanted.marks else name


def stage_of(job: Job) -> str:
    """What a running job does, in words."""
    if job.cancel_requested:
        return "cancelling"
    if job.download is not None:
        return _download_in_words(job.download)
    if job.total is None:
        return "listing the dataset and loading the network"
    if job.done < job.total:
        return f"looking at the {job.kind}s"
    return "fitting and scoring"


def _download_in_words(download: WeightsDownload) -> str:
    if download.total is None:
        if not download.done:
            return "waiting for another download of weights"
        return f"downloading weights, {size_of(download.done)}"
    # In one unit, and not in GB, of which there are few: "120 of 400 MB".
    unit, scale = _unit_of(min(download.total, MOST_OF_MB))
    done, total = (f"{round(number / scale):,}" for number in (download.done, download.total))
    return f"downloading weights, {done} of {total} {unit}"


def size_of(number: int) -> str:
    """A number of bytes in the largest unit that fits."""
    unit, scale = _unit_of(number)
    return f"{number / scale:,.1f} {unit}" if scale > 1 else f"{number:,} {unit}"


def _unit_of(number: int) -> tuple[str, int]:
    return next(((unit, scale) for unit, scale in SIZES if number >= scale), ("bytes", 1))


def compile_templates() -> None:
    """Compiles every template, which would otherwise delay the first request of each page."""
    environment = _environment()
    for name in environment.list_templates(extensions=["j2"]):
        environment.get_template(name)


@cache
def _environment() -> Environment:
    environment = environment_of("api.pages")
    words = {
        each.kind: PackageLoader(each.templates) for each in COMPARISONS.values() if each.templates
    }
    assert environment.loader is not None  # noqa: S101 - it loads the packages' templates
    environment.loader = ChoiceLoader([environment.loader, PrefixLoader(words)])
    environment.filters |= {
        "plural": lambda number, noun: f"{number:,} {noun}{'' if number == 1 else 's'}",
        "moment": lambda seconds: f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC",
        "duration": _duration,
        "query": query_of,
        "job_name": job_name,
        "stage": stage_of,
        "size": size_of,
    }
    return environment


def _duration(seconds: float) -> str:
    """A time in the largest unit that fits."""
    for unit, length in UNITS:
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {unit}{'' if number == 1 else 's'}"
    return f"{math.ceil(max(seconds, 0))} s"


def query_of(parameters: Mapping[str, object]) -> str:
    """The query of an address with its question mark; a list is a parameter for each value."""
    return f"?{urlencode(parameters, doseq=True)}" if parameters else ""
