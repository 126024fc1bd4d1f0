"""The page of a job's map, and the points that its script draws."""

import gzip
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query
from starlette.responses import JSONResponse, Response

from api.http.byte_ranges import UNCHANGED
from api.http.problems import Problem, not_found
from api.pages.rendering import is_fragment
from api.pages.scored import ScoredJob, SeenJob
from api.results.maps import Layout
from difficulty_service.base.extras import pip_command
from difficulty_service.reports.map_columns import colours_by, packed_column
from difficulty_service.reports.sample_columns import LONGEST_NAME
from difficulty_service.reports.tsne import EXTRA, has_tsne

router = APIRouter(prefix="/jobs/{job_id}/map", include_in_schema=False)

ACCEPTED, NOTHING = 202, 204
REFRESH = {"HX-Refresh": "true"}
TextHeader = Annotated[str, Header(max_length=1000)]
ColumnName = Annotated[str, Query(max_length=LONGEST_NAME)]
Row = Annotated[int, Path(ge=0, le=2**53)]


@router.get("")
def show_map(job: SeenJob) -> Response:
    """The images on a plane, by their features; a script asks whether they are there by now."""
    awaits_features = job.awaits_features  # asked first: the map may be finished in between
    if is_fragment(job.caller.request):
        return Response(status_code=NOTHING) if awaits_features else Response(headers=REFRESH)
    maps = job.services.maps
    values = {
        "awaits_features": awaits_features,
        "map": job.drawn(),
        "tsne": "ready" if maps.has(job.job, "tsne") else "possible" if has_tsne() else "",
        "tsne_command": pip_command(EXTRA),
        "coloured": [name for name, column in job.columns.items() if colours_by(column)],
        **job.classes(),
    }
    return job.page("map_page", "Map", values)


@router.get("/points")
def read_points(
    job: SeenJob, if_none_match: TextHeader = "", accept_encoding: TextHeader = ""
) -> Response:
    """The images on the plane of two discriminants, as `MapPoints.packed_bytes`."""
    return _points(job, "plane", if_none_match, accept_encoding)


@router.get("/tsne")
def read_tsne(
    job: SeenJob, if_none_match: TextHeader = "", accept_encoding: TextHeader = ""
) -> Response:
    """The t-SNE of the images as `read_points` has them; until it is made, how far it is.

    The first request begins it.
    """
    services = job.services
    if not has_tsne() and not services.maps.has(job.job, "tsne"):
        raise Problem(404, "not-found", "this server cannot make a t-SNE", pip_command(EXTRA))
    progress = services.tsne_maps.request(job.job)
    if progress is None:
        return _points(job, "tsne", if_none_match, accept_encoding)
    answer = {"share": progress.share, "failure": progress.failure}
    return JSONResponse(answer, ACCEPTED, {"Cache-Control": "no-store"})


@router.get("/column")
def read_column(
    job: SeenJob, name: Annotated[str, Query(max_length=LONGEST_NAME)]
) -> dict[str, Any]:
    """The values of a column beside the scores, by which the points are coloured."""
    columns = job.columns
    if name not in columns or not colours_by(columns[name]):
        raise Problem(404, "not-found", f"no column {name!r} colours the map", "choose another one")
    return packed_column(columns[name])


@router.get("/ids/{row}")
def read_id(job: SeenJob, row: Row) -> str:
    """The id of an image; those of all would be most of the points' bytes."""
    samples = job.samples
    if row >= len(samples):
        raise not_found("sample", str(row))
    return str(samples.ids[row].as_py())


def _points(job: ScoredJob, layout: Layout, known: str, encodings: str) -> Response:
    points = job.services.maps.points(job.job, layout, f"{job.address}/images")
    if points is None:
        raise Problem(404, "not-found", "this job has no map", "see the page of the map for why")
    headers = {
        "ETag": points.etag,
        "Cache-Control": "private, no-cache",
        "Vary": "Accept-Encoding, Cookie",
    }
    if points.etag in known:
        return Response(status_code=UNCHANGED, headers=headers)
    content = points.compressed
    if "gzip" in encodings:
        headers["Content-Encoding"] = "gzip"
    else:
        content = gzip.decompress(content)
    return Response(content, headers=headers, media_type="application/octet-stream")
