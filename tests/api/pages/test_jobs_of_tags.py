"""The page of a job that judged tags tells how many of each are wrong and missing."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.jobs.store import Job
from tests.factories import write_tagged_images
from tests.service import ServiceClient, client_of, run_next_job
from tests.small_network import SMALL

pytestmark = pytest.mark.analysis("tags")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceClient]:
    folder: Path = tmp_path_factory.mktemp("service")
    (folder / "pictures").mkdir()
    write_tagged_images(folder / "pictures" / "tagged.parquet")
    roots = {"pictures": str(folder / "pictures")}
    with client_of(folder / "data", roots=roots, default_backbone=SMALL) as client:
        yield client


@pytest.fixture(scope="module")
def job(client: ServiceClient) -> Job:
    dataset = {"root": "pictures", "path": "tagged.parquet"}
    client.post("/v1/jobs", json={"dataset": dataset, "tags": "tags"}).raise_for_status()
    return run_next_job(client)


@pytest.mark.slow
def test_each_tag_has_its_numbers_and_leads_to_what_is_probably_wrong(
    client: ServiceClient, job: Job
) -> None:
    tags = client.get(f"/v1/jobs/{job.id}/tags").raise_for_status().json()["tags"]
    page = client.get(f"/jobs/{job.id}").raise_for_status().text

    table = page[page.index('id="tags"') : page.index('id="origin"')]
    assert {tag["tag"] for tag in tags} == set(re.findall(r"<bdi>(.*?)</bdi>", table))
    sure = {tag["tag"]: tag["probably_wrong"] or 0 for tag in tags}
    missing = {tag["tag"]: tag["probably_missing"] or 0 for tag in tags}
    links = re.findall(r'href="([^"]*)">(\d+)</a>', table)
    assert sorted(int(number) for _, number in links) == sorted(
        filter(None, [*sure.values(), *missing.values()])
    )
    assert links
    for link, number in links:
        listed = client.get(link.replace("&amp;", "&")).text
        assert f"<b>{number}</b> of" in listed


def test_a_job_of_tags_keeps_no_features_to_compare(client: ServiceClient, job: Job) -> None:
    answer = client.post(f"/v1/jobs/{job.id}/comparisons", json={"kind": "select", "count": 1})

    assert answer.status_code == 409
    assert "judged tags" in answer.json()["detail"]
