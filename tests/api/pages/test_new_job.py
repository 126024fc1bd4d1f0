"""The form for a new job answers whatever it is sent with a page that explains it."""

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.jobs import estimate
from api.pages.new_job import NewJob
from difficulty_service.settings.options import DatasetScoring
from tests.service import ServiceClient, client_of


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ServiceClient]:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    roots = {"photos": str(tmp_path / "photos")}
    with client_of(tmp_path / "data", follow_redirects=False, roots=roots) as client:
        yield client


def test_a_form_that_was_sent_before_with_other_entries_is_explained_and_can_be_sent_again(
    client: ServiceClient,
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


def test_mirror_images_are_asked_for_by_a_box_that_stays_checked(client: ServiceClient) -> None:
    form = {"source": "root", "root": "photos", "flip": "1"}

    refused = client.post("/", data=form | {"limit": "many"})
    client.post("/", data=form)
    client.post("/", data={"source": "root", "root": "photos"})

    assert 'name="flip" value="1" checked' in refused.text
    newest, first = client.get("/v1/jobs").json()["jobs"]
    assert (first["request"]["flip"], newest["request"]["flip"]) == (True, False)


def test_every_option_that_is_entered_is_in_the_request(client: ServiceClient) -> None:
    entered = {
        "source": "root",
        "root": "photos",
        "scorers": ["rmd", "suspicion", "agree", "kmeans", "knn"],
        "near_duplicates": "0.97",
        "shrinkage": "0.25",
        "label_column": " breed ",
        "corrupt": "fog:3",
        "on_error": "stop",
        "limit": "50",
    }

    answer = client.post("/", data=entered)

    assert answer.status_code == 303
    (job,) = client.get("/v1/jobs").json()["jobs"]
    request = job["request"]
    assert request["scorers"] == entered["scorers"]
    assert (request["near_duplicates"], request["shrinkage"]) == (0.97, 0.25)
    assert (request["label_column"], request["corrupt"]) == ("breed", "fog:3")
    assert (request["on_error"], request["limit"]) == ("stop", 50)


def test_every_option_of_a_dataset_is_in_one_group_of_the_form() -> None:
    shown = [each.name for group in NewJob().groups for each in group.fields]

    assert sorted(shown) == sorted({*DatasetScoring.model_fields, "missing_boxes"})


def test_an_option_without_a_default_says_what_holds_without_it() -> None:
    fields = [each for group in NewJob().groups for each in group.fields]
    entered = [each for each in fields if each.kind in {"choice", "lines", "number", "text"}]

    assert [each.name for each in entered if not each.usual and not each.unset] == []


def test_near_copies_are_found_at_the_usual_cosine_unless_another_one_is_entered() -> None:
    assert NewJob(near_copies="1").as_body()["near_duplicates"] == 0.97
    chosen = NewJob(near_copies="1", options={"near_duplicates": ("0.9",)})
    assert chosen.as_body()["near_duplicates"] == 0.9
    assert "near_duplicates" not in NewJob().as_body()


@pytest.mark.parametrize("name", ["two\nlines", "n" * 201])
def test_a_name_that_is_no_line_is_explained(client: ServiceClient, name: str) -> None:
    answer = client.post("/", data={"source": "root", "root": "photos", "name": name})

    assert answer.status_code == 422
    assert re.search('name="name"[^>]* aria-invalid="true"', answer.text)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"near_duplicates": "close"}, "near_duplicates: 'close' is no number"),
        ({"limit": "2.5"}, "limit: Input should be a valid integer"),
        ({"shrinkage": "oas "}, None),
        ({"scorers": "knnn"}, "did you mean 'knn'?"),
        ({"corrupt": "rain:3"}, "'rain'"),
    ],
)
def test_an_entry_that_is_wrong_is_explained_and_marked(
    client: ServiceClient, entry: dict[str, str], said: str | None
) -> None:
    answer = client.post("/", data={"source": "root", "root": "photos"} | entry)

    if said is None:
        assert answer.status_code == 303
        return
    (name,) = entry
    assert answer.status_code == 422
    assert said in html.unescape(answer.text)
    assert re.search(f'name="{name}"[^>]* aria-invalid="true"', answer.text)


def test_the_estimate_of_the_form_counts_the_samples_and_says_what_is_unknown(
    client: ServiceClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "LONGEST_COUNT", 300.0)
    for number in range(3):
        (tmp_path / "photos" / "cat" / f"{number}.png").touch()

    def estimated(**entries: str) -> str:
        answer = client.post("/estimate", data={"source": "root", "root": "photos"} | entries)
        assert answer.status_code == 200
        return html.unescape(re.sub("<[^>]+>", "", answer.text)).strip()

    unknown = "How long it takes is not known: no job with this network has finished here yet."
    (tmp_path / "photos" / "cat" / "notes.txt").touch()
    three, two = (f"Read as one folder per class: {n} images of 1 class (cat {n})." for n in (3, 2))
    assert [line for line in estimated().split("\n") if line.strip()] == [
        three,
        "Not read:1 not an image file by its extension '.txt' (cat/notes.txt)",
        f"3 samples. {unknown}",
    ]
    limited = estimated(flip="1", limit="2")
    assert limited.split("\n") == [two, f"2 samples, 2 passes over each. {unknown}"]
    assert estimated(limit="x") == "limit: 'x' is no number."
    assert estimated(path="no/where") == (
        "there is no 'no/where' in the root 'photos'. "
        "Name a folder, a file or files with wildcards below the root."
    )
    assert estimated(source="upload") == (
        "Choose a file to see how it would be read, and how long it may take."
    )


def test_without_roots_there_is_nothing_to_browse(client: ServiceClient, tmp_path: Path) -> None:
    with client_of(tmp_path / "other") as rootless:
        bare = rootless.get("/").text

    assert 'id="browse"' in client.get("/").text
    assert 'id="browse"' not in bare
    assert "<dialog" not in bare
