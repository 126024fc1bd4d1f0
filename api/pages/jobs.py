"""Pages of jobs: the list, the form for a new one, progress, cancelling and deleting."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter, Depends, Form, Query, Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.http.api_keys import Principal, ReadKey, WriteKey
from api.http.problems import Problem, reason_of
from api.jobs.store import IdempotencyConflict, SubmitLimits, TooManyJobs, list_jobs, submit
from api.jobs.submission import validate_submission
from api.pages.option_fields import OptionField, entered_values, option_fields
from api.pages.rendering import is_fragment, redirect, render
from api.routes import jobs as rest
from api.routes.system import get_backbones
from api.schemas.jobs import JobCreate
from api.settings import Settings
from api.storage.tables import FINAL_STATES
from api.storage.worker_registry import live_workers
from difficulty_service.options import EncodingOptions, ReadingOptions, ScoringOptions

router = APIRouter(include_in_schema=False)

PAGE = 25
UNFINISHED = ("queued", "running")


OPTIONS = [
    name
    for options in (ReadingOptions, ScoringOptions, EncodingOptions)
    for name in options.model_fields
]
"""Options of a job that the form asks for, in its order."""


@dataclass(frozen=True)
class NewJob:
    """What was entered in the form, as the browser sends it.

    Attributes:
        source: Whether the dataset is below a `root` of the server or an `upload`.
        root: Name of a root.
        path: Path below the root.
        upload: Id of an upload.
        backbone: Name of a backbone; empty for the usual one.
        token: Token of the page, by which a form that is sent twice is one job.
        options: Texts of each option; none where it was left alone.
    """

    source: str = "root"
    root: str = ""
    path: str = ""
    upload: str = ""
    backbone: str = ""
    token: str = ""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def fields(self) -> list[OptionField]:
        """The fields of the options."""
        return option_fields(JobCreate, OPTIONS, self.options)

    @property
    def has_options(self) -> bool:
        """Whether an option that the form hides at first was changed."""
        return any(each.shown != each.usual for each in self.fields if each.name != "scorers")

    def as_body(self) -> dict[str, Any]:
        """Body of the request that submits this job.

        Raises:
            ValueError: A number cannot be read.
        """
        dataset = (
            {"upload": self.upload}
            if self.source == "upload"
            else {"root": self.root, "path": self.path.strip().strip("/")}
        )
        body: dict[str, Any] = {"dataset": dataset, **entered_values(self.fields)}
        return body | {"backbone": self.backbone} if self.backbone else body


async def entered_job(request: Request) -> NewJob:
    """What the browser sent; files and fields that the form does not have are ignored."""
    async with request.form() as sent:
        texts = {name: tuple(map(str, sent.getlist(name))) for name in sent}
    own = {
        each.name: texts[each.name][-1]
        for each in fields(NewJob)
        if each.name in texts and each.name != "options"
    }
    return NewJob(**own, options={name: texts[name] for name in OPTIONS if name in texts})


@router.get("/")
def show_jobs(
    request: Request,
    key: ReadKey,
    before: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """The jobs that the caller may see, newest first, and the form for a new one."""
    values = _list(request, key, before)
    if is_fragment(request):
        return render(request, "job_list", values)
    return render(request, "jobs", values | _form(request, key, NewJob(), {}))


@router.post("/")
def create(
    request: Request, key: WriteKey, form: Annotated[NewJob, Depends(entered_job)]
) -> Response:
    """Submits the job of the form; shows the form again where a field is wrong."""
    settings: Settings = request.app.state.settings
    engine = request.app.state.engine
    try:
        body = JobCreate(**form.as_body())
        validated = validate_submission(body, settings, engine, key.owner)
        limits = SubmitLimits(settings.max_queued_jobs, settings.max_attempts)
        job, _ = submit(engine, key.owner, validated, form.token[:100] or None, limits)
    except (Problem, ValueError, TooManyJobs, IdempotencyConflict) as error:
        values = _list(request, key, None) | _form(request, key, form, _explained(error))
        return render(request, "jobs", values, 422)
    return redirect(f"/jobs/{job.id}")


@router.post("/jobs/{job_id}/score-again")
async def score_again(
    job_id: str,
    request: Request,
    key: WriteKey,
    token: Annotated[str, Form(min_length=1, max_length=100)],
) -> Response:
    """Submits a finished job again with the caller's marks applied to its dataset."""
    earlier = await run_in_threadpool(rest.find_job, request, key, job_id)
    body = JobCreate(**{**earlier.request, "marks": earlier.id})
    job, _ = await rest.submit_job(body, request, key, token)
    return redirect(f"/jobs/{job.id}")


@router.post("/jobs/{job_id}/remove")
def remove(job_id: str, request: Request, key: WriteKey) -> Response:
    """Cancels an unfinished job, or deletes a finished one with its files and marks."""
    job = rest.find_job(request, key, job_id)
    rest.remove(job_id, request, key)
    return redirect("/" if job.state in FINAL_STATES else f"/jobs/{job.id}")


def _list(request: Request, key: Principal, before: str | None) -> dict[str, Any]:
    cursor = None if before is None else rest.read_cursor(before)
    engine, settings = request.app.state.engine, request.app.state.settings
    jobs = list_jobs(engine, key.visible_owner, limit=PAGE + 1, before=cursor)
    page = jobs[:PAGE]
    has_unfinished = any(job.state in UNFINISHED for job in page)
    return {
        "jobs": page,
        "seconds_left": {job.id: rest.public(job).progress.seconds_left for job in page},
        "now": time.time(),
        "address": f"/?before={before}" if before else "/",
        "older": rest.write_cursor(page[-1]) if len(jobs) > PAGE else None,
        "is_live": has_unfinished,
        "no_worker": has_unfinished and not live_workers(engine, settings.lease),
    }


def _form(
    request: Request, key: Principal, form: NewJob, problem: Mapping[str, str]
) -> dict[str, Any]:
    settings: Settings = request.app.state.settings
    return {
        "form": replace(form, token=uuid4().hex),
        "problem": problem,
        "roots": list(settings.roots),
        "backbones": get_backbones(request, key).backbones,
        "max_upload_bytes": settings.max_upload_bytes,
        "takes_jobs": settings.takes_jobs,
    }


def _explained(error: Exception) -> dict[str, str]:
    """What is wrong with the form, what to do about it and the field."""
    if isinstance(error, Problem):
        return {"text": error.detail, "remedy": error.remedy, "field": error.field or ""}
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"][:1]))
        text = f"{name}: {reason_of(first)}" if name else reason_of(first)
        return {"text": text, "remedy": "", "field": name}
    if isinstance(error, IdempotencyConflict):
        # Its token was for the first sending; the form that is shown now has a new one.
        text = "this form was sent before with other entries, as a job that is listed here"
        return {"text": text, "remedy": "send it again for a second job", "field": ""}
    if isinstance(error, TooManyJobs):
        return {"text": str(error), "remedy": "wait until some have started", "field": ""}
    # An entry that is no number; its text begins with the field.
    return {"text": str(error), "remedy": "", "field": str(error).partition(":")[0]}
