"""Pages of jobs: the list, the form for a new one, progress, cancelling and deleting."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Depends, Form, Query, Request
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.http.api_keys import ReadKey, WriteKey
from api.http.principals import Principal
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
from api.pages.rendering import is_fragment, redirect, render
from api.routes import jobs as rest
from api.routes.results import succeeded_job
from api.routes.system import estimate, get_backbones, get_folders
from api.services import services_of
from api.uploads.quota import find_usage
from difficulty_service.bodies.jobs import FINAL_STATES, JobCreate
from difficulty_service.bodies.service import BackbonePublic, FolderPage
from difficulty_service.settings.options import (
    EncodingOptions,
    ReadingOptions,
    ScoringOptions,
    schemas_of,
    sentence_of,
)

Kind = Literal["check", "checks", "choice", "number", "text"]


@dataclass(frozen=True)
class OptionField:
    """A field of a form."""

    name: str
    kind: Kind  # how it is entered
    sentence: str  # what it does
    entered: tuple[str, ...]  # as the browser sends it; none where it was left alone
    choices: Mapping[str, str] = field(default_factory=dict)  # with a sentence, or ""
    usual: tuple[str, ...] = ()  # what holds where nothing is entered
    is_required: bool = False

    @property
    def label(self) -> str:
        """Its name in words."""
        return self.name.replace("_", " ").capitalize()

    @property
    def shown(self) -> tuple[str, ...]:
        """The values that the form shows."""
        return self.entered or self.usual


def option_fields(
    model: type[BaseModel], names: Iterable[str], entered: Mapping[str, tuple[str, ...]]
) -> list[OptionField]:
    """The fields of some options, by what the model's JSON Schema says of each."""
    properties = schemas_of(model)
    return [_field(model, name, properties[name], entered.get(name, ())) for name in names]


def _field(
    model: type[BaseModel], name: str, schema: Mapping[str, Any], entered: tuple[str, ...]
) -> OptionField:
    kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    choices = {value: "" for each in kinds for value in each.get("enum", ())}
    kind: Kind = "text"
    if schema.get("type") == "array":
        kind = "checks"
        choices = {each["const"]: each["description"] for each in schema["items"]["oneOf"]}
    elif schema.get("type") == "boolean":
        kind = "check"
    elif len(kinds) == 1 and kinds[0]["type"] in ("integer", "number"):
        kind = "number"
    elif choices and len(kinds) == 1:
        kind = "choice"
    known = model.model_fields[name]
    return OptionField(
        name=name,
        kind=kind,
        sentence=sentence_of(model, name),
        entered=entered,
        choices=choices,
        usual=() if known.is_required() else _texts(known.default),
        is_required=known.is_required(),
    )


def _texts(default: object) -> tuple[str, ...]:
    if default is None or default is False:
        return ()
    return tuple(default) if isinstance(default, tuple) else (str(default),)


def entered_values(fields: Iterable[OptionField]) -> dict[str, Any]:
    """What was entered, as values of a JSON body; fields left as they were are not there.

    Raises:
        ValueError: A number cannot be read; it begins with the name of the option.
    """
    values: dict[str, Any] = {}
    for each in fields:
        texts = [text.strip() for text in each.entered if text.strip()]
        if tuple(texts) == each.usual:
            continue
        if texts and each.kind in ("checks", "check"):
            values[each.name] = texts if each.kind == "checks" else True
        elif texts:
            is_number = each.kind == "number" or (each.choices and texts[0] not in each.choices)
            values[each.name] = _number(each.name, texts[0]) if is_number else texts[0]
    return values


def _number(name: str, text: str) -> int | float:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    raise ValueError(f"{name}: {text!r} is no number")


router = APIRouter(include_in_schema=False)

PAGE = 25
Token = Annotated[str, Form(min_length=1, max_length=100)]
UNFINISHED = ("queued", "running")

OPTIONS = [
    name
    for options in (ReadingOptions, ScoringOptions, EncodingOptions)
    for name in options.model_fields
] + ["missing_boxes"]
"""Options of a job that the form asks for, in its order."""


@dataclass(frozen=True)
class NewJob:
    """What was entered in the form, as the browser sends it."""

    source: str = "root"  # "root" or "upload"
    root: str = ""
    path: str = ""
    upload: str = ""
    backbone: str = ""  # empty for the usual one
    token: str = ""  # of the page, by which a form that is sent twice is one job
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # texts of each

    @property
    def fields(self) -> list[OptionField]:
        """The fields of the options."""
        return option_fields(JobCreate, OPTIONS, self.options)

    @property
    def has_options(self) -> bool:
        """Whether an option that the form hides at first was changed."""
        return any(each.shown != each.usual for each in self.fields if each.name != "scorers")

    def as_body(self) -> dict[str, Any]:
        """Body of the request that submits this job."""
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
    request: Request, key: ReadKey, before: Annotated[str | None, Query(max_length=100)] = None
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
    services = services_of(request)
    engine, settings = services.engine, services.settings
    try:
        body = JobCreate(**form.as_body())
        validated = validate_submission(body, settings, engine, key)
        limits = submit_limits(engine, settings, key.owner)
        job, _ = submit(engine, key.owner, validated, form.token[:100] or None, limits)
    except (Problem, ValueError, TooManyJobs, IdempotencyConflict) as error:
        values = _list(request, key, None) | _form(request, key, form, _explained(error))
        return render(request, "jobs", values, 422)
    return redirect(f"/jobs/{job.id}")


@router.post("/estimate")
async def show_estimate(
    request: Request, key: WriteKey, form: Annotated[NewJob, Depends(entered_job)]
) -> Response:
    """How long the job of the form would take, or what is wrong with the form."""
    values: dict[str, Any] = {"form": form}
    try:
        values["estimate"] = await estimate(JobCreate(**form.as_body()), request, key)
    except (Problem, ValueError) as error:
        values["problem"] = _explained(error)
    return render(request, "estimate", values)


@router.get("/folders")
def show_folders(request: Request, folder: Annotated[FolderPage, Depends(get_folders)]) -> Response:
    """One folder of a root, for the form's dialog."""
    return render(request, "folders", {"folder": folder})


@router.post("/jobs/{job_id}/score-again")
async def score_again(
    job_id: str,
    request: Request,
    key: WriteKey,
    token: Token,
    of: Annotated[Literal["own", "all"], Form()] = "own",
) -> Response:
    """Submits a finished job again with marks applied to its dataset: the caller's, or all merged.

    A score file that is explored is scored again at once.
    """
    earlier = await run_in_threadpool(rest.find_job, request, key, job_id)
    services = services_of(request)
    rounds = services.rounds
    if rounds is not None:
        following = await run_in_threadpool(
            rounds.score_again, services.engine, services.artifacts, earlier
        )
        return redirect(f"/jobs/{following}")
    body = JobCreate(**{**earlier.request, "marks": earlier.id, "marks_of": of})
    job, _ = await rest.submit_job(body, request, key, token)
    return redirect(f"/jobs/{job.id}")


@router.post("/jobs/{job_id}/go-to")
def go_to(job_id: str, request: Request, key: WriteKey) -> Response:
    """Makes a round the one that the explored score file holds."""
    job = succeeded_job(request, key, job_id)
    services = services_of(request)
    if services.rounds is None:
        raise conflict("every round is a job of its own here", "go on from the job that you want")
    services.rounds.go_to(services.engine, services.artifacts, job)
    return redirect(f"/jobs/{job.id}")


@router.post("/jobs/{job_id}/try-again")
async def try_again(job_id: str, request: Request, key: WriteKey, token: Token) -> Response:
    """Submits a job that failed or was cancelled again, with the same settings."""
    earlier = await run_in_threadpool(rest.find_job, request, key, job_id)
    if earlier.state not in ("failed", "cancelled"):
        raise conflict(f"job {earlier.id} is {earlier.state}", "try failed jobs again", "state")
    job, _ = await rest.submit_job(JobCreate(**earlier.request), request, key, token)
    return redirect(f"/jobs/{job.id}")


@router.post("/jobs/{job_id}/remove")
def remove(job_id: str, request: Request, key: WriteKey) -> Response:
    """Cancels an unfinished job, or deletes a finished one with its files and marks."""
    job = rest.find_job(request, key, job_id)
    rest.remove(job_id, request, key)
    return redirect("/" if job.state in FINAL_STATES else f"/jobs/{job.id}")


def _list(request: Request, key: Principal, before: str | None) -> dict[str, Any]:
    cursor = None if before is None else rest.last_of_page(before)
    services = services_of(request)
    engine, settings = services.engine, services.settings
    jobs = list_jobs(engine, None, viewer=key, limit=PAGE + 1, before=cursor)
    page = jobs[:PAGE]
    has_unfinished = any(job.state in UNFINISHED for job in page)
    return {
        "jobs": page,
        "changed": {job.id: changed_options(job) for job in page},
        "rounds": rounds_of(engine, page),
        "marks": numbers_of_marks(engine, key.owner, [job.id for job in page]),
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
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _form(
    request: Request, key: Principal, form: NewJob, problem: Mapping[str, str]
) -> dict[str, Any]:
    services = services_of(request)
    engine, settings = services.engine, services.settings
    backbones = get_backbones(request, key).backbones
    return {
        "form": replace(form, token=uuid4().hex),
        "problem": problem,
        "roots": list(key.within(settings).roots),
        "backbones": backbones,
        "recommended": _names_of_defaults(backbones),
        "max_upload_bytes": settings.max_upload_bytes,
        "takes_jobs": settings.takes_jobs,
        "usage": find_usage(engine, settings, key.owner) if settings.takes_jobs else None,
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
