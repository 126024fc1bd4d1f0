"""A score file is explored without a service, and marks stay with it."""

from pathlib import Path

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from api.app import create_app
from api.explore import explore, explorer_settings, import_scores, root_and_path
from api.jobs.store import Job
from api.storage.artifacts import open_artifacts
from api.storage.database import open_database
from difficulty_service.errors import ConfigError
from difficulty_service.score_file import read_scores, write_scores


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    """Scores of four pictures of two classes, in CSV."""
    ids = []
    for name, colour in (("cat", "red"), ("dog", "blue")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (20 + number, 20), colour).save(
                tmp_path / "photos" / name / f"{number}.png"
            )
            ids.append(f"{name}/{number}.png")
    table = pa.table(
        {
            "sample_id": ids,
            "label": pa.array([0, 0, 1, 1], pa.int32()),
            "label_name": ["cat", "cat", "dog", "dog"],
            "rmd": [4.0, 3.0, 2.0, None],
            "nearest_label": pa.array([1, 0, 1, None], pa.int32()),
            "label_margin": [2.0, -1.0, -2.0, None],
        }
    )
    provenance = {
        "class_names": ["cat", "dog"],
        "dataset": str(tmp_path / "photos"),
        "dataset_options": {},
        "backbone": "builtin",
    }
    write_scores(tmp_path / "scores.csv", table, provenance)
    return tmp_path / "scores.csv"


def opened(scores: Path) -> tuple[TestClient, Job]:
    content = read_scores(scores)
    location = str(content.provenance["dataset"])
    settings = explorer_settings(scores, location, 0)
    with open_database(settings) as engine:
        artifacts = open_artifacts(settings.artifact_root)
        job = import_scores(engine, artifacts, content, location)
    return TestClient(create_app(settings), base_url="http://localhost"), job


def test_the_images_of_the_file_are_shown(scores: Path) -> None:
    client, job = opened(scores)

    with client:
        summary = client.get(f"/jobs/{job.id}").text
        images = client.get(f"/jobs/{job.id}/images?sort=hardest").text
        picture = client.get(f"/jobs/{job.id}/images/2/picture")

    assert "<b>1</b> of 3 images looks more like another class than its own." in summary
    assert [images.index(f'id="image-{row}"') for row in range(4)] == sorted(
        images.index(f'id="image-{row}"') for row in range(4)
    )
    assert picture.headers["content-type"] == "image/jpeg"


def test_marks_are_there_when_the_file_is_opened_again(scores: Path) -> None:
    client, job = opened(scores)
    change = {"marks": [{"sample_id": "dog/0.png", "decision": {"mark": "drop"}}]}
    with client:
        client.post(f"/v1/jobs/{job.id}/marks", json=change).raise_for_status()

    again, same = opened(scores)
    with again:
        marks = again.get(f"/v1/jobs/{same.id}/marks").json()["marks"]

    assert [mark["sample_id"] for mark in marks] == ["dog/0.png"]


def test_a_picture_that_is_gone_is_replaced_by_the_reason(scores: Path) -> None:
    client, job = opened(scores)
    (scores.parent / "photos").rename(scores.parent / "moved")

    with client:
        answer = client.get(f"/jobs/{job.id}/images/2/picture")

    assert answer.status_code == 410
    assert answer.headers["content-type"] == "image/svg+xml"
    assert "the dataset can no" in answer.text


def test_jobs_are_shown_but_not_taken(scores: Path) -> None:
    client, _ = opened(scores)
    body = {"dataset": {"root": scores.parent.name, "path": "photos"}}

    with client:
        page = client.get("/").text
        answer = client.post("/v1/jobs", json=body)

    assert "Look at the images" in page
    assert "Score a dataset" not in page
    assert answer.status_code == 403


def test_a_folder_that_cannot_be_made_is_explained(scores: Path) -> None:
    scores.with_suffix(".explorer").write_text("in the way")

    with pytest.raises(ConfigError, match="where marks are kept"):
        explore(scores, None, None, 0, print, print)


def test_the_server_answers_this_machine_only(scores: Path) -> None:
    settings = explorer_settings(scores, "photos", 0)

    assert settings.host == "127.0.0.1"
    assert settings.data_dir == scores.with_suffix(".explorer")


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/data/photos", (("data", "/data"), "photos")),
        ("s3://bucket/photos", (("dataset", "s3://bucket/photos"), "")),
    ],
)
def test_a_dataset_lies_below_a_root(location: str, expected: tuple[tuple[str, str], str]) -> None:
    assert root_and_path(location) == expected


def test_a_name_of_another_site_that_leads_here_is_not_answered(scores: Path) -> None:
    client, job = opened(scores)
    with client:
        own = client.get(f"/jobs/{job.id}")
        other = client.get(f"/jobs/{job.id}", headers={"host": "rebound.example:80"})

    assert own.status_code == 200
    assert other.status_code == 400
    assert job.id not in other.text
