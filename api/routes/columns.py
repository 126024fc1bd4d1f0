"""Columns beside the scores of a job, of tables that its owner attaches."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi import Path as PathPart
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from api.http.api_keys import KeyWatch
from api.http.problems import bad_request, conflict, invalid, not_found
from api.jobs.columns import AttachedTable, attached_tables
from api.jobs.files import scratch
from api.jobs.store import Job
from api.results.table_joining import LONGEST_NAME, SentTable, check_name
from api.routes.callers import Caller, Writer
from api.routes.results import NOT_FINISHED, SucceededJob, owned_result
from api.services import services_of
from api.storage.space import require_space
from api.uploads.quota import find_usage, require_room
from difficulty_service.bodies.results import Column, Columns, Table
from difficulty_service.reports.joined_tables import DATASET, MOST_COLUMNS
from difficulty_service.reports.sample_columns import LONGEST_NAME as LONGEST_COLUMN

router = APIRouter(prefix="/v1/jobs/{job_id}/columns", tags=["results"])

BODY = {
    "requestBody": {
        "description": "The bytes of the table, of the format that its name ends in; none for "
        "`dataset`",
        "required": False,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}

TableName = Annotated[
    str,
    PathPart(
        max_length=LONGEST_NAME,
        description="Name of its file, which ends in .csv, .tsv, .parquet, .jsonl, .ndjson or "
        ".json; or `dataset` for the dataset of the job, where that is a table, without a body",
    ),
]
Run = Callable[..., Awaitable[AttachedTable]]
ColumnName = Annotated[str, Field(max_length=LONGEST_COLUMN)]


def changeable_job(job_id: str, caller: Writer) -> Job:
    """A finished job to which the caller may attach tables."""
    if not caller.services.settings.takes_jobs:
        raise conflict(
            "the columns of a score file that is explored are those of its start",
            "name the table in `difficulty explore SCORES --columns TABLE`",
        )
    return owned_result(job_id, caller)


ChangeableJob = Annotated[Job, Depends(changeable_job)]


@router.get("", summary="Columns beside the scores", responses=NOT_FINISHED)
def read_columns(job: SucceededJob, request: Request) -> Columns:
    """They filter and order the samples; a name that two tables have is called after one of them.

    `image_fault` is one of every job whose scores tell how the images look.

    For everybody who sees the job.
    """
    return find_columns(request, job)


@router.put(
    "/{table}",
    summary="Attach a table of columns",
    openapi_extra=BODY,
    responses=NOT_FINISHED,
)
async def attach(
    job: ChangeableJob,
    table: TableName,
    caller: Writer,
    column: Annotated[
        list[ColumnName],
        Query(max_length=MOST_COLUMNS, description="A column to show; all where none is named"),
    ] = [],  # noqa: B006 - never changed
) -> Table:
    """Joins a table by its sample ids or paths, in place of one of the same name.

    For the owner of the job.
    """
    columns = tuple(dict.fromkeys(column))
    engine = caller.services.engine
    body = KeyWatch(engine, caller.key, job.root).watched(caller.request.stream())
    if table == DATASET:
        async for chunk in body:
            if chunk:
                raise invalid(
                    "the dataset of the job is on the server already",
                    "send no bytes, or a table under the name of its file",
                )
        return _public(await attach_dataset(caller, job, columns))
    sent = SentTable(table, columns)
    return _public(await attach_table(caller, job, sent, partial(_write, body)))


@router.delete(
    "/{table}", status_code=204, summary="Remove a table of columns", responses=NOT_FINISHED
)
def remove(job: ChangeableJob, table: TableName, request: Request) -> Response:
    """Deletes what was joined of it. For the owner of the job."""
    if not services_of(request).attached_tables.detach(job, check_name(table)):
        raise not_found("table", table)
    return Response(status_code=204)


async def attach_table(
    caller: Caller, job: Job, table: SentTable, write: Callable[[BinaryIO], Awaitable[None]]
) -> AttachedTable:
    """Attaches a table, which `write` writes to a file, when it is the caller's turn."""
    async with _turn(caller) as (folder, run):
        with table.file(folder).open("wb") as file:
            await write(file)
        return await run(caller.services.attached_tables.attach, job, table, folder)


async def attach_dataset(caller: Caller, job: Job, columns: tuple[str, ...]) -> AttachedTable:
    """Attaches columns of the dataset of a job, when it is the caller's turn."""
    async with _turn(caller) as (folder, run):
        attach = caller.services.attached_tables.attach_dataset
        return await run(attach, job, columns, folder)


@asynccontextmanager
async def _turn(caller: Caller) -> AsyncIterator[tuple[Path, Run]]:
    """A folder for a table, and what runs its joining in turn, for a caller who has room."""
    services = caller.services
    owner = caller.key.owner
    usage = await run_in_threadpool(find_usage, services.engine, services.settings, owner)
    require_room(usage)
    await run_in_threadpool(require_space, services.settings)
    queue = services.queues.tables
    with queue.request(caller.client), scratch(services.settings) as folder:
        yield folder, partial(queue.run, caller.client)


def find_columns(request: Request, job: Job) -> Columns:
    """The columns of a finished job and their tables."""
    services = services_of(request)
    shown = services.open_columns.get(job)
    return Columns(
        columns=[Column(name=column.name, kind=column.kind) for column in shown.values()],
        tables=[_public(table) for table in attached_tables(services.engine, job.id)],
    )


async def _write(body: AsyncIterator[bytes], file: BinaryIO) -> None:
    try:
        async for chunk in body:
            await run_in_threadpool(file.write, chunk)
    except ClientDisconnect:
        raise bad_request("the request ended early", "send the table again") from None


def _public(table: AttachedTable) -> Table:
    return Table(
        name=table.name,
        columns=[column.name for column in table.joined.columns],
        notes=list(table.joined.notes),
        attached_at=datetime.fromtimestamp(table.attached_at, UTC),
    )
