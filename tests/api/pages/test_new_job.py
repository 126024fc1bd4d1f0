"""The form for a new job answers whatever it is sent with a page that explains it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.settings import Settings


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    settings = Settings(
        data_dir=tmp_path / "data",
        roots={"photos": str(tmp_path / "photos")},
        default_backbone="builtin",
        device="cpu",
    )
    with TestClient(
        create_app(settings), base_url="http://localhost", follow_redirects=False
    ) as client:
        yield client


def test_a_form_that_was_sent_before_with_other_entries_is_explained_and_can_be_sent_again(
    client: TestClient,
) -> None:
    form = {"source": "root", "root": "photos", "token": "of the page"}
    first = client.post("/", data=form)
    same = client.post("/", data=form)

    other = client.post("/", data=form | {"limit": "5"})

    assert first.status_code == 303
    assert same.headers["location"] == first.headers["location"]
    assert other.status_code == 422
    assert "this form was sent before with other entries" in other.text
    assert 'value="of the page"' not in other.text


def test_mirror_images_are_asked_for_by_a_box_that_stays_checked(client: TestClient) -> None:
    form = {"source": "root", "root": "photos", "flip": "1"}

    refused = client.post("/", data=form | {"limit": "many"})
    client.post("/", data=form)
    client.post("/", data={"source": "root", "root": "photos"})

    assert 'name="flip" value="1" checked' in refused.text
    newest, first = client.get("/v1/jobs").json()["jobs"]
    assert (first["request"]["flip"], newest["request"]["flip"]) == (True, False)
