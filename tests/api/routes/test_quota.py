"""The quota of a key over HTTP: what is refused, and that deleting makes room at once."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api.jobs.files import scratch_folder
from api.jobs.store import Job
from tests.service import ServiceClient, announce, client_of

LIMIT = 4096


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ServiceClient]:
    """A client whose key may keep little."""
    (tmp_path / "photos" / "train").mkdir(parents=True)
    roots = {"photos": str(tmp_path / "photos")}
    limits = {"max_stored_bytes": LIMIT, "max_open_uploads": 2}
    with client_of(tmp_path / "data", roots=roots, **limits) as client:
        yield client


def test_the_usage_of_a_key_has_its_uploads_and_its_limits(client: ServiceClient) -> None:
    client.put(announce(client, size=None), content=b"x" * 100)
    announce(client, size=50)

    assert client.get("/v1/usage").json() == {
        "upload_bytes": 150,
        "result_bytes": 0,
        "feature_bytes": 0,
        "total_bytes": 150,
        "max_bytes": LIMIT,
        "open_uploads": 2,
        "max_open_uploads": 2,
    }


def test_an_upload_of_unknown_size_ends_where_the_quota_does(client: ServiceClient) -> None:
    address = announce(client)
    client.put(address, content=b"x" * 4000)

    refused = client.put(f"{address}?offset=4000", content=b"x" * 200)
    resumed = client.put(f"{address}?offset=4000", content=b"x" * 96)

    assert refused.status_code == 507
    assert refused.json()["type"] == "/problems/quota"
    assert refused.headers["Upload-Offset"] == "4000"
    assert "DELETE /v1/jobs/{job_id}" in refused.json()["remedy"]
    assert (resumed.status_code, resumed.json()["received"]) == (200, 4096)


def test_deleting_an_upload_makes_room_at_once(
    client: ServiceClient, body: dict[str, object]
) -> None:
    address = announce(client, size=LIMIT)
    refused = [
        client.post("/v1/uploads", json={"format": "zip", "size": 1}),
        client.post("/v1/jobs", json=body),
    ]

    client.delete(address)

    assert [(each.status_code, each.json()["type"]) for each in refused] == [
        (507, "/problems/quota")
    ] * 2
    assert client.post("/v1/jobs", json=body).status_code == 202


def test_open_uploads_are_limited_in_number(client: ServiceClient) -> None:
    announce(client, size=1)
    announce(client, size=1)

    refused = client.post("/v1/uploads", json={"format": "zip", "size": 1})

    assert refused.status_code == 429
    assert refused.json()["type"] == "/problems/too-many-uploads"
    assert int(refused.headers["Retry-After"]) > 0


def test_the_form_of_a_new_job_shows_that_nothing_is_left(client: ServiceClient) -> None:
    announce(client, size=LIMIT)

    shown = client.post("/", data={"root": "photos", "path": "train", "token": "t"})

    assert shown.status_code == 422
    assert "4,096 bytes" in shown.text


def test_the_page_of_jobs_shows_what_the_key_keeps_and_how_to_make_room(
    client: ServiceClient,
) -> None:
    announce(client, size=1096)

    begun = client.get("/").text
    announce(client, size=3000)
    full = client.get("/").text

    assert "1.1 kB of 4.1 kB: uploads 1.1 kB" in begun
    assert "1 upload of at most 2 is open" in begun
    assert "To free space, delete finished jobs" in begun
    assert "Nothing more is taken" not in begun
    assert "Nothing more is taken" in full


def test_a_table_of_columns_is_refused_where_nothing_is_left(
    client: ServiceClient, finished: Callable[[], Job]
) -> None:
    job = finished()
    announce(client, size=LIMIT)

    refused = client.put(f"/v1/jobs/{job.id}/columns/t.csv", content=b"sample_id,a\n")

    assert (refused.status_code, refused.json()["type"]) == (507, "/problems/quota")
    assert not scratch_folder(client.settings).exists()
