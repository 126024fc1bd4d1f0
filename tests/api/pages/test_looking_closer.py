"""What the pages of a job show by the features of its images: similar images and the map."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from api.jobs.files import columns_folder, delete_job_files, vectors_file
from api.jobs.store import Job, get_job
from api.pages import images
from api.results.maps import SimilarImages
from api.routes import conditions, marks
from api.settings import Settings
from api.storage.artifacts import Artifacts
from difficulty_service.datasets.storage import StoredPath
from difficulty_service.reports.similar import most_similar
from tests.factories import unpack_map, write_image_folder
from tests.service import ServiceClient, client_of, finished_job
from tests.small_network import SMALL

CLASSES = ("bird", "cat", "dog")
EACH = 10
EVERYTHING = "-9_-9_70000_-9_70000_70000_-9_70000"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceClient]:
    """A service with noise of a brightness per class; dog/9.png is a copy of cat/0.png."""
    folder = tmp_path_factory.mktemp("service")
    photos = write_image_folder(folder / "photos", CLASSES, EACH, size=(16, 16))
    (photos / "dog" / "9.png").write_bytes((photos / "cat" / "0.png").read_bytes())
    roots = {"photos": str(photos), "conflicts": str(photos.parent / "conflicts")}
    with client_of(folder / "data", roots=roots, default_backbone=SMALL) as client:
        yield client


@pytest.fixture(scope="module")
def job(client: ServiceClient) -> Job:
    """A job that no test changes."""
    return finished_job(client)


@pytest.fixture
def own_job(client: ServiceClient) -> Job:
    """A job that a test may change."""
    return finished_job(client)


def state_of(client: ServiceClient) -> tuple[Settings, Artifacts]:
    services = client.services
    return services.settings, services.artifacts


def remove(client: ServiceClient, job: Job, name: str) -> None:
    _, artifacts = state_of(client)
    (Path(artifacts.root.path) / f"jobs/{job.id}/a1/{name}").unlink()


def rows_of(client: ServiceClient, address: str) -> list[int]:
    page = client.get(address).raise_for_status().text
    return [int(row) for row in re.findall(r'id="image-(\d+)"', page)]


def test_the_page_of_an_image_has_the_twelve_most_similar_ones(
    client: ServiceClient, job: Job
) -> None:
    page = client.get(f"/jobs/{job.id}/images/3").text

    settings, artifacts = state_of(client)
    with artifacts.open(f"jobs/{job.id}/a1/vectors.npy") as file:
        (settings.data_dir / "copy.npy").write_bytes(file.read())
    strip = page.partition('id="similar"')[2].partition("</ul>")[0]
    shown = [int(row) for row in re.findall(r'/images/(\d+)">', strip)]
    assert shown == most_similar(np.load(settings.data_dir / "copy.npy"), 3, 12)
    assert (len(shown), 3 in shown) == (12, False)


def test_images_like_one_are_a_list_with_the_filters_orders_and_marks_of_any_other(
    client: ServiceClient, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "MOST_ALIKE", 15)
    settings, artifacts = state_of(client)
    with artifacts.open(f"jobs/{job.id}/a1/vectors.npy") as file:
        (settings.data_dir / "alike.npy").write_bytes(file.read())
    alike = [3, *most_similar(np.load(settings.data_dir / "alike.npy"), 3, 15)]
    address = f"/jobs/{job.id}/images"

    assert f'href="{address}?like=3"' in client.get(f"{address}/3").text
    assert rows_of(client, f"{address}?like=3") == alike
    assert rows_of(client, f"{address}?like=3&sort=file") == sorted(alike)
    assert rows_of(client, f"{address}?like=3&label=cat") == [
        row for row in alike if 10 <= row < 20
    ]
    assert rows_of(client, f"{address}?like=3&q=no") == []

    following = client.get(f"{address}/{alike[4]}?like=3&sort=alike").text
    assert f'id="next" rel="next" href="{address}/{alike[5]}?' in following

    scores = f"/v1/jobs/{job.id}/scores"
    matching = client.get(f"{scores}?like=3&sort=-rmd").json()
    assert matching["matching"] == len(alike)


def test_images_are_not_found_by_words_where_the_network_knows_none(
    client: ServiceClient, job: Job
) -> None:
    page = client.get(f"/jobs/{job.id}/images").text
    searched = client.get(f"/jobs/{job.id}/images?text=snow").text
    answer = client.get(f"/v1/jobs/{job.id}/scores?text=snow")

    assert 'name="text"' not in page
    assert "share no space with words; score the dataset again with a CLIP" in searched
    assert (answer.status_code, answer.json()["field"]) == (422, "text")
    assert "clip-vit-b16" in answer.json()["remedy"]


def test_many_images_are_searched_after_the_page_is_shown(
    client: ServiceClient, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"/jobs/{job.id}/images/3"
    whole = client.get(address).text
    monkeypatch.setattr(images, "MOST_SEARCHED_AT_ONCE", 5)

    page = client.get(address).text
    strip = client.get(f"{address}/similar", headers={"HX-Request": "true"}).text
    without_script = client.get(f"{address}/similar").text

    assert 'id="similar"' not in page
    assert f'hx-get="{address}/similar" hx-trigger="load"' in page
    assert strip.strip() in whole
    assert strip.strip() in without_script
    assert "<html" not in strip
    assert "<html" in without_script


def test_a_copy_of_the_image_is_shown_as_one(client: ServiceClient, job: Job) -> None:
    page = client.get(f"/jobs/{job.id}/images/10").text

    strip = page.partition('id="similar"')[2].partition("</ul>")[0]
    first = strip.partition("</li>")[0]
    assert "/images/29/picture" in first
    assert strip.count('class="copy"') == 1
    assert '<span class="copy">copy of this</span>' in first


def test_copies_with_different_labels_get_one_of_them(client: ServiceClient, own_job: Job) -> None:
    address = f"/jobs/{own_job.id}/copies"
    before = client.get(address).text

    after = client.post(address, data={"row": "10", "label": "cat"}).text
    refused = client.post(address, data={"row": "10", "label": "bird"})
    missing = client.post(address, data={"row": "3", "label": "cat"})

    assert "2 images have the same features as another, in 1 group." in before
    assert "The one with different labels comes first: they cannot both be right." in before
    assert 'id="copies-10" class="differ"' in before
    assert "<bdi>cat</bdi> ≠ <bdi>dog</bdi>" in before
    assert "All are <bdi>dog</bdi>" in before
    assert '<span class="copy">' not in before
    assert re.findall('<span class="copy">(.*?)</span>', after) == ["keep", "cat"]
    marks = client.get(f"/v1/jobs/{own_job.id}/marks").json()["marks"]
    assert [(each["row"], each["mark"], each["label"]) for each in marks] == [
        (10, "keep", None),
        (29, "relabel", "cat"),
    ]
    assert (refused.status_code, missing.status_code) == (422, 404)


def test_one_of_the_copies_is_kept_and_the_others_are_dropped(
    client: ServiceClient, own_job: Job
) -> None:
    address = f"/jobs/{own_job.id}/copies"

    before = client.get(address).text
    after = client.post(address, data={"row": "10", "one": "dog"}).text
    refused = [
        client.post(address, data={"row": "10", **wanted})
        for wanted in ({}, {"one": "bird"}, {"one": "dog", "label": "dog"})
    ]

    assert "Keep one <bdi>dog</bdi>" in before
    assert re.findall('<span class="copy">(.*?)</span>', after) == ["drop", "keep"]
    assert [answer.status_code for answer in refused] == [422] * 3


@pytest.fixture
def conflicts(client: ServiceClient) -> Job:
    """A job about three pairs of copies that are a cat and a dog each, of many images."""
    photos = Path(client.settings.roots["photos"]).parent / "conflicts"
    if not photos.exists():
        write_image_folder(photos, CLASSES, EACH, size=(16, 16))
        for number in (0, 1, 2):
            copy = photos / "dog" / f"{number}.png"
            copy.write_bytes((photos / "cat" / f"{number}.png").read_bytes())
    return finished_job(client, dataset={"root": "conflicts"})


def decided(client: ServiceClient, job: Job) -> dict[int, str]:
    marks = client.get(f"/v1/jobs/{job.id}/marks").json()["marks"]
    return {each["row"]: each["label"] or each["mark"] for each in marks}


def test_a_decision_is_applied_to_all_pairs_of_the_same_classes_and_undone_at_once(
    client: ServiceClient, conflicts: Job
) -> None:
    address = f"/jobs/{conflicts.id}/copies"
    before = client.get(address).text

    after = client.post(address, data={"row": "10", "label": "cat", "alike": "1"}).text
    marks = decided(client, conflicts)
    undone = client.post(address, data={"row": "10", "undo": "step"}).text

    assert before.count("Apply to all 3 pairs of these classes") == 3
    assert marks == {10: "keep", 11: "keep", 12: "keep", 20: "cat", 21: "cat", 22: "cat"}
    assert "3 groups: <bdi>all are cat</bdi>" in after
    assert after.count("<details><summary>") == 3
    assert decided(client, conflicts) == {}
    assert undone.count("Apply to all 3 pairs of these classes") == 3


def test_a_group_that_is_decided_folds_and_is_not_decided_again_with_others(
    client: ServiceClient, conflicts: Job
) -> None:
    address = f"/jobs/{conflicts.id}/copies"
    client.post(address, data={"row": "11", "one": "dog"})

    page = client.post(address, data={"row": "10", "label": "cat", "alike": "1"}).text
    marks = decided(client, conflicts)
    client.post(address, data={"row": "12", "undo": "group"})
    client.post(address, data={"row": "10", "undo": "step"})

    assert "one is kept: dog" in page
    assert "2 groups: <bdi>all are cat</bdi>" in page
    assert marks == {10: "keep", 12: "keep", 11: "drop", 21: "keep", 20: "cat", 22: "cat"}
    assert decided(client, conflicts) == {11: "drop", 21: "keep"}


def test_more_copies_than_can_be_marked_at_once_are_refused(
    client: ServiceClient, own_job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "MOST_AT_ONCE", 1)

    refused = client.post(f"/jobs/{own_job.id}/copies", data={"row": "10", "one": "dog"})

    assert refused.status_code == 422
    assert "2 images are more than the 1 that can be marked at once" in refused.text
    assert client.get(f"/v1/jobs/{own_job.id}/marks").json()["marks"] == []


def test_a_job_without_vectors_says_what_makes_them(client: ServiceClient, own_job: Job) -> None:
    remove(client, own_job, "vectors.npy")

    page = client.get(f"/jobs/{own_job.id}/images/3").raise_for_status().text

    assert 'id="similar"' not in page
    assert "Score the dataset again" in page


def test_vectors_in_remote_storage_are_copied_and_deleted_with_the_job(
    client: ServiceClient, own_job: Job
) -> None:
    settings, local = state_of(client)
    elsewhere = SubTreeFileSystem("/", LocalFileSystem())
    remote = Artifacts(StoredPath(elsewhere, local.root.path.lstrip("/")))
    finished = get_job(client.engine, None, own_job.id)
    assert finished is not None

    found = SimilarImages(settings, remote).get(finished, 3)
    copied = vectors_file(settings, finished).exists()
    delete_job_files(settings, remote, own_job.id)

    assert len(found or ()) == 12
    assert copied
    assert not columns_folder(settings, own_job.id).exists()
    assert local.list_folders(f"jobs/{own_job.id}") == []


def test_the_points_of_the_map_are_columns_that_a_browser_keeps(
    client: ServiceClient, job: Job
) -> None:
    answer = client.get(f"/jobs/{job.id}/map/points").raise_for_status()
    again = client.get(
        f"/jobs/{job.id}/map/points", headers={"If-None-Match": answer.headers["ETag"]}
    )
    plain = client.get(f"/jobs/{job.id}/map/points", headers={"Accept-Encoding": "identity"})

    points = unpack_map(answer.content)
    assert points["rows"].tolist() == list(range(30))
    assert points["labels"].tolist() == [0] * 10 + [1] * 10 + [2] * 10
    assert set(points["names"].values()) == set(CLASSES)
    assert len(points["nearest"]) == 30
    assert answer.headers["Content-Encoding"] == "gzip"
    assert (again.status_code, again.content) == (304, b"")
    assert plain.content == answer.content
    assert "Content-Encoding" not in plain.headers
    assert len(client.get(f"/jobs/{job.id}/map").content) < 9500


def test_a_job_without_a_map_has_no_points_and_says_why(
    client: ServiceClient, own_job: Job
) -> None:
    remove(client, own_job, "map.parquet")

    assert client.get(f"/jobs/{own_job.id}/map/points").status_code == 404
    assert "There is no map" in client.get(f"/jobs/{own_job.id}/map").text
    in_area = client.get(f"/jobs/{own_job.id}/images?area={EVERYTHING}").text
    assert "this job has no map" in in_area


def test_an_area_of_the_map_filters_the_images_and_can_be_marked(
    client: ServiceClient, own_job: Job
) -> None:
    points = unpack_map(client.get(f"/jobs/{own_job.id}/map/points").content)
    address = f"/jobs/{own_job.id}/images"

    everything = rows_of(client, f"{address}?area={EVERYTHING}&sort=file")
    nothing = rows_of(client, f"{address}?area=-9_-9_-8_-9_-8_-8")
    cats = rows_of(client, f"{address}?area={EVERYTHING}&label=cat&sort=file")
    marked = client.post(
        f"{address}/mark-matching?area={EVERYTHING}&label=cat",
        data={"mark": "drop"},
        follow_redirects=False,
    )

    assert everything == points["rows"].tolist()
    assert nothing == []
    assert cats == list(range(10, 20))
    assert f"area={EVERYTHING}" in marked.headers["Location"]
    marks = client.get(f"/v1/jobs/{own_job.id}/marks").json()["marks"]
    assert [mark["row"] for mark in marks] == cats
    following = client.get(f"{address}/10?area={EVERYTHING}&label=cat&sort=file").text
    assert re.search(r'id="next"[^>]*images/11\?[^"]*area=', following)


def test_a_malformed_area_is_explained(client: ServiceClient, job: Job) -> None:
    page = client.get(f"/jobs/{job.id}/images?area=1_2_3").raise_for_status().text

    assert "is no area of the map" in page
