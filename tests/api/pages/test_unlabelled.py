"""Jobs of images without labels, and their pages."""

import re
import shutil
from collections.abc import Iterator

import pytest

from api.jobs.store import Job
from tests.factories import write_image_folder
from tests.service import ServiceClient, client_of, finished_job, run_next_job
from tests.small_network import SMALL

EACH = 12


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceClient]:
    folder = tmp_path_factory.mktemp("unlabelled")
    classes = write_image_folder(folder / "classes", ("dark", "bright"), EACH, (32, 32))
    (folder / "flat").mkdir()
    for path in classes.glob("*/*.png"):
        shutil.copy(path, folder / "flat" / f"{path.parent.name} {path.name}")
    shutil.copy(folder / "flat" / "dark 0.png", folder / "flat" / "zzz copy.png")
    roots = {"flat": str(folder / "flat"), "classes": str(classes)}
    with client_of(folder / "data", roots=roots, default_backbone=SMALL) as client:
        yield client


@pytest.fixture(scope="module")
def job(client: ServiceClient) -> Job:
    """A job of a folder of images, as the form submits it."""
    form = {"source": "root", "root": "flat", "token": "page", "shrinkage": "ledoit-wolf"}
    assert client.post("/", data=form).status_code == 200
    return run_next_job(client)


def test_the_first_page_shows_what_needs_no_labels(client: ServiceClient, job: Job) -> None:
    page = client.get(f"/jobs/{job.id}").text

    assert "There are no labels: the images unlike all others come first." in page
    assert re.search(r"<b>2</b> in groups of copies", page)
    assert "with a fault" in page
    assert "Check these labels" not in page
    assert f"/jobs/{job.id}/classes" not in page
    assert f"/jobs/{job.id}/pairs" not in page


def test_the_list_begins_with_the_most_unusual_images(client: ServiceClient, job: Job) -> None:
    rows = client.get(f"/v1/jobs/{job.id}/scores").json()["samples"]
    page = client.get(f"/jobs/{job.id}/images").text

    distances = [row["md_agnostic"] for row in rows]
    assert distances == sorted(distances, reverse=True)
    assert "rmd" not in rows[0]
    shown = re.findall(r'class="given"><bdi>([^<]*)<', page)
    assert shown == [row["sample_id"] for row in rows]
    assert 'id="near"' not in page
    assert "Unlike anything first" in page


@pytest.mark.parametrize("page", ["classes", "pairs", "copies", "map", "errors", "images/3"])
def test_every_page_of_such_a_job_is_there(client: ServiceClient, job: Job, page: str) -> None:
    assert client.get(f"/jobs/{job.id}/{page}").status_code == 200


def test_a_person_names_classes_that_there_are_not_yet(client: ServiceClient, job: Job) -> None:
    page = client.get(f"/jobs/{job.id}/images/1").text
    change = {"row": 1, "decision": {"mark": "relabel", "label": "owl"}}

    answer = client.post(f"/v1/jobs/{job.id}/marks", json={"marks": [change]})

    assert answer.status_code == 200
    assert "data-new-classes" in page


def test_scores_by_labels_are_refused_with_the_remedy(client: ServiceClient, job: Job) -> None:
    answer = client.get(f"/v1/jobs/{job.id}/scores", params={"sort": "-suspicion"})

    assert answer.status_code == 422
    assert "clusters" in answer.text


def test_clusters_are_classes_of_a_job_that_keep_their_names_in_the_next_round(
    client: ServiceClient,
) -> None:
    wanted = {"dataset": {"root": "flat"}, "clusters": 2}
    first = finished_job(client, **wanted)
    changes = [{"row": 0, "decision": {"mark": "drop"}}]
    client.post(f"/v1/jobs/{first.id}/marks", json={"marks": changes}).raise_for_status()
    names = {
        row["sample_id"]: row["label_name"]
        for row in client.get(f"/v1/jobs/{first.id}/scores").json()["samples"]
    }

    second = finished_job(client, **wanted, marks=first.id)

    page = client.get(f"/jobs/{first.id}").text
    again = client.get(f"/v1/jobs/{second.id}/scores").json()["samples"]
    assert set(names.values()) == {"cluster 1", "cluster 2"}
    assert "2 clusters of the features" in page
    assert len(again) == len(names) - 1
    assert {row["sample_id"]: row["label_name"] for row in again}.items() <= names.items()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"clusters": 1}, "clusters"),
        ({"classes": "cat"}, "no two names"),
        ({"classes": "cat,dog", "clusters": "auto"}, "give one of them"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    client: ServiceClient, body: dict[str, object], problem: str
) -> None:
    answer = client.post("/v1/jobs", json={"dataset": {"root": "flat"}, **body})

    assert answer.status_code == 422
    assert problem in answer.text
