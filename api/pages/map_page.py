"""The page of the map, and the points that its script draws."""

import gzip
from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from api.http.api_keys import ReadKey
from api.http.byte_ranges import UNCHANGED
from api.http.problems import Problem
from api.pages.rendering import render
from api.pages.scored import ScoredJob, scored_job
from api.results.maps import Maps

router = APIRouter(prefix="/jobs/{job_id}/map", include_in_schema=False)

MOST_CLASSES = 1000
"""Number of classes that are suggested as new labels."""

TextHeader = Annotated[str, Header(max_length=1000)]


@router.get("")
def show_map(job_id: str, request: Request, key: ReadKey) -> Response:
    """The images on a plane, by their features."""
    job = scored_job(request, key, job_id)
    values = job.values("Map") | {
        "map": job.drawn,
        "takes_jobs": request.app.state.settings.takes_jobs,
        "classes": list(job.samples.names.values())[:MOST_CLASSES],
    }
    return render(request, "map_page", values)


@router.get("/points")
def read_points(
    job_id: str,
    request: Request,
    key: ReadKey,
    if_none_match: TextHeader = "",
    accept_encoding: TextHeader = "",
) -> Response:
    """Positions, classes and scores of the images that are drawn, as columns in JSON."""
    job = scored_job(request, key, job_id)
    points = _maps(job).points(job.job, f"{job.address}/images")
    if points is None:
        raise Problem(404, "not-found", "this job has no map", "see the page of the map for why")
    headers = {
        "ETag": points.etag,
        "Cache-Control": "private, no-cache",
        "Vary": "Accept-Encoding, Cookie",
    }
    if points.etag in if_none_match:
        return Response(status_code=UNCHANGED, headers=headers)
    content = points.compressed
    if "gzip" in accept_encoding:
        headers["Content-Encoding"] = "gzip"
    else:
        content = gzip.decompress(content)
    return Response(content, headers=headers, media_type="application/json")


def _maps(job: ScoredJob) -> Maps:
    maps: Maps = job.request.app.state.maps
    return maps
