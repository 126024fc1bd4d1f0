"""Jobs of boxes of objects, and what their pages show."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.boxed_images import COLOURS, WRITERS, many_scenes
from tests.service import ServiceClient, ask, client_of, run_next_job
from tests.small_network import SMALL


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same scenes in every format, of which one image is damaged."""
    folder = tmp_path_factory.mktemp("boxes")
    for form, write in WRITERS.items():
        write(folder / "root" / form, many_scenes(12))
        next((folder / "root" / form).rglob("scene003.png")).write_bytes(b"no image")
    return folder / "root"


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[ServiceClient]:
    with client_of(
        root.parent / "data", roots={"boxes": str(root)}, default_backbone=SMALL
    ) as client:
        yield client


@pytest.mark.parametrize("form", list(WRITERS))
def test_a_job_over_a_folder_of_boxes_shows_a_crop_of_each(
    form: str, client: ServiceClient
) -> None:
    data = {"source": "root", "root": "boxes", "path": form, "token": f"page {form}"}
    assert client.post("/", data=data | {"shrinkage": "ledoit-wolf"}).status_code == 200

    job = run_next_job(client)

    samples = client.get(f"/v1/jobs/{job.id}/scores", params={"limit": 100}).json()["samples"]
    assert len(samples) == 33
    assert {each["label_name"] for each in samples} == {*COLOURS}
    page = client.get(f"/jobs/{job.id}/images").text
    (address, *_) = re.findall(r'<img src="(/jobs/[^"?]+)', page)
    with Image.open(io.BytesIO(client.get(address).content)) as picture:
        assert picture.size == (58, 58)
        pixels = np.asarray(picture).astype(int)
    shares = [(abs(pixels - each).max(axis=2) < 40).mean() for each in COLOURS.values()]
    assert max(shares) > 0.6
    errors = client.get(f"/jobs/{job.id}/errors").text
    assert "not an image of a known format" in errors


def test_a_file_of_boxes_in_a_root_can_be_chosen(client: ServiceClient) -> None:
    found = client.get("/v1/folders", params={"root": "boxes", "path": "coco/annotations"}).json()
    (entry,) = found["entries"]
    body = {"dataset": {"root": "boxes", "path": entry["path"]}, "shrinkage": "ledoit-wolf"}

    assert client.post("/v1/jobs", json=body).status_code == 202

    job = run_next_job(client)
    assert client.get(f"/v1/jobs/{job.id}").json()["state"] == "succeeded"


def test_pages_of_boxes_speak_of_objects(client: ServiceClient) -> None:
    data = {"source": "root", "root": "boxes", "path": "coco", "token": "words"}
    assert client.post("/", data=data | {"shrinkage": "ledoit-wolf"}).status_code == 200
    job = run_next_job(client)

    summary, listed, drawn = (
        client.get(f"/jobs/{job.id}{page}").text for page in ("", "/images", "/map")
    )

    assert "33 objects" in re.sub(r"<[^>]+>", "", summary)
    assert "<b>33</b> of 33 objects" in listed
    assert "While an object has the focus" in listed
    assert "Similar objects lie close together" in drawn
    assert not [page for page in (summary, listed, drawn) if ">Images</a>" in page]


@pytest.mark.slow
@pytest.mark.analysis("selection")
def test_a_choice_of_boxes_is_one_of_objects(client: ServiceClient) -> None:
    body = {"dataset": {"root": "boxes", "path": "yolo"}, "shrinkage": "ledoit-wolf"}
    assert client.post("/v1/jobs", json=body).status_code == 202
    job = run_next_job(client)

    found = ask(client, job.id, kind="select", strategy="random", count=5)

    assert found["result"]["noun"] == "object", found  # type: ignore[index]
