"""A finished job's scores, errors and thumbnails over HTTP."""

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from api.jobs.queue import claim, fail
from api.jobs.store import Job
from difficulty_service.bodies.jobs import JobError
from tests.service import ServiceClient, client_of, run_next_job
from tests.small_network import SMALL

COLOURS = {"cat": "red", "dog": "blue"}
EACH = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def photos(folder: Path) -> Path:
    """Two classes; a name with odd characters, one image turned by EXIF, one damaged."""
    photos = folder / "photos"
    for name, colour in COLOURS.items():
        (photos / name).mkdir(parents=True)
        for number in range(EACH):
            image = Image.new("RGB", (40 + number, 20), colour)
            image.putpixel((number, number), (9 * number, 255, 0))
            image.save(photos / name / f"{number}.png")
    odd = Image.new("RGB", (300, 200), "green")
    exif = Image.Exif()
    exif[0x0112] = 6
    odd.save(photos / "cat" / "ü ?#%.jpg", exif=exif)
    (photos / "dog" / "damaged.png").write_bytes(b"no image")
    return photos


@pytest.fixture(scope="module")
def client(folder: Path, photos: Path) -> Iterator[ServiceClient]:
    roots = {"photos": str(photos)}
    with client_of(folder / "data", roots=roots, default_backbone=SMALL) as client:
        yield client


@pytest.fixture(scope="module")
def job(client: ServiceClient) -> Job:
    """A job that was run as a worker runs it."""
    body = {"dataset": {"root": "photos"}, "shrinkage": "ledoit-wolf"}
    client.post("/v1/jobs", json=body).raise_for_status()
    return run_next_job(client)


def test_the_file_is_the_one_that_was_written(client: ServiceClient, job: Job) -> None:
    answer = client.get(f"/v1/jobs/{job.id}/scores.parquet")

    table = pq.read_table(pa.BufferReader(answer.content))
    assert answer.status_code == 200
    assert int(answer.headers["Content-Length"]) == len(answer.content)
    assert table.num_rows == 2 * EACH + 1
    assert f"{job.id}.parquet" in answer.headers["Content-Disposition"]


def test_parts_of_the_file_make_the_file(client: ServiceClient, job: Job) -> None:
    address = f"/v1/jobs/{job.id}/scores.parquet"
    whole = client.get(address)
    size = len(whole.content)
    only = {"If-Range": whole.headers["ETag"]}

    first = client.get(address, headers=only | {"Range": "bytes=0-999"})
    rest = client.get(address, headers=only | {"Range": "bytes=1000-"})

    assert (first.status_code, rest.status_code) == (206, 206)
    assert first.headers["Content-Range"] == f"bytes 0-999/{size}"
    assert first.content + rest.content == whole.content


def test_a_range_behind_the_end_is_refused_with_the_size(client: ServiceClient, job: Job) -> None:
    answer = client.get(f"/v1/jobs/{job.id}/scores.parquet", headers={"Range": "bytes=99999999-"})

    assert answer.status_code == 416
    assert answer.headers["Content-Range"].startswith("bytes */")
    assert answer.json()["type"] == "/problems/range-not-satisfiable"


def test_a_client_that_has_the_file_need_not_fetch_it_again(
    client: ServiceClient, job: Job
) -> None:
    address = f"/v1/jobs/{job.id}/scores.parquet"
    head = client.head(address)

    again = client.get(address, headers={"If-None-Match": head.headers["ETag"]})

    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["Content-Length"]) > 0
    assert (again.status_code, again.content) == (304, b"")


def test_pages_of_scores_are_rows_of_the_file(client: ServiceClient, job: Job) -> None:
    content = client.get(f"/v1/jobs/{job.id}/scores.parquet").content
    table = pq.read_table(pa.BufferReader(content)).sort_by([("rmd", "descending")])

    page = client.get(f"/v1/jobs/{job.id}/scores", params={"limit": 4}).json()
    rest = client.get(f"/v1/jobs/{job.id}/scores", params={"after": page["next"]}).json()

    seen = [row["sample_id"] for row in page["samples"] + rest["samples"]]
    assert seen == table["sample_id"].to_pylist()
    assert page["samples"][0]["rmd"] == table["rmd"][0].as_py()
    assert (page["matching"], rest["next"]) == (2 * EACH + 1, None)
    assert {*page["samples"][0]} == {*table.column_names, "thumbnail"}


def test_scores_of_one_class_are_asked_for_by_name(client: ServiceClient, job: Job) -> None:
    page = client.get(f"/v1/jobs/{job.id}/scores?label=dog&sort=rmd").json()

    assert {row["label_name"] for row in page["samples"]} == {"dog"}
    assert page["matching"] == EACH


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("sort=colour", "sort"),
        ("sort=-agree", "sort"),  # which was not asked for
        *[("label=fish", "label"), ("after=x", "after"), ("limit=0", "limit")],
    ],
)
def test_a_wrong_query_is_named(client: ServiceClient, job: Job, query: str, field: str) -> None:
    answer = client.get(f"/v1/jobs/{job.id}/scores?{query}")

    assert answer.status_code == 422
    assert answer.json()["field"] == field


def test_images_that_could_not_be_read_are_listed_without_paths_of_the_server(
    client: ServiceClient, job: Job, folder: Path
) -> None:
    answer = client.get(f"/v1/jobs/{job.id}/errors")

    assert [each["sample_id"] for each in answer.json()["errors"]] == ["dog/damaged.png"]
    assert answer.json()["errors"][0]["reason"]
    assert (answer.json()["total"], answer.json()["next"]) == (1, None)
    assert str(folder) not in answer.text


def test_errors_come_in_pages(client: ServiceClient, photos: Path) -> None:
    for number in range(5):
        (photos / "dog" / f"empty {number}.png").touch()
    client.post("/v1/jobs", json={"dataset": {"root": "photos"}, "shrinkage": 0.5})
    job = run_next_job(client)

    pages, after = [], 0
    while after is not None:
        page = client.get(f"/v1/jobs/{job.id}/errors?limit=2&after={after}").json()
        pages.append([each["sample_id"] for each in page["errors"]])
        after = page["next"]
    for number in range(5):
        (photos / "dog" / f"empty {number}.png").unlink()

    assert [len(page) for page in pages] == [2, 2, 2]
    assert len({sample_id for page in pages for sample_id in page}) == 6
    assert client.get(f"/v1/jobs/{job.id}/errors?after=1000").json()["errors"] == []


def test_every_scored_sample_has_a_thumbnail_at_the_address_in_its_row(
    client: ServiceClient, job: Job
) -> None:
    page = client.get(f"/v1/jobs/{job.id}/scores").json()

    for row in page["samples"]:
        answer = client.get(row["thumbnail"])
        picture = Image.open(io.BytesIO(answer.content))
        assert answer.headers["Content-Type"] == "image/jpeg"
        assert picture.format == "JPEG"
        assert max(picture.size) <= 128
    names = [row["sample_id"] for row in page["samples"]]
    assert "cat/ü ?#%.jpg" in names


def test_a_thumbnail_is_upright_and_as_large_as_asked(client: ServiceClient, job: Job) -> None:
    answer = client.get(f"/v1/jobs/{job.id}/thumbnails/cat%2F%C3%BC%20%3F%23%25.jpg?size=60")

    assert Image.open(io.BytesIO(answer.content)).size == (40, 60)


def test_a_thumbnail_that_was_made_needs_its_image_no_more(
    client: ServiceClient, job: Job, photos: Path
) -> None:
    address = f"/v1/jobs/{job.id}/thumbnails/cat/1.png"
    first = client.get(address)
    moved = (photos / "cat" / "1.png").rename(photos.parent / "moved.png")

    again = client.get(address)
    other_size = client.get(f"{address}?size=20")
    moved.rename(photos / "cat" / "1.png")

    assert again.content == first.content
    assert again.headers["ETag"] == first.headers["ETag"]
    assert other_size.status_code == 422


@pytest.mark.parametrize(
    ("sample_id", "status"),
    [
        ("cat/none.png", 404),
        ("../data/difficulty.sqlite", 404),
        ("%2e%2e%2fdata%2fdifficulty.sqlite", 404),
        ("%00", 404),
        ("dog/damaged.png", 422),
    ],
)
def test_there_is_no_thumbnail_of_anything_else(
    client: ServiceClient, job: Job, sample_id: str, status: int
) -> None:
    answer = client.get(f"/v1/jobs/{job.id}/thumbnails/{sample_id}")

    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_a_job_without_results_has_a_reason(client: ServiceClient) -> None:
    engine = client.engine
    address = client.post("/v1/jobs", json={"dataset": {"root": "photos"}}).headers["Location"]

    waiting = client.get(f"{address}/scores")
    job = claim(engine, "worker", "cpu", 60.0)
    assert job is not None
    fail(engine, job, JobError(type="x", detail="y"), retry_in=None)
    failed = client.get(f"{address}/scores.parquet")

    assert (waiting.status_code, failed.status_code) == (409, 409)
    assert "queued" in waiting.json()["detail"]
    assert "failed" in failed.json()["detail"]


def test_missing_files_are_answered_with_gone(client: ServiceClient) -> None:
    client.post("/v1/jobs", json={"dataset": {"root": "photos"}, "shrinkage": 0.25})
    job = run_next_job(client)
    artifacts = client.services.artifacts

    artifacts.delete_prefix(f"jobs/{job.id}")

    assert client.get(f"/v1/jobs/{job.id}/scores.parquet").status_code == 410
    assert client.get(f"/v1/jobs/{job.id}/scores").status_code == 410


@pytest.mark.parametrize("name", ["scores", "scores.parquet", "errors"])
def test_damaged_files_are_not_served(client: ServiceClient, job: Job, name: str) -> None:
    assert client.get(f"/v1/jobs/{job.id}/{name}").status_code == 200
    root = Path(client.services.artifacts.root.path)
    stored = root / f"jobs/{job.id}/a{job.attempt}" / f"{name.removesuffix('.parquet')}.parquet"
    whole = stored.read_bytes()

    stored.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    answer = client.get(f"/v1/jobs/{job.id}/{name}")
    stored.write_bytes(whole)

    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/damaged")


def test_thumbnails_go_with_their_job(client: ServiceClient, folder: Path) -> None:
    client.post("/v1/jobs", json={"dataset": {"root": "photos"}, "shrinkage": 0.75})
    job = run_next_job(client)
    client.get(f"/v1/jobs/{job.id}/thumbnails/cat/1.png").raise_for_status()
    assert len(list((kept := folder / "data" / "thumbnails" / job.id).iterdir())) == 1

    client.delete(f"/v1/jobs/{job.id}")

    assert not kept.exists()


@pytest.mark.parametrize(
    ("address", "statuses"),
    [
        ("scores.parquet", {"200", "206", "304", "404", "409", "410", "416", "500"}),
        ("scores", {"200", "404", "409", "410", "422", "500"}),
        ("errors", {"200", "404", "409", "410", "422", "500"}),
        ("thumbnails/{sample_id}", {"200", "404", "409", "410", "422", "500"}),
    ],
)
def test_every_status_is_declared(client: ServiceClient, address: str, statuses: set[str]) -> None:
    paths = client.get("/openapi.json").json()["paths"]

    assert paths[f"/v1/jobs/{{job_id}}/{address}"]["get"]["responses"].keys() >= statuses
