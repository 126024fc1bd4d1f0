"""The page of everybody who reviews a job."""

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.http.api_keys import ReadKey, WriteKey
from api.http.principals import Principal
from api.http.problems import Problem
from api.jobs.reviewers import find_key_id, share_job, unshare_job
from api.pages.rendering import redirect, render
from api.pages.scored import ScoredJob, may_submit_again, scored_job
from api.results.conditions import DOUBTFUL
from api.routes.jobs import in_turn
from api.routes.reviewers import find, owned_job
from api.services import services_of

router = APIRouter(prefix="/jobs/{job_id}/reviewers", include_in_schema=False)

KeyId = Annotated[str, Form(max_length=200)]


@router.get("")
async def show_reviewers(job_id: str, request: Request, key: ReadKey) -> Response:
    """How far each reviewer has come, and how far they agree."""
    job = await run_in_threadpool(scored_job, request, key, job_id)
    queue = services_of(request).queues.marks
    return await in_turn(queue, request, key, _page, request, key, job)


def _page(
    request: Request,
    key: Principal,
    job: ScoredJob,
    problem: Problem | None = None,
    entered: str = "",
) -> Response:
    values = job.values("Reviewers") | {
        "found": find(request, key, job.job),
        "may_manage": key.manages(job.job.owner),
        "can_merge": may_submit_again(request, key, job.job),
        "own_key": key.owner,
        "problem": "" if problem is None else _in_words(problem),
        "entered": entered,
        "doubtful": {"margin": DOUBTFUL} if job.samples.is_doubtful.any() else {},
    }
    return render(request, "reviewers_page", values, 200 if problem is None else problem.status)


def _in_words(problem: Problem) -> str:
    return " ".join(f"{each[:1].upper()}{each[1:]}." for each in (problem.detail, problem.remedy))


@router.post("")
def share(job_id: str, request: Request, key: WriteKey, key_id: KeyId) -> Response:
    """Shares the job with another key, which is named or given by its id."""
    job = owned_job(request, key, job_id)
    engine = services_of(request).engine
    try:
        share_job(engine, job.id, find_key_id(engine, key_id.strip()))
    except Problem as problem:
        return _page(request, key, scored_job(request, key, job_id), problem, key_id)
    return redirect(f"/jobs/{job.id}/reviewers")


@router.post("/remove")
def unshare(job_id: str, request: Request, key: WriteKey, key_id: KeyId) -> Response:
    """Shares the job no longer with a key."""
    job = owned_job(request, key, job_id)
    unshare_job(services_of(request).engine, job.id, key_id)
    return redirect(f"/jobs/{job.id}/reviewers")
