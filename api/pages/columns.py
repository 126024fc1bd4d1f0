"""The page of the columns beside the scores of a job, where its owner attaches tables."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, BinaryIO, Literal

from fastapi import APIRouter, Form, Request, UploadFile
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.http.problem_responses import problem_of
from api.http.problems import Problem
from api.http.public_text import hide_paths, public_names
from api.pages.rendering import redirect
from api.pages.scored import ScoredJob, SeenJob
from api.results.table_joining import ENDINGS, LONGEST_NAME, SentTable, check_name
from api.routes.callers import Writer
from api.routes.columns import ChangeableJob, attach_dataset, attach_table, find_columns
from api.services import services_of
from difficulty_service.base.errors import DifficultyError
from difficulty_service.reports.joined_tables import MOST_COLUMNS
from difficulty_service.reports.sample_columns import LONGEST_NAME as LONGEST_COLUMN

router = APIRouter(prefix="/jobs/{job_id}/columns", include_in_schema=False)

CHUNK = 1 << 20
LONGEST_PROBLEM = 2000
COLUMN_NAMES = MOST_COLUMNS * (LONGEST_COLUMN + 2)
"""Characters of the names of columns, with commas between."""


@dataclass(frozen=True)
class Entered:
    """What was entered into a form, and why it was refused; None where it was not."""

    form: Literal["table", "dataset"]
    names: str
    problem: Problem | None = None


@router.get("")
def show_columns(job: SeenJob) -> Response:
    """The tables of the job and their columns, and a form for another one."""
    return _page(job)


@router.post("")
async def attach(
    job: ChangeableJob,
    caller: Writer,
    table: UploadFile,
    names: Annotated[str, Form(max_length=COLUMN_NAMES)] = "",
) -> Response:
    """Attaches a table; shows the form again where it cannot be joined."""

    async def write(file: BinaryIO) -> None:
        while chunk := await table.read(CHUNK):
            await run_in_threadpool(file.write, chunk)

    async def attach_sent(columns: tuple[str, ...]) -> None:
        sent = SentTable(table.filename or "", columns)
        await attach_table(caller, job, sent, write)

    return await _attach(ScoredJob(caller, job), Entered("table", names), attach_sent)


@router.post("/dataset")
async def attach_own(
    job: ChangeableJob, caller: Writer, names: Annotated[str, Form(max_length=COLUMN_NAMES)] = ""
) -> Response:
    """Attaches columns of the dataset; shows the form again where they cannot be joined."""
    attach_named = partial(attach_dataset, caller, job)
    return await _attach(ScoredJob(caller, job), Entered("dataset", names), attach_named)


@router.post("/remove")
def remove(
    job: ChangeableJob, request: Request, name: Annotated[str, Form(max_length=LONGEST_NAME)]
) -> Response:
    """Removes a table; one that is gone already is no error."""
    services_of(request).attached_tables.detach(job, check_name(name))
    return redirect(f"/jobs/{job.id}/columns")


async def _attach(
    job: ScoredJob, entered: Entered, join: Callable[[tuple[str, ...]], Awaitable[object]]
) -> Response:
    """Goes to the page once the named columns are joined; shows what was entered where not."""
    columns = tuple(dict.fromkeys(filter(None, map(str.strip, entered.names.split(",")))))
    try:
        await join(columns)
    except (Problem, DifficultyError) as error:
        refused = replace(entered, problem=problem_of(error))
        return await run_in_threadpool(_page, job, refused)
    return redirect(f"{job.address}/columns")


def _page(job: ScoredJob, entered: Entered | None = None) -> Response:
    settings = job.services.settings
    names = public_names(settings)
    problem = None if entered is None else entered.problem
    values = {
        "found": find_columns(job.caller.request, job.job),
        "may_change": settings.takes_jobs and job.caller.key.manages(job.job.owner),
        "problem": "" if problem is None else hide_paths(problem.detail, names)[:LONGEST_PROBLEM],
        "remedy": "" if problem is None else hide_paths(problem.remedy, names),
        "entered": entered,
        "endings": ENDINGS,
        "most_columns": MOST_COLUMNS,
        "most_bytes": settings.max_table_bytes,
    }
    return job.page("columns_page", "Columns", values, 200 if problem is None else problem.status)
