"""Pages of jobs: the list, the form for a new one, progress, cancelling and deleting."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Depends, Form, Query, Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.http.problems import Problem, conflict, reason_of
from api.jobs.marks import numbers_of_marks
from api.jobs.queue import live_workers
from api.jobs.store import (
    IdempotencyConflict,
    Job,
    TooManyJobs,
    list_jobs,
    rounds_of,
    submit,
)
from api.jobs.submission import submit_limits, validate_submission
from api.pages.new_job import OPTIONS, NewJob, entered_job
from api.pages.rendering import is_fragment, redirect, render
from api.pages.scored import MarkedJob
from api.routes import jobs as rest
from api.routes.callers import Caller, Reader, Writer
from api.routes.system import estimate, get_backbones, get_folders
from api.uploads.quota import find_usage
from difficulty_service.bodies.jobs import FINAL_STATES, JobCreate
from difficulty_service.bodies.service import BackbonePublic, FolderPage

router = APIRouter(include_in_schema=False)

PAGE = 25
Token = Annotated[str, Form(min_length=1, max_length=100)]
UNFINISHED = ("queued", "running")
TO_DOWNLOAD = "to download"  # `weights` of a network that is not on this machine yet
LONGEST_VALUE = 40  # letters of an option that the list of jobs shows


@router.get("/")
def show_jobs(
    caller: Reader, before: Annotated[str | None, Query(max_length=100)] = None
) -> Response:
    """The jobs that the caller may see, newest first, and the form for a new one."""
    values = _list(caller, before)
    if caller.services.rounds is not None and len(values["jobs"]) == 1 and before is None:
        return redirect(f"/jobs/{values['jobs'][0].id}")  # a dataset, not a list of one round
    if is_fragment(caller.request):
        return render(caller.request, "job_list", values)
    return render(caller.request, "jobs", values | _form(caller, NewJob(), {}))


@router.post("/")
def create(caller: Writer, form: Annotated[NewJob, Depends(entered_job)]) -> Response:
    """Submits the job of the form; shows the form again where a field is wrong."""
    services = caller.services
    engine, settings = services.engine, services.settings
    try:
        body = JobCreate(**form.as_body())
        validated = validate_submission(body, settings, engine, caller.key)
        limits = submit_limits(engine, settings, caller.key.owner)
        job, _ = submit(engine, caller.key.owner, validated, form.token[:100] or None, limits)
    except (Problem, ValueError, TooManyJobs, IdempotencyConflict) as error:
        values = _list(caller, None) | _form(caller, form, _explained(error))
        return render(caller.request, "jobs", values, 422)
    return redirect(f"/jobs/{job.id}")


@router.post("/estimate")
async def show_estimate(caller: Writer, form: Annotated[NewJob, Depends(entered_job)]) -> Response:
    """How long the job of the form would take, or what is wrong with the form."""
    values: dict[str, Any] = {"form": form}
    try:
        values["estimate"] = await estimate(JobCreate(**form.as_body()), caller)
    except (Problem, ValueError) as error:
        values["problem"] = _explained(error)
    return render(caller.request, "estimate", values)


@router.get("/folders")
def show_folders(request: Request, folder: Annotated[FolderPage, Depends(get_folders)]) -> Response:
    """One folder of a root, for the form's dialog."""
    return render(request, "folders", {"folder": folder})


@router.post("/jobs/{job_id}/score-again")
async def score_again(
    earlier: rest.FoundJob,
    caller: Writer,
    token: Token,
    of: Annotated[Literal["own", "all"], Form()] = "own",
) -> Response:
    """Submits a finished job again with marks applied to its dataset: the caller's, or all merged.

    A score file that is explored is scored again at once.
    """
    services = caller.services
    rounds = services.rounds
    if rounds is not None:
        following = await run_in_threadpool(
            rounds.score_again, services.engine, services.artifacts, earlier
        )
        return redirect(f"/jobs/{following}")
    body = JobCreate(**{**earlier.request, "marks": earlier.id, "marks_of": of})
    job, _ = await rest.submit_job(body, caller, token)
    return redirect(f"/jobs/{job.id}")


@router.post("/jobs/{job_id}/go-to")
def go_to(job: MarkedJob) -> Response:
    """Makes a round the one that the explored score file holds."""
    services = job.services
    if services.rounds is None:
        raise conflict("every round is a job of its own here", "go on from the job that you want")
    services.rounds.go_to(services.engine, services.artifacts, job.job)
    return redirect(job.address)


@router.post("/jobs/{job_id}/try-again")
async def try_again(earlier: rest.FoundJob, caller: Writer, token: Token) -> Response:
    """Submits a job that failed or was cancelled again, with the same settings."""
    if earlier.state not in ("failed", "cancelled"):
        raise conflict(f"job {earlier.id} is {earlier.state}", "try failed jobs again", "state")
    job, _ = await rest.submit_job(JobCreate(**earlier.request), caller, token)
    return redirect(f"/jobs/{job.id}")


@router.post("/jobs/{job_id}/remove")
def remove(job: rest.OwnedJob, caller: Writer) -> Response:
    """Cancels an unfinished job, or deletes a finished one with its files and marks."""
    rest.remove(job, caller)
    return redirect("/" if job.state in FINAL_STATES else f"/jobs/{job.id}")


def _list(caller: Caller, before: str | None) -> dict[str, Any]:
    cursor = None if before is None else rest.last_of_page(before)
    services = caller.services
    engine, settings = services.engine, services.settings
    jobs = list_jobs(engine, None, viewer=caller.key, limit=PAGE + 1, before=cursor)
    page = jobs[:PAGE]
    has_unfinished = any(job.state in UNFINISHED for job in page)
    return {
        "jobs": page,
        "changed": {job.id: changed_options(job) for job in page},
        "rounds": rounds_of(engine, page),
        "marks": numbers_of_marks(engine, caller.key.owner, [job.id for job in page]),
        "token": uuid4().hex,
        "takes_jobs": settings.takes_jobs,
        "seconds_left": {job.id: rest.public(job).progress.seconds_left for job in page},
        "now": time.time(),
        "address": f"/?before={before}" if before else "/",
        "older": rest.cursor_after(page[-1]) if len(jobs) > PAGE else None,
        "is_live": has_unfinished,
        "no_worker": has_unfinished and not live_workers(engine, settings.lease),
    }


def changed_options(job: Job) -> str:
    """The options of a job that are not the usual ones, which tell it from others, in words."""
    usual = JobCreate.model_fields
    values = {name: getattr(job.wanted, name) for name in OPTIONS}
    return ", ".join(
        name.replace("_", " ") if value is True else f"{name.replace('_', ' ')} {_in_words(value)}"
        for name, value in values.items()
        if value != usual[name].default
    )


def _in_words(value: object) -> str:
    text = "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _form(caller: Caller, form: NewJob, problem: Mapping[str, str]) -> dict[str, Any]:
    services = caller.services
    engine, settings = services.engine, services.settings
    backbones = get_backbones(caller.request, caller.key).backbones
    return {
        "form": replace(form, token=uuid4().hex),
        "problem": problem,
        "roots": list(caller.key.within(settings).roots),
        "backbones": {
            title: [each for each in backbones if (each.weights == TO_DOWNLOAD) is is_far]
            for title, is_far in (("On this machine", False), ("More, downloaded first", True))
        },
        "recommended": _names_of_defaults(backbones),
        "max_upload_bytes": settings.max_upload_bytes,
        "takes_jobs": settings.takes_jobs,
        "usage": find_usage(engine, settings, caller.key.owner) if settings.takes_jobs else None,
    }


def _names_of_defaults(backbones: Iterable[BackbonePublic]) -> str:
    """The networks that a job without one has, by the first words of their descriptions."""
    return ", ".join(
        f"{each.description.partition(' by ')[0].partition(',')[0]}"
        f"{' for texts' if each.modality == 'text' else ''}"
        for each in backbones
        if each.default
    )


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
