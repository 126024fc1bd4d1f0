"""A job over boxes looks for objects that have none: by REST, the client's reader, and on pages."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from PIL import Image

import difficulty_service as ds
from api.jobs.missing_table import PICTURE
from api.jobs.queue import Progress, claim
from api.jobs.store import Job, get_job
from api.worker.job_messages import Stage
from api.worker.job_observer import Observer
from api.worker.job_runner import run_job
from difficulty_service.base.tables import open_parquet, write_parquet
from difficulty_service.bodies.results import MissingPublic
from tests.boxed_images import WRITERS, Scene, many_scenes, write_image
from tests.factories import write_image_folder
from tests.service import ServiceClient, client_of, run_next_job

pytestmark = pytest.mark.analysis("missing_boxes")

GONE = (3, 8, 21)
"""Scenes whose second box is gone."""


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Boxes of scenes in which three objects have none, and a folder of whole images."""
    folder = tmp_path_factory.mktemp("missing")
    scenes = many_scenes(40)
    known = [
        Scene(each.name, [box for at, box in enumerate(each.boxes) if row not in GONE or at != 1])
        for row, each in enumerate(scenes)
    ]
    data = WRITERS["coco"](folder / "root" / "fruit", known)
    for scene in scenes:
        write_image(next(data.rglob(f"{scene.name}.png")), scene)
    write_image_folder(folder / "root" / "photos")
    return folder


@pytest.fixture(scope="module")
def client(roots: Path) -> Iterator[ServiceClient]:
    named = {"boxes": str(roots / "root")}
    with client_of(roots / "data", roots=named, max_queued_jobs=100) as client:
        yield client


def submitted(client: ServiceClient, path: str = "fruit", **options: object) -> str:
    body = {"dataset": {"root": "boxes", "path": path}, "scorers": ["rmd"], **options}
    answer = client.post("/v1/jobs", json=body)
    assert answer.status_code == 202, answer.text
    identity: str = answer.json()["id"]
    return identity


def claimed(client: ServiceClient) -> Job:
    services = client.services
    job = claim(services.engine, "worker", "cpu", 600.0)
    assert job is not None
    return job


@pytest.fixture(scope="module")
def searched(client: ServiceClient) -> str:
    """A finished job that looked for missing boxes in all images."""
    identity = submitted(client, missing_boxes=40, seed=3)
    run_next_job(client)
    return identity


@pytest.mark.long
def test_a_job_lists_the_regions_of_the_command(
    client: ServiceClient, searched: str, roots: Path, tmp_path: Path
) -> None:
    scores = tmp_path / "scores.parquet"
    data = roots / "root" / "fruit"
    ds.score_dataset(data, backbone="builtin", scorers=["rmd"], out=scores, progress=False, seed=3)
    expected = ds.missing_boxes(scores, sample=40, seed=3, progress=False)

    found = MissingPublic(**client.get(f"/v1/jobs/{searched}/missing").json())

    assert (found.images, found.images_of_dataset) == (40, 40)
    assert (found.windows, found.regions) == (expected.num_windows, len(expected.table))
    assert found.scores == f"job {searched}"
    names = expected.table.schema.names
    assert [{name: getattr(each, name) for name in names} for each in found.found] == [
        row | {"score": pytest.approx(row["score"], rel=1e-4)} for row in expected.table.to_pylist()
    ]
    gone = {many_scenes(40)[row].name for row in GONE}
    assert {Path(each.image).stem for each in found.found[: len(GONE)]} == gone


@pytest.mark.slow
def test_each_region_has_a_picture(client: ServiceClient, searched: str) -> None:
    regions = client.get(f"/v1/jobs/{searched}/missing").json()["found"]

    answers = [client.get(region["picture"]) for region in regions]

    assert {each.headers["content-type"] for each in answers} == {"image/webp"}
    for answer in answers:
        with Image.open(io.BytesIO(answer.content)) as picture:
            assert picture.format == "WEBP"
    beyond = client.get(f"/v1/jobs/{searched}/missing/{len(regions)}.webp")
    assert (beyond.status_code, beyond.json()["type"]) == (404, "/problems/not-found")


def test_its_pages_show_the_regions(client: ServiceClient, searched: str) -> None:
    regions = client.get(f"/v1/jobs/{searched}/missing").json()["found"]

    summary = client.get(f"/jobs/{searched}").text
    page = client.get(f"/jobs/{searched}/missing").text

    assert f'href="/jobs/{searched}/missing"' in summary
    pictures = re.findall(r'<img src="(/v1/jobs/[^"]+webp)"', page)
    assert pictures == [region["picture"] for region in regions]
    assert regions[0]["image"] in page


@pytest.mark.slow
def test_a_region_whose_image_is_gone_has_no_picture(client: ServiceClient, roots: Path) -> None:
    identity = submitted(client, missing_boxes=2)
    services = client.services
    run_next_job(client)
    job = get_job(services.engine, None, identity)
    assert job is not None
    assert job.result is not None
    file = roots / "data" / "artifacts" / job.result.prefix / "missing.parquet"
    with open_parquet(file) as known:
        table = known.read()
    pictures = [None, *table[PICTURE].to_pylist()[1:]]
    at = table.schema.get_field_index(PICTURE)
    write_parquet(file, table.set_column(at, PICTURE, pa.array(pictures, pa.binary())))

    first, second, *_ = client.get(f"/v1/jobs/{identity}/missing").json()["found"]

    assert first["picture"] is None
    assert client.get(second["picture"]).status_code == 200
    assert client.get(f"/v1/jobs/{identity}/missing/0.webp").status_code == 404
    assert client.get(f"/jobs/{identity}/missing").text.count("<img src=") == len(pictures) - 1


@pytest.mark.slow
def test_the_form_asks_for_it(client: ServiceClient) -> None:
    assert 'name="missing_boxes"' in client.get("/").text
    data = {"source": "root", "root": "boxes", "path": "fruit", "token": "form"}

    assert client.post("/", data=data | {"missing_boxes": "2"}).status_code == 200

    job = run_next_job(client)
    assert client.get(f"/v1/jobs/{job.id}/missing").json()["images"] == 2


@pytest.mark.slow
def test_a_job_that_did_not_look_says_so(client: ServiceClient) -> None:
    identity = submitted(client)
    run_next_job(client)

    answer = client.get(f"/v1/jobs/{identity}/missing")

    assert answer.status_code == 409
    assert "missing_boxes" in answer.json()["remedy"]
    assert client.get(f"/jobs/{identity}/missing").status_code == 409
    assert "Objects without a box" not in client.get(f"/jobs/{identity}").text


@pytest.mark.parametrize(
    "options",
    [
        {"augment_runs": 2},
        {"outlines": True},
        {"text_column": "words"},
        {"tags": "tags"},
        {"missing_boxes": 0},
    ],
    ids=str,
)
def test_what_cannot_be_searched_is_refused_at_once(
    client: ServiceClient, options: dict[str, object]
) -> None:
    body = {"dataset": {"root": "boxes", "path": "fruit"}, "missing_boxes": 5, **options}

    answer = client.post("/v1/jobs", json=body)

    assert answer.status_code == 422
    assert "missing_boxes" in answer.text


def test_whole_images_have_no_missing_boxes(client: ServiceClient) -> None:
    submitted(client, path="photos", missing_boxes=5)
    job, services = claimed(client), client.services
    stages: list[Stage] = []
    observer = Observer(enter=stages.append)

    with pytest.raises(Exception, match="whole images") as caught:
        run_job(job, services.settings, services.engine, services.artifacts, observer)

    assert caught.value.field == "missing_boxes"  # type: ignore[attr-defined]
    assert Stage.EXTRACTING not in stages


@pytest.mark.slow
def test_windows_count_after_all_boxes(client: ServiceClient) -> None:
    submitted(client, missing_boxes=3)
    job, services = claimed(client), client.services
    told: list[Progress] = []

    run_job(job, services.settings, services.engine, services.artifacts, Observer(told.append))

    done = [each.done for each in told]
    assert done == sorted(done)
    boxes = 40 * 3 - len(GONE)
    (total,) = {each.total for each in told if each.done > boxes}
    assert total is not None
    assert done[-1] == total > boxes
