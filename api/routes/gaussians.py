"""Scores of new images, texts or feature vectors against the Gaussians of a finished job."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from fastapi import APIRouter
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException

from api.http.fair_queue import FairQueue
from api.http.problems import CONTENT_TYPE, Problem, bad_request, invalid, too_large
from api.jobs.store import Job
from api.online import feature_bodies
from api.online.feature_bodies import Vectors
from api.routes.callers import Caller, Reader
from api.routes.jobs import FoundJob
from difficulty_service.bodies.samples import (
    ARROW_STREAM,
    JsonBody,
    Label,
    SamplesScored,
    ScoredSample,
)

router = APIRouter(tags=["single samples"])

MULTIPART = "multipart/form-data"
JSON = "application/json"
SAMPLES_PER_TURN = 16
"""Number of images or texts after which the work of another client comes first."""
MAX_TEXT_BYTES = 1_000_000
"""Largest size of a single text in UTF-8, of which an encoder needs a hundred times its memory."""

Labels = Sequence[Label | None] | None


IMAGES_SCHEMA = {
    "type": "object",
    "required": ["images"],
    "properties": {
        "images": {"type": "array", "items": {"type": "string", "format": "binary"}},
        "labels": {
            "type": "array",
            "items": {"type": "string"},
            "description": "name or index of the class of each image, empty where unknown",
        },
    },
}

REQUEST_BODY = {
    "required": True,
    "content": {
        MULTIPART: {"schema": IMAGES_SCHEMA},
        JSON: {"schema": JsonBody.model_json_schema()},
        ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}},
    },
}

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {CONTENT_TYPE: {}}}
    for status, text in {
        400: "The body cannot be understood",
        401: "A valid API key is needed",
        403: "The key does not allow this",
        404: "No such job",
        409: "The job is not finished, or has no Gaussians of its own",
        413: "The body is too large",
        415: "The body is of another kind",
        422: "A field is wrong",
        429: "Too many requests",
        507: "The server has no space left",
        503: "The process that scores samples ended",
    }.items()
}

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """A request on a job, and the queue in which its work waits for the turn of its client."""

    job: Job
    caller: Caller
    queue: FairQueue

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Result of a function, in a thread."""
        return await self.queue.run(self.caller.client, function, *args, **kwargs)


@router.post(
    "/v1/gaussians/{job_id}/score",
    responses=PROBLEMS,
    openapi_extra={"requestBody": REQUEST_BODY},
    summary="Score single images, texts or feature vectors",
)
async def score(job: FoundJob, caller: Reader) -> SamplesScored:
    """Scores images (multipart), texts (JSON) or feature vectors (JSON or an Arrow stream) at once.

    Images and texts are encoded by the backbone of the job, together with those of concurrent
    requests. An image that cannot be read has an `error` instead of scores.
    """
    call = Call(job, caller, caller.services.queues.scoring)
    with call.queue.request(caller.client):
        return SamplesScored(gaussians=job.id, samples=await _score(call))


async def _score(call: Call) -> list[ScoredSample]:
    kind = call.caller.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == MULTIPART:
        return await _score_images(call)
    if kind not in (JSON, ARROW_STREAM):
        raise Problem(
            415,
            "unsupported-media-type",
            f"bodies of {kind or 'no content type'!r} are not supported",
            f"send {MULTIPART} with images, {JSON} with texts or feature vectors, or "
            f"{ARROW_STREAM} with feature vectors",
        )
    body = await call.caller.request.body()
    if kind == ARROW_STREAM:
        return await call.run(_score_vectors, call, partial(feature_bodies.read_arrow, body))
    parsed = await call.run(feature_bodies.parse_json, body)
    if parsed.texts is not None:
        return await _score_texts(call, parsed.texts, parsed.labels)
    return await call.run(_score_vectors, call, partial(feature_bodies.read_json, parsed))


def _score_vectors(call: Call, read: Callable[[int, int], Vectors]) -> list[ScoredSample]:
    gaussians = call.caller.services.scoring_models.get(call.job)
    vectors = read(gaussians.dim, call.caller.services.settings.max_vectors_per_request)
    labels = feature_bodies.label_indices(vectors.labels, gaussians.class_names)
    process = call.caller.services.scoring_process
    scores = process.score(gaussians.job, vectors.features, labels)
    return [ScoredSample(**row) for row in scores.rows(gaussians.class_names)]


async def _score_texts(call: Call, texts: Sequence[str], labels: Labels) -> list[ScoredSample]:
    _require_kind(call.job, "text")
    limit = call.caller.services.settings.max_images_per_request
    if len(texts) > limit:
        raise too_large(f"{len(texts):,} texts in a request", f"send at most {limit:,}")
    rows = await _rows(call, [text.encode() for text in texts], labels, MAX_TEXT_BYTES)
    return [ScoredSample(**row) for row in rows]


async def _score_images(call: Call) -> list[ScoredSample]:
    _require_kind(call.job, "image")
    settings = call.caller.services.settings
    limit, max_bytes = settings.max_images_per_request, settings.max_image_bytes
    try:
        async with call.caller.request.form(max_files=limit, max_fields=limit) as form:
            files = [each for each in form.getlist("images") if isinstance(each, UploadFile)]
            labels = [each for each in form.getlist("labels") if isinstance(each, str)]
            names = [each.filename for each in files]
            contents = [await each.read(max_bytes + 1) for each in files]
    except MultiPartException as error:
        raise bad_request(error.message, f"send at most {limit} files as `images`") from None
    rows = await _rows(call, contents, labels or None, max_bytes)
    return [ScoredSample(name=name, **row) for name, row in zip(names, rows, strict=True)]


async def _rows(
    call: Call, contents: Sequence[bytes], labels: Labels, max_bytes: int
) -> list[dict[str, Any]]:
    """Fields of each sample: its scores or the reason why there are none; between others' work."""
    _check(contents, labels, max_bytes, call.job.kind)
    models = call.caller.services.scoring_models
    gaussians = models.known(call.job)
    if gaussians is None:
        gaussians = await call.run(models.get, call.job)
    known = [None] * len(contents) if labels is None else labels
    indices = feature_bodies.label_indices(known, gaussians.class_names)

    def score_turn(turn: slice) -> list[dict[str, Any]]:
        process = call.caller.services.scoring_process
        scores = process.encode_and_score(gaussians.job, contents[turn], indices[turn])
        return scores.rows(gaussians.class_names)

    starts = range(0, len(contents), SAMPLES_PER_TURN)
    turns = [slice(start, start + SAMPLES_PER_TURN) for start in starts]
    rows = await asyncio.gather(*(call.run(score_turn, turn) for turn in turns))
    return [row for of_turn in rows for row in of_turn]


def _require_kind(job: Job, kind: str) -> None:
    """Refuses samples of another kind than those of the job."""
    if job.kind != kind:
        instead = f"{JSON} with `texts`" if job.is_text else f"{MULTIPART} with `images`"
        raise invalid(
            f"the samples of job {job.id!r} are {job.kind}s",
            f"send {instead}, or feature vectors",
            field=f"{kind}s",
        )


def _check(contents: Sequence[bytes], labels: Labels, max_bytes: int, kind: str) -> None:
    if not contents:
        raise invalid(f"there are no {kind}s", f"send files as `{kind}s`", field=f"{kind}s")
    if labels is not None and len(labels) != len(contents):
        raise invalid(
            f"{len(labels)} labels for {len(contents)} {kind}s",
            f"send one label for each {kind}, empty where unknown, or none at all",
            field="labels",
        )
    for row, content in enumerate(contents):
        if len(content) > max_bytes:
            raise too_large(
                f"{kind} {row} is larger than {max_bytes:,} bytes",
                "send a smaller one",
                field=f"{kind}s.{row}",
            )
