"""A job whose samples are texts: what it scores, and what its pages show of them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.jobs.store import Job
from difficulty_service.interface.score import score_dataset
from tests.service import ServiceClient, client_of, run_next_job

SUBJECTS = {
    "cooking": "boil the water, add salt and pepper, stir the soup and bake the bread",
    "sailing": "hoist the sail, mind the wind and the tide, steer the boat into the harbour",
}
HOSTILE = "<script>alert(1)</script> & stir the soup"
EACH = 20


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceClient]:
    """A service with a table of texts on two subjects, the first of which looks like HTML."""
    folder = tmp_path_factory.mktemp("service")
    texts, labels = [], []
    for name, sentence in SUBJECTS.items():
        words = sentence.split()
        for number in range(EACH):
            texts.append(" ".join(words[number % 5 :] + words[: number % 7]))
            labels.append(name)
    texts[0] = HOSTILE
    (folder / "texts").mkdir()
    pq.write_table(pa.table({"body": texts, "label": labels}), folder / "texts/t.parquet")
    settings = {"roots": {"texts": str(folder / "texts")}, "max_pixels": 1000}  # of images only
    with client_of(folder / "data", follow_redirects=False, **settings) as client:
        yield client


def client_table(client: ServiceClient) -> Path:
    """The table of the service of a client."""
    settings = client.settings
    return Path(settings.roots["texts"], "t.parquet")


def submitted(client: ServiceClient, **fields: Any) -> Any:  # noqa: ANN401 - an answer
    body = {"dataset": {"root": "texts", "path": "t.parquet"}, "text_column": "body", **fields}
    return client.post("/v1/jobs", json=body)


@pytest.fixture(scope="module")
def job(client: ServiceClient) -> Job:
    """A job of texts that was run as a worker runs it."""
    submitted(client).raise_for_status()
    return run_next_job(client)


@pytest.mark.slow
def test_texts_are_scored_as_by_the_interface(client: ServiceClient, job: Job) -> None:
    expected = score_dataset(str(client_table(client)), modality="text", text_column="body").table

    rows = client.get(f"/v1/jobs/{job.id}/scores?limit=100&sort=label").json()["samples"]

    assert job.request["backbone"] == "builtin-text"
    found = {row["sample_id"]: row["rmd"] for row in rows}
    names = expected["sample_id"].to_pylist()
    assert found == pytest.approx(dict(zip(names, expected["rmd"].to_pylist(), strict=True)))


def test_the_picture_of_a_text_shows_its_words_and_no_markup(
    client: ServiceClient, job: Job
) -> None:
    picture = client.get(f"/jobs/{job.id}/images/0/picture")

    assert picture.headers["content-type"] == "image/svg+xml"
    shown = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture.text))
    assert shown == "&lt;script&gt;alert(1)&lt;/script&gt; &amp; stir the soup"


def test_the_page_of_a_text_has_the_whole_of_it(client: ServiceClient, job: Job) -> None:
    page = client.get(f"/jobs/{job.id}/images/0").raise_for_status().text
    (address,) = re.findall(r'hx-get="([^"]*/text)"', page)

    part = client.get(address, headers={"HX-Request": "true"}).raise_for_status().text

    assert part.strip() == (
        '<p class="whole-text" dir="auto">&lt;script&gt;alert(1)&lt;/script&gt; &amp; stir the '
        "soup</p>"
    )


@pytest.mark.parametrize(
    "page",
    [
        "",
        "/images",
        "/images?q=nothing",
        "/classes",
        "/pairs",
        "/pairs/0/1",
        "/copies",
        "/map",
        "/errors",
    ],
)
def test_pages_of_texts_do_not_speak_of_images(client: ServiceClient, job: Job, page: str) -> None:
    shown = client.get(f"/jobs/{job.id}{page}").raise_for_status().text
    words = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", shown, flags=re.DOTALL)

    assert re.findall(r"(?i).{0,20}\bimages?\b.{0,20}", words) == []
    assert "text" in words


def test_a_text_has_no_thumbnail_and_no_row_beyond_the_last(
    client: ServiceClient, job: Job
) -> None:
    thumbnail = client.get(f"/v1/jobs/{job.id}/thumbnails/t.parquet%230")

    assert thumbnail.status_code == 422
    assert "it is a text" in thumbnail.json()["detail"]
    assert client.get(f"/jobs/{job.id}/images/{2 * EACH}/text").status_code == 404


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"flip": True}, "flip would change nothing"),
        (
            {"augment_runs": 2, "image_column": "body"},
            "image_column and augment_runs would",
        ),
        ({"backbone": "builtin"}, "builtin encodes images, and the samples are texts"),
        ({"backbone": "transformers:../data"}, "is not offered here"),
        ({"text_column": None, "backbone": "builtin-text"}, "encodes texts"),
    ],
)
def test_what_does_not_fit_texts_is_refused(
    client: ServiceClient, fields: dict[str, Any], problem: str
) -> None:
    answer = submitted(client, **fields)

    assert answer.status_code == 422
    assert problem in str(answer.json())


@pytest.fixture(scope="module")
def scored_job(client: ServiceClient, job: Job) -> Job:
    """The job as others find it once it has succeeded."""
    found: dict[str, Any] = client.get(f"/v1/jobs/{job.id}").json()
    assert found["state"] == "succeeded"
    return job


def test_single_texts_are_scored_as_those_of_the_job(
    client: ServiceClient, scored_job: Job
) -> None:
    texts = pq.read_table(client_table(client))["body"].to_pylist()
    rows = client.get(f"/v1/jobs/{scored_job.id}/scores?limit=100").json()["samples"]
    of_job = {row["sample_id"]: row["rmd"] for row in rows}
    body = {"texts": texts[1:9], "labels": ["cooking"] * 8}

    answer = client.post(f"/v1/gaussians/{scored_job.id}/score", json=body).raise_for_status()

    samples = answer.json()["samples"]
    expected = [of_job[f"t.parquet#{row}"] for row in range(1, 9)]
    assert [each["rmd"] for each in samples] == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert {each["nearest_label"]["name"] for each in samples} == {"cooking"}


def test_a_single_text_without_a_label_has_the_nearest(
    client: ServiceClient, scored_job: Job
) -> None:
    body = {"texts": ["steer the boat into the harbour", ""]}

    answer = client.post(f"/v1/gaussians/{scored_job.id}/score", json=body).raise_for_status()

    first, empty = answer.json()["samples"]
    assert (first["label"], first["nearest_label"]["name"]) == (None, "sailing")
    assert empty["rmd"] is not None


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"texts": ["a"] * 257}, 413, None),
        ({"texts": ["a" * 1_000_001]}, 413, "texts.0"),
        ({"texts": ["a"], "labels": ["a", "b"]}, 422, "labels"),
        ({"texts": ["a"], "labels": []}, 422, "labels"),
        ({"texts": ["a"], "labels": ["gardening"]}, 422, "labels.0"),
        ({"texts": ["a"], "features": [[0.0]]}, 422, "body"),
        ({"texts": [1]}, 422, "texts.0"),
    ],
)
def test_single_texts_that_cannot_be_scored_name_their_field(
    client: ServiceClient, scored_job: Job, body: dict[str, Any], status: int, field: str | None
) -> None:
    answer = client.post(f"/v1/gaussians/{scored_job.id}/score", json=body)

    assert (answer.status_code, answer.json().get("field")) == (status, field)


def test_images_are_no_samples_of_a_job_of_texts(client: ServiceClient, scored_job: Job) -> None:
    files = {"images": ("a.png", b"some image", "image/png")}

    answer = client.post(f"/v1/gaussians/{scored_job.id}/score", files=files)

    assert answer.status_code == 422
    assert answer.json()["detail"] == f"the samples of job '{scored_job.id}' are texts"
    assert "`texts`" in answer.json()["remedy"]


@pytest.mark.slow
def test_the_form_takes_a_column_of_texts(client: ServiceClient, job: Job) -> None:
    form = {"source": "root", "root": "texts", "path": "t.parquet", "text_column": "body"}
    refused = client.post("/", data=form | {"limit": "many"})

    sent = client.post("/", data=form)

    assert 'name="text_column" value="body"' in refused.text
    assert sent.status_code == 303
    made = run_next_job(client)
    assert made.id != job.id
    listed = client.get(f"/v1/jobs/{made.id}").json()
    assert (listed["state"], listed["request"]["text_column"]) == ("succeeded", "body")


def test_backbones_say_what_they_encode(client: ServiceClient) -> None:
    listed = client.get("/v1/backbones").json()["backbones"]

    by_modality = {each["name"]: each["modality"] for each in listed}
    assert (by_modality["builtin"], by_modality["builtin-text"]) == ("image", "text")
    assert {each["name"] for each in listed if each["default"]} == {"builtin", "builtin-text"}
