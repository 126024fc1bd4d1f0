"""Pages of what is asked of finished jobs together: copies, changes, and what to choose."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fastapi import APIRouter
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.http.problems import Problem, reason_of
from api.jobs.store import list_jobs
from api.pages.option_fields import OptionField, entered_values, option_fields
from api.pages.rendering import is_fragment, job_name, redirect, render, words_of
from api.pages.scored import ScoredJob, SeenJob, seen_job
from api.results.comparisons import TABLE_FILE
from api.routes.callers import Writer
from api.routes.comparisons import ComparisonId, begin
from api.routes.results import OwnedResult
from difficulty_service.base.plugins import function_of
from difficulty_service.bodies.comparison_kinds import Comparison
from difficulty_service.bodies.comparisons import COMPARISONS, ComparisonCreate, ComparisonPublic
from difficulty_service.pages.cards import Card

router = APIRouter(prefix="/jobs/{job_id}/comparisons", include_in_schema=False)

MOST_JOBS = 200
"""Other jobs that the forms offer."""

MOST_SHOWN = 120
"""Rows of a table that a page shows."""

ASKED: TypeAdapter[ComparisonCreate] = TypeAdapter(ComparisonCreate)


@router.get("")
def show_list(job: SeenJob) -> Response:
    """What was asked of the job, and forms to ask for more."""
    return _list(job)


@router.post("")
async def ask(job: OwnedResult, caller: Writer) -> Response:
    """Begins a comparison; shows the form again where a field is wrong."""
    async with caller.request.form() as sent:
        texts = {name: tuple(map(str, sent.getlist(name))) for name in sent}
    return await run_in_threadpool(_ask, ScoredJob(caller, job), texts)


@router.post("/{comparison_id}/remove")
def remove(job: OwnedResult, comparison_id: ComparisonId, caller: Writer) -> Response:
    """Deletes a comparison, or stops it."""
    caller.services.comparisons.delete(caller.key, job, comparison_id)
    return redirect(f"/jobs/{job.id}/comparisons")


@router.get("/{comparison_id}")
def show(job: SeenJob, comparison_id: ComparisonId) -> Response:
    """What was found, with pictures of the first of it; until then, how far it is."""
    request = job.caller.request
    found = job.services.comparisons.get(job.caller.key, job.job, comparison_id)
    question = COMPARISONS[found.kind]
    values = {
        "found": found,
        "question": question,
        "words_in": words_of(question),
        "address": job.address,
    }
    if is_fragment(request) and found.state == "running":
        return render(request, "comparison_progress", values)
    answer = job.page("comparison_page", "Compare", {**values, **_shown(job, found)})
    if is_fragment(request):
        answer.headers["HX-Refresh"] = "true"
    return answer


def _ask(job: ScoredJob, texts: Mapping[str, tuple[str, ...]]) -> Response:
    kind = texts.get("kind", ("",))[-1]
    question = COMPARISONS.get(kind) or next(iter(COMPARISONS.values()))
    named = question.others
    others = [other for other in texts.get(named.field, ()) if other]
    try:
        body = {"kind": question.kind, **entered_values(_fields(question, texts))}
        if others:
            body[named.field] = others if named.several else others[0]
        found = begin(job.caller, job.job, ASKED.validate_python(body))
    except (Problem, ValidationError, ValueError) as error:
        if isinstance(error, Problem) and error.status == HTTPStatus.NOT_FOUND:
            raise
        return _list(job, (question.kind, texts, _reason(error)))
    return redirect(f"{job.address}/comparisons/{found.id}")


def _fields(asked: Comparison, entered: Mapping[str, tuple[str, ...]]) -> list[OptionField]:
    """The fields of the options of a question; what names jobs is no option."""
    jobs = {"kind", asked.others.field, asked.earlier}
    options = {name: each for name, each in asked.body.model_fields.items() if name not in jobs}
    return option_fields(asked.body, options, entered)


def _reason(error: Exception) -> str:
    if isinstance(error, Problem):
        return f"{error.detail}; {error.remedy}"
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        name = next((str(part) for part in first["loc"][1:]), "")
        reason = reason_of(first)
        return f"{name}: {reason}" if name else reason
    return str(error)


def _list(
    job: ScoredJob, refused: tuple[str, Mapping[str, tuple[str, ...]], str] | None = None
) -> Response:
    key = job.caller.key
    kind, entered, problem = refused or ("", {}, "")
    engine = job.services.engine
    others = list_jobs(engine, None, viewer=key, state="succeeded", limit=MOST_JOBS)
    forms = [
        (
            each,
            _fields(each, entered if each.kind == kind else {}),
            entered.get(each.others.field, ()),
        )
        for each in COMPARISONS.values()
    ]
    values = {
        "found": job.services.comparisons.list(key, job.job),
        "questions": COMPARISONS,
        "forms": forms,
        "others": [each for each in others if each.id != job.job.id and each.kind == job.job.kind],
        "may_ask": key.manages(job.job.owner) and "write" in key.scopes,
        "refused": kind,
        "problem": problem,
    }
    return job.page("comparisons_page", "Compare", values, 422 if problem else 200)


@dataclass(frozen=True)
class Shown:
    """A row of a table with the cards of its samples.

    Attributes:
        cards: Each with the address of its job and what it is here; None where the job is gone.
    """

    row: Mapping[str, Any]
    cards: Sequence[tuple[Card, str, str]]


def _shown(job: ScoredJob, found: ComparisonPublic) -> Mapping[str, Any]:
    """What the page of a comparison shows besides its numbers."""
    question = COMPARISONS[found.kind]
    named = found.request.get(question.others.field) or ()
    jobs = {job.job.id: job}
    for other in [named] if isinstance(named, str) else named:
        try:
            jobs[other] = seen_job(other, job.caller)
        except Problem:  # it is deleted, or not shown to the caller
            continue
    values: dict[str, Any] = {
        "names": {f"job {each}": job_name(known.job) for each, known in jobs.items()},
        "marks": {
            name.rpartition(" ")[2]: link
            for name, link in found.links.items()
            if name.startswith("marks of ")
        },
        "rows": [],
        "total": 0,
    }
    if found.state != "succeeded":
        return values
    with job.services.comparisons.open(job.caller.key, job.job, found.id, TABLE_FILE) as file:
        table = pq.read_table(file)
    chosen = table if question.listed is None else function_of(question.listed)(table)
    values["total"] = len(chosen)
    values["rows"] = list(_rows(question, chosen[:MOST_SHOWN], job, jobs))
    return values


def _rows(
    question: Comparison, table: pa.Table, job: ScoredJob, jobs: Mapping[str, ScoredJob]
) -> Iterator[Shown]:
    rows = table.to_pylist()
    cards: list[dict[int, tuple[Card, str, str]]] = []
    for side in question.sides:
        own = {
            number: job if side.job is None else jobs.get(row[side.job].removeprefix("job "))
            for number, row in enumerate(rows)
        }
        cards.append(dict(_cards(rows, side.column, side.sign, own)))
    for number, row in enumerate(rows):
        yield Shown(row, [side[number] for side in cards if number in side])


def _cards(
    rows: Sequence[Mapping[str, Any]], column: str, sign: str, jobs: Mapping[int, ScoredJob | None]
) -> Iterator[tuple[int, tuple[Card, str, str]]]:
    """The card of the sample of each row in its job, by the number of the row."""
    for job in {id(each): each for each in jobs.values() if each is not None}.values():
        numbers = [number for number, each in jobs.items() if each is job]
        ids = pa.array([rows[number][column] for number in numbers], pa.string())
        places = pc.index_in(ids, value_set=job.samples.ids).to_pylist()
        known = [(number, place) for number, place in zip(numbers, places, strict=True)]
        shown = [(number, place) for number, place in known if place is not None]
        for (number, _), card in zip(shown, job.cards([at for _, at in shown]), strict=True):
            yield number, (card, job.address, sign)
