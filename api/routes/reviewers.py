"""Who reviews a job, how far they agree, and with whom its owner shares it."""

import time
from datetime import UTC, datetime
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from api.http.principals import Principal
from api.http.problems import forbidden
from api.jobs.marks import by_mark
from api.jobs.reviewers import NO_KEY, keys_by_id, share_job, shared_with, unshare_job
from api.jobs.store import Job
from api.results.reviews import JobReview, open_review
from api.routes.callers import Caller, Reader
from api.routes.jobs import OwnedJob
from api.routes.results import NOT_FINISHED, SucceededJob
from api.services import services_of
from api.storage.tables import FINAL
from difficulty_service.bodies.marks import MarkCounts

router = APIRouter(prefix="/v1/jobs/{job_id}/reviewers", tags=["marks"])


class Reviewer(BaseModel):
    """A key that reviews a job."""

    key: str = Field(description="Its id; empty for marks from before there were keys")
    name: str
    counts: MarkCounts
    doubtful_seen: float | None = Field(
        description="Share of the doubtful labels that it has marked; null where there are none"
    )
    latest: datetime | None = Field(description="When it marked last; null where it never did")
    shared: bool = Field(description="Whether the owner shares the job with it")
    revoked: bool
    expired: bool


class Agreement(BaseModel):
    """How far the reviewers of a job agree; keeping a label is deciding for that class."""

    alpha: float | None = Field(
        description="Krippendorff's alpha of nominal decisions: 1 is agreement, 0 what chance "
        "would give; null where nothing can be compared, or all decisions are the same"
    )
    compared: int = Field(description="Samples that at least two reviewers decided about")
    disagreed: int = Field(description="Samples that at least two decided differently")
    adjudicated: int = Field(description="Samples with a final decision")
    tied: int = Field(description="Samples that merged marks leave out")


class Reviewers(BaseModel):
    """Who reviews a job: only the caller, where it may not see the marks of others."""

    reviewers: list[Reviewer]
    agreement: Agreement | None = Field(
        description="Null where the caller may not see the marks of others"
    )


@router.get("", summary="Reviewers and their agreement", responses=NOT_FINISHED)
async def read_reviewers(job: SucceededJob, caller: Reader) -> Reviewers:
    """Every reviewer for the owner of the job and keys with the scope read-all, else the caller."""
    return await caller.in_turn(caller.services.queues.marks, find, caller, job)


@router.put("/{key_id}", status_code=204, summary="Share a job with another key")
def share(job: OwnedJob, key_id: str, request: Request) -> Response:
    """The key sees the job, and with the scope write gives marks of its own; nothing else."""
    share_job(services_of(request).engine, job.id, key_id)
    return Response(status_code=204)


@router.delete("/{key_id}", status_code=204, summary="Share a job no longer with a key")
def unshare(job: OwnedJob, key_id: str, request: Request) -> Response:
    """The marks that the key has given stay."""
    unshare_job(services_of(request).engine, job.id, key_id)
    return Response(status_code=204)


def require_overseer(key: Principal, job: Job) -> None:
    """Refuses a caller who may see the job, but not the marks of others."""
    if not key.oversees(job.owner):
        raise forbidden(
            "the marks of others are for the owner of the job",
            "use the key of the owner, or one with the scope read-all",
        )


def find(caller: Caller, job: Job) -> Reviewers:
    """Who has marked samples of a finished job, and who may."""
    services = caller.services
    engine = services.engine
    is_overseer = caller.key.oversees(job.owner)
    only = None if is_overseer else caller.key.owner
    review = open_review(engine, services.open_scores, job, only)
    shared = set(shared_with(engine, job.id))
    keys, at = keys_by_id(engine), time.time()
    listed = {*review.marks.owner_ids, *shared} - {FINAL} if is_overseer else {caller.key.owner}
    reviewers = [
        Reviewer(
            key=owner,
            name=keys[owner].name if owner in keys else NO_KEY,
            shared=owner in shared,
            revoked=owner in keys and keys[owner].revoked_at is not None,
            expired=owner in keys and keys[owner].terms.are_over(at),
            **_facts(review, owner),
        )
        for owner in sorted(listed)
    ]
    return Reviewers(reviewers=reviewers, agreement=_agreement(review) if is_overseer else None)


def _facts(review: JobReview, owner: str) -> dict[str, Any]:
    marks = review.marks
    place = marks.owner_ids.index(owner) if owner in marks.owner_ids else -1
    own = marks.owners == place
    counts = np.bincount(marks.decisions[own], minlength=len(marks.decided)).tolist()
    numbers = {
        (label, mark): number for (mark, label), number in zip(marks.decided, counts, strict=True)
    }
    latest = marks.at[own].max() if own.any() else None
    doubtful = review.samples.is_doubtful
    seen = float(doubtful[marks.rows[own]].sum())
    return {
        "counts": MarkCounts.of(by_mark(numbers)),
        "doubtful_seen": seen / doubtful.sum() if doubtful.any() else None,
        "latest": None if latest is None else datetime.fromtimestamp(latest, UTC),
    }


def _agreement(review: JobReview) -> Agreement:
    return Agreement(
        alpha=review.votes.alpha,
        compared=review.num_compared,
        disagreed=len(review.disagreed),
        adjudicated=len(review.finally_decided),
        tied=len(review.merged.tied),
    )
