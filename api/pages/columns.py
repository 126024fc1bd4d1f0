"""The page of the columns beside the scores of a job, where its owner attaches tables."""

from typing import Annotated, BinaryIO

from fastapi import APIRouter, Form, Request, UploadFile
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.http.api_keys import ReadKey, WriteKey
from api.http.principals import Principal
from api.http.problem_responses import problem_of
from api.http.problems import Problem
from api.http.public_text import hide_paths, public_names
from api.pages.rendering import redirect, render
from api.pages.scored import scored_job
from api.results.attached_tables import AttachedTables
from api.results.table_joining import LONGEST_NAME, SentTable
from api.routes.columns import attach_table, changeable_job, find_columns
from difficulty_service.base.errors import DifficultyError
from difficulty_service.datasets.table_files import LIMITED_EXTENSIONS
from difficulty_service.review.joined_tables import MOST_COLUMNS
from difficulty_service.review.sample_columns import LONGEST_NAME as LONGEST_COLUMN

router = APIRouter(prefix="/jobs/{job_id}/columns", include_in_schema=False)

CHUNK = 1 << 20
LONGEST_PROBLEM = 2000
COLUMN_NAMES = MOST_COLUMNS * (LONGEST_COLUMN + 2)
"""Characters of the names of columns, with commas between."""


@router.get("")
def show_columns(job_id: str, request: Request, key: ReadKey) -> Response:
    """The tables of the job and their columns, and a form for another one."""
    return _page(job_id, request, key)


@router.post("")
async def attach(
    job_id: str,
    request: Request,
    key: WriteKey,
    table: UploadFile,
    names: Annotated[str, Form(max_length=COLUMN_NAMES)] = "",
) -> Response:
    """Attaches a table; shows the form again where it cannot be joined."""
    job = await run_in_threadpool(changeable_job, request, key, job_id)

    async def write(file: BinaryIO) -> None:
        while chunk := await table.read(CHUNK):
            await run_in_threadpool(file.write, chunk)

    try:
        wanted = tuple(dict.fromkeys(filter(None, map(str.strip, names.split(",")))))
        await attach_table(request, key, job, SentTable(table.filename or "", wanted), write)
    except (Problem, DifficultyError) as error:
        problem = problem_of(error)
        return await run_in_threadpool(_page, job_id, request, key, problem, names)
    return redirect(f"/jobs/{job.id}/columns")


@router.post("/remove")
def remove(
    job_id: str,
    request: Request,
    key: WriteKey,
    name: Annotated[str, Form(max_length=LONGEST_NAME)],
) -> Response:
    """Removes a table; one that is gone already is no error."""
    job = changeable_job(request, key, job_id)
    tables: AttachedTables = request.app.state.attached_tables
    tables.detach(job, SentTable(name).name)
    return redirect(f"/jobs/{job.id}/columns")


def _page(
    job_id: str,
    request: Request,
    key: Principal,
    problem: Problem | None = None,
    entered: str = "",
) -> Response:
    job = scored_job(request, key, job_id)
    settings = request.app.state.settings
    names = public_names(settings)
    values = job.values("Columns") | {
        "found": find_columns(request, job.job),
        "may_change": settings.takes_jobs and key.manages(job.job.owner),
        "problem": "" if problem is None else hide_paths(problem.detail, names)[:LONGEST_PROBLEM],
        "remedy": "" if problem is None else hide_paths(problem.remedy, names),
        "entered": entered,
        "endings": LIMITED_EXTENSIONS,
        "most_columns": MOST_COLUMNS,
        "most_bytes": settings.max_table_bytes,
    }
    return render(request, "columns_page", values, 200 if problem is None else problem.status)
