"""Pages of a job: progress or summary, round, classes, confused pairs and errors."""

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import uuid4

import numpy as np
from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from api.http.problems import Problem
from api.jobs.marks import marked_rows
from api.jobs.queue import live_workers
from api.jobs.store import visible_job
from api.pages.images import further_after
from api.pages.rendering import is_fragment, job_name, render
from api.pages.scored import ScoredJob, SeenJob, may_submit_again, seen_job
from api.results.conditions import ImageQuery
from api.results.further import Further
from api.results.overview import confused_rows, typical_rows
from api.routes import jobs as rest
from api.routes.callers import Reader
from api.routes.results import LARGEST_OFFSET, read_errors, read_missing_boxes, tags_of
from difficulty_service.bodies.results import MissingPublic, TagPublic
from difficulty_service.pages.cards import Card
from difficulty_service.pages.origin import describe_provenance
from difficulty_service.reports.sections import LISTED_CLASSES, OF_A_KIND
from difficulty_service.scores.random_checks import ENOUGH
from difficulty_service.scores.score_columns import FAULT_COLUMN
from difficulty_service.scores.tiers import PROBABLE
from difficulty_service.scoring.round_change import change_between

router = APIRouter(prefix="/jobs/{job_id}", include_in_schema=False)

PICTURED_PAIRS = 6
ERRORS = 100
PER_DIRECTION = 24
TYPICAL = 6
CHANGED = 48  # images that a round changed
Label = Annotated[int, Path(ge=0, le=2**31)]
REFRESH = {"HX-Refresh": "true"}


@router.get("")
def show_job(job: rest.FoundJob, caller: Reader) -> Response:
    """The progress of an unfinished job, why a job failed, or the summary of a finished one."""
    if job.state == "succeeded" and job.result is not None:
        # A page that shows the progress asks for this part; it is to show the summary instead.
        if is_fragment(caller.request):
            return Response(headers=REFRESH)
        return _summary(ScoredJob(caller, job))
    if is_fragment(caller.request) and job.state not in ("queued", "running"):
        return Response(headers=REFRESH)
    services = caller.services
    values = {
        "job": job,
        "noun": job.kind,
        "name": job_name(job),
        "progress": rest.public(job).progress,
        "can_try_again": job.state in {"failed", "cancelled"} and may_submit_again(caller, job),
        "token": uuid4().hex,
        "no_worker": job.state == "queued"
        and not live_workers(services.engine, services.settings.lease),
    }
    return render(
        caller.request, "progress" if is_fragment(caller.request) else "unfinished", values
    )


def _summary(job: ScoredJob) -> Response:
    overview = job.overview
    provenance = job.scores.provenance
    selection, faults = overview.selection, provenance.image_faults
    values = {
        "summary": overview.summary,
        "num_unread": provenance.num_bad_images or 0,
        "backbone": job.job.wanted.backbone,
        "kinds": {
            name: job.cards(rows)
            for name, rows in zip(("doubtful", "unusual", "typical"), selection.kinds, strict=True)
        }
        | {"contradictions": _contradictory(job), "faults": _faulty(job)},
        "at_random": ENOUGH,
        "further": _further(job),
        "near": provenance.near_duplicates,
        "faults": faults,
        "faults_page": "faults",
        "facts": describe_provenance(provenance),
        "result": job.job.result,
        "tags": _tags(job),
    }
    return job.page("summary_page", "Summary", values)


def _further(job: ScoredJob) -> Further | None:
    """The labels to check where no one that is probably wrong is left; None where one is."""
    samples = job.samples
    engine, owner = job.services.engine, job.caller.key.owner
    wrong = np.flatnonzero(samples.p_wrong > PROBABLE)
    if len(np.setdiff1d(wrong, marked_rows(engine, owner, job.job.id))):
        return None
    return further_after(job, ImageQuery(sort="suspicion", p_wrong=str(PROBABLE)))


def _contradictory(job: ScoredJob) -> Sequence[Card]:
    """A picture of each of the first groups of copies whose labels differ."""
    samples = job.samples
    groups = samples.copies[: min(samples.num_conflicting, OF_A_KIND)]
    return job.cards(int(rows[0]) for rows in groups)


def _faulty(job: ScoredJob) -> Sequence[Card]:
    """Some images with a fault."""
    column = job.scores.faults.get(FAULT_COLUMN)
    if column is None:
        return []
    return job.cards(np.flatnonzero(~np.isnan(column.numbers))[:OF_A_KIND].tolist())


@router.get("/cleaned")
def show_cleaned(job: SeenJob) -> Response:
    """What the cleaned dataset keeps, and how to write it."""
    rounds = job.services.rounds
    explored = None if rounds is None else rounds.explored.scores
    return job.page("cleaned_page", "Summary", {"explored": explored})


@router.get("/missing")
def show_missing(
    job: SeenJob, found: Annotated[MissingPublic, Depends(read_missing_boxes)]
) -> Response:
    """Regions that look like an object and have no box, with pictures."""
    return job.page("missing_page", "Summary", {"found": found})


def _tags(job: ScoredJob) -> list[TagPublic]:
    """The tags that were judged, the largest numbers of expected errors first."""
    if job.job.wanted.tags is None:
        return []
    found = tags_of(job.services.artifacts, job.job).tags
    return sorted(found, key=lambda each: -((each.wrong or 0) + (each.missing or 0)))


@router.get("/round")
def show_round(job: SeenJob) -> Response:
    """What a round of review changed: numbers before and after, and what is doubted otherwise."""
    number = job.scores.provenance.round
    if number is None:
        raise Problem(
            404, "not-found", "this job knows no decisions", "mark images, then score again"
        )
    source = job.job.wanted.marks
    stored = None if source is None else visible_job(job.services.engine, job.caller.key, source)
    values: dict[str, Any] = {"number": number, "summary": job.overview.summary, "before": None}
    if stored is not None and stored.state == "succeeded":
        before = seen_job(stored.id, job.caller)
        change = change_between(before.samples, job.samples)
        values["lists"] = [
            (kind, len(rows), job.cards(rows[:CHANGED].tolist()))
            for kind, rows in (("newly", change.newly_doubtful), ("settled", change.settled))
        ]
        values |= {"before": before.overview.summary, "before_address": before.address}
    return job.page("round_page", "Summary", values)


@router.get("/classes")
def show_classes(job: SeenJob) -> Response:
    """How hard each class is."""
    overview = job.overview
    selection = overview.selection
    values = {
        "summary": overview.summary,
        "class_rows": overview.class_rows,
        "num_classes": overview.num_classes,
        "num_listed": LISTED_CLASSES,
        "strips": [
            (
                facts,
                job.cards(selection.hardest[facts.label]),
                job.cards(selection.easiest[facts.label]),
            )
            for facts in overview.pictured_classes
        ],
    }
    return job.page("classes_page", "Classes", values)


@router.get("/pairs")
def show_pairs(job: SeenJob) -> Response:
    """Which classes are taken for which."""
    overview = job.overview
    pictured = [job.cards(rows) for rows in overview.selection.pictured_pairs[:PICTURED_PAIRS]]
    values = {
        "matrix": overview.matrix,
        "pairs": overview.selection.pairs,
        "pictured_pairs": pictured,
    }
    return job.page("pairs_page", "Confusions", values)


@router.get("/pairs/{first}/{second}")
def show_pair(job: SeenJob, first: Label, second: Label) -> Response:
    """The images of each of two classes that look more like the other, and typical ones of both."""
    samples = job.samples
    for label in (first, second):
        if label not in samples.names or first == second:
            raise Problem(
                404,
                "not-found",
                f"{first} and {second} are no pair of classes of this job",
                "choose one of its confusions",
            )
    directions = [
        (label, nearest, len(rows), job.cards(rows[:PER_DIRECTION].tolist()))
        for label, nearest in ((first, second), (second, first))
        for rows in [confused_rows(samples, label, nearest)]
    ]
    typical = [
        (label, job.cards(typical_rows(samples, label, TYPICAL, without=-1)))
        for label in (first, second)
    ]
    return job.page("pair_page", "Confusions", {"directions": directions, "typical": typical})


@router.get("/errors")
def show_errors(
    job: SeenJob, after: Annotated[int, Query(ge=0, le=LARGEST_OFFSET)] = 0
) -> Response:
    """What has no score, with the reasons."""
    page = read_errors(job.job, job.caller.request, ERRORS, after)
    return job.page("errors", "Not scored", {"page": page})


@router.get("/tray")
def show_tray(job: SeenJob) -> Response:
    """The marks in a sentence, which the pages show below."""
    return job.page("tray", "", {})


@router.get("/class-names")
def read_class_names(job: SeenJob) -> list[str]:
    """The names of all classes, for a list that begins with a thousand of them."""
    return list(job.samples.names.values())
