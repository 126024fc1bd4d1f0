"""The page of everybody who reviews a job."""

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from api.http.problems import Problem
from api.jobs.reviewers import find_key_id, share_job, unshare_job
from api.pages.rendering import redirect
from api.pages.scored import ScoredJob, SeenJob, may_submit_again, seen_job
from api.results.conditions import DOUBTFUL
from api.routes.callers import Writer
from api.routes.jobs import OwnedJob
from api.routes.reviewers import find
from api.services import services_of

router = APIRouter(prefix="/jobs/{job_id}/reviewers", include_in_schema=False)

KeyId = Annotated[str, Form(max_length=200)]


@router.get("")
async def show_reviewers(job: SeenJob) -> Response:
    """How far each reviewer has come, and how far they agree."""
    return await job.caller.in_turn(job.services.queues.marks, _page, job)


def _page(job: ScoredJob, problem: Problem | None = None, entered: str = "") -> Response:
    key = job.caller.key
    values = {
        "found": find(job.caller, job.job),
        "may_manage": key.manages(job.job.owner),
        "can_merge": may_submit_again(job.caller, job.job),
        "own_key": key.owner,
        "problem": "" if problem is None else _in_words(problem),
        "entered": entered,
        "doubtful": {"margin": DOUBTFUL} if job.samples.is_doubtful.any() else {},
    }
    status = 200 if problem is None else problem.status
    return job.page("reviewers_page", "Reviewers", values, status)


def _in_words(problem: Problem) -> str:
    return " ".join(f"{each[:1].upper()}{each[1:]}." for each in (problem.detail, problem.remedy))


@router.post("")
def share(job: OwnedJob, caller: Writer, key_id: KeyId) -> Response:
    """Shares the job with another key, which is named or given by its id."""
    engine = caller.services.engine
    try:
        share_job(engine, job.id, find_key_id(engine, key_id.strip()))
    except Problem as problem:
        return _page(seen_job(job.id, caller), problem, key_id)
    return redirect(f"/jobs/{job.id}/reviewers")


@router.post("/remove")
def unshare(job: OwnedJob, request: Request, key_id: KeyId) -> Response:
    """Shares the job no longer with a key."""
    unshare_job(services_of(request).engine, job.id, key_id)
    return redirect(f"/jobs/{job.id}/reviewers")
