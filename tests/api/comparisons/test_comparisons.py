"""Finished jobs are compared by the features that they keep: copies, changes, choices."""

import io
import os
import re
import time
from typing import Any

import pyarrow.parquet as pq
import pytest

from api.jobs import comparisons as stored
from api.results import comparisons
from difficulty_service.analyses.selection import comparison as selection
from difficulty_service.analyses.versions import comparison as versions
from tests.api.stored_results import keys_below
from tests.service import ServiceClient, ask, finished_job

pytestmark = pytest.mark.analysis("leaks", "versions", "selection")


def read(client: ServiceClient, address: str) -> list[dict[str, object]]:
    content = client.get(address).raise_for_status().content
    return list(pq.read_table(io.BytesIO(content)).to_pylist())


@pytest.mark.slow
def test_copies_in_another_job_are_found_with_marks_that_drop_them(
    client: ServiceClient, jobs: tuple[str, str]
) -> None:
    train, test = jobs

    found = ask(client, train, kind="leaks", tests=[test], near_duplicates=0.9999)

    assert found["state"] == "succeeded", found
    (counted,) = found["result"]["tests"]  # type: ignore[index]
    assert (counted["copies"], counted["exact_copies"], counted["conflicting_copies"]) == (2, 2, 1)
    pairs = read(client, found["links"]["table"])  # type: ignore[index]
    assert [(row["test_id"], row["train_id"], row["kind"], row["conflict"]) for row in pairs] == [
        ("bird/wrong.png", "dog/2.png", "exact", True),
        ("cat/copy.png", "cat/1.png", "exact", False),
    ]
    drops = read(client, found["links"][f"marks of {test}"])  # type: ignore[index]
    assert {row["sample_id"]: row["mark"] for row in drops} == {
        "bird/wrong.png": "drop",
        "cat/copy.png": "drop",
    }


@pytest.mark.slow
def test_the_same_request_is_answered_with_what_was_found(
    client: ServiceClient, jobs: tuple[str, str]
) -> None:
    first = ask(client, jobs[0], kind="leaks", tests=[jobs[1]], near_duplicates="none")

    again = client.post(
        f"/v1/jobs/{jobs[0]}/comparisons",
        json={"kind": "leaks", "near_duplicates": "none", "tests": [jobs[1]]},
    )
    listed = client.get(f"/v1/jobs/{jobs[0]}/comparisons").json()["comparisons"]

    assert again.status_code == 200
    assert again.json() == first
    (own,) = (each for each in listed if each["id"] == first["id"])
    links = {"self": first["links"]["self"]}  # type: ignore[index]
    assert own == {**first, "result": None, "links": links}


@pytest.mark.slow
def test_a_new_version_is_compared_by_what_was_read(
    client: ServiceClient, jobs: tuple[str, str]
) -> None:
    found = ask(client, jobs[1], kind="diff", old=jobs[0], permutations=0)

    result = found["result"]
    assert found["state"] == "succeeded", found
    assert (result["added"], result["removed"], result["moved"], result["relabelled"]) == (  # type: ignore[index]
        9,
        22,
        2,
        1,
    )
    kinds = [row["kind"] for row in read(client, found["links"]["table"])]  # type: ignore[index]
    assert sorted(set(kinds)) == ["added", "moved", "removed"]


@pytest.mark.slow
def test_the_hardest_samples_are_chosen_and_a_second_choice_goes_on(
    client: ServiceClient, jobs: tuple[str, str]
) -> None:
    options = {"count": 4, "strategy": "hard", "batch_size": 2}

    first = ask(client, jobs[0], kind="select", **options)
    second = ask(client, jobs[0], kind="select", **options, chosen=first["id"])

    rows = client.get(f"/v1/jobs/{jobs[0]}/scores?sort=-rmd&limit=4").json()["samples"]
    ids = [row["sample_id"] for row in read(client, first["links"]["table"])]  # type: ignore[index]
    more = [row["sample_id"] for row in read(client, second["links"]["table"])]  # type: ignore[index]
    assert ids == [row["sample_id"] for row in rows]
    assert len(more) == 4
    assert not set(ids) & set(more)
    assert second["result"]["excluded"] == 4  # type: ignore[index]
    others = read(client, first["links"][f"marks of {jobs[0]}"])  # type: ignore[index]
    assert len(others) == 24 - 4


def test_what_cannot_be_compared_is_refused_in_words(
    client: ServiceClient, jobs: tuple[str, str]
) -> None:
    address = f"/v1/jobs/{jobs[0]}/comparisons"
    wrong = {
        "tests": ({"kind": "leaks", "tests": [jobs[0]]}, {"kind": "leaks", "tests": [jobs[1]] * 2}),
        "old": ({"kind": "diff", "old": "0" * 26},),
    }
    for field, bodies in wrong.items():
        for body in bodies:
            answer = client.post(address, json=body)
            assert (answer.status_code, answer.json()["field"]) == (422, field)
    useless = client.post(address, json={"kind": "select", "count": 1, "by": "rmd"})
    assert "changes nothing for random" in useless.json()["detail"]
    for body, field in (
        ({"kind": "merge"}, "body"),
        ({"kind": "select"}, "count"),
        ({"kind": "select", "count": 0}, "count"),
        ({"kind": "select", "count": 1, "tests": []}, "tests"),
        ({"kind": "select", "count": 1, "by": "camera"}, "body"),
        ({"kind": "leaks", "tests": [jobs[1], 7]}, "tests.1"),
    ):
        answer = client.post(address, json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert client.get(f"{address}/{'0' * 32}").status_code == 404
    assert client.get(f"{address}/../../x").status_code == 404


@pytest.mark.slow
def test_a_choice_that_is_impossible_fails_with_the_reason_and_may_be_deleted(
    client: ServiceClient, jobs: tuple[str, str]
) -> None:
    found = ask(client, jobs[0], kind="select", count=1000)
    address = found["links"]["self"]  # type: ignore[index]

    table = client.get(f"{address}/table.parquet")
    deleted = client.delete(address)

    assert found["state"] == "failed"
    assert "24" in str(found["failure"])
    assert table.status_code == 409
    assert deleted.status_code == 204
    assert client.get(address).status_code == 404


@pytest.mark.slow
def test_a_comparison_goes_with_its_files_when_it_is_deleted(
    client: ServiceClient, jobs: tuple[str, str]
) -> None:
    artifacts = client.services.artifacts
    found = ask(client, jobs[1], kind="select", count=2)
    folder = f"jobs/{jobs[1]}/a1/comparisons/{found['id']}"
    before = keys_below(artifacts, folder)

    client.delete(found["links"]["self"]).raise_for_status()  # type: ignore[index]

    assert len(before) == 3
    assert keys_below(artifacts, folder) == []


@pytest.mark.slow
def test_a_process_that_dies_is_told_and_another_request_tries_again(
    client: ServiceClient, jobs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(comparisons, "serve", os.kill)  # which refuses these arguments
        failed = ask(client, jobs[1], kind="select", count=3)

    again = ask(client, jobs[1], kind="select", count=3)

    assert failed["failure"] == "its process was ended with exit code 1"
    assert again["state"] == "succeeded"


def test_a_comparison_that_takes_too_long_is_ended(
    client: ServiceClient, jobs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparisons, "LONGEST", 0.01)

    found = ask(client, jobs[1], kind="select", count=5)

    assert str(found["failure"]).startswith("it took more than")


@pytest.mark.parametrize(
    ("limit", "detail"),
    [
        ("MOST_OF_ONE", "0 comparisons of this key wait or are being made"),
        ("MOST_WAITING", "as many comparisons wait as may"),
    ],
)
def test_more_comparisons_than_may_wait_are_refused_for_now_without_a_word_about_other_keys(
    client: ServiceClient,
    jobs: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    detail: str,
) -> None:
    monkeypatch.setattr(comparisons, limit, 0)

    answer = client.post(
        f"/v1/jobs/{jobs[0]}/comparisons", json={"kind": "select", "count": 1, "seed": 9}
    )

    assert (answer.status_code, answer.json()["detail"]) == (429, detail)
    assert answer.headers["Retry-After"]
    assert answer.json()["remedy"] == "wait for one of them"


def test_a_key_that_keeps_all_that_it_may_asks_for_nothing_more(
    client: ServiceClient, jobs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    services = client.services
    full = services.settings.model_copy(update={"max_stored_bytes": 1})
    monkeypatch.setattr(services.comparisons, "settings", full)
    body = {"kind": "select", "count": 1, "seed": 8}

    answer = client.post(f"/v1/jobs/{jobs[0]}/comparisons", json=body)

    assert answer.status_code == 507
    assert answer.json()["type"] == "/problems/quota"


def press(client: ServiceClient, job: str, **entered: object) -> str:
    """The page of what a form asked for, once it is there or has failed."""
    address = f"/jobs/{job}/comparisons"
    answer = client.post(address, data=entered, follow_redirects=False)
    assert answer.status_code == 303, answer.text
    while True:
        page = client.get(answer.headers["location"]).raise_for_status().text
        if "hx-trigger" not in page.partition('id="tray-box"')[0]:
            return page
        fragment = client.get(answer.headers["location"], headers={"HX-Request": "true"})
        assert "<progress" in fragment.text or fragment.headers["HX-Refresh"] == "true"
        time.sleep(0.3)  # a busy machine takes long, and a key may ask 600 times a minute


def test_the_page_shows_copies_side_by_side_with_pictures_of_both_jobs(
    client: ServiceClient, jobs: tuple[str, str]
) -> None:
    train, test = jobs

    page = press(client, train, kind="leaks", tests=test, near_duplicates="0.9999")

    rows = [
        client.get(f"/v1/jobs/{job}/scores?q={name}").json()["samples"][0]
        for job, name in ((test, "wrong.png"), (train, "dog/2.png"))
    ]
    assert [row["sample_id"] for row in rows] == ["bird/wrong.png", "dog/2.png"]
    assert page.index(f'href="/jobs/{test}/images/') < page.index(f'href="/jobs/{train}/images/')
    assert '<li class="differ">' in page
    assert "<b>2</b> of 11 images of <bdi>photos/test</bdi> have a copy" in page
    links = re.findall(r'href="(/v1/[^"]*)"', page)
    assert {client.get(link).status_code for link in links} == {200}
    assert client.get(re.findall(r'src="(/jobs/[^"]*picture)"', page)[0]).status_code == 200


@pytest.mark.slow
def test_a_choice_and_a_change_have_pages_and_are_listed_with_what_was_found(
    client: ServiceClient, jobs: tuple[str, str]
) -> None:
    train, test = jobs

    chosen = press(client, train, kind="select", count="3", strategy="random:2,easy", seed="0")
    changed = press(client, test, kind="diff", old=train, permutations="0")

    assert "<b>3</b> of 24 images, by" in chosen
    assert len(re.findall('<span class="ids">', chosen)) == 3
    assert "9 added, 22 removed, 0 changed, 2 moved, 1 relabelled" in changed
    assert "<bdi>dog</bdi> → <bdi>bird</bdi>" in changed
    listed = client.get(f"/jobs/{train}/comparisons").text
    assert "3 chosen by random:2,easy" in listed


def test_a_form_that_is_wrong_is_shown_again_with_the_reason_and_what_was_entered(
    client: ServiceClient, jobs: tuple[str, str]
) -> None:
    address = f"/jobs/{jobs[0]}/comparisons"
    entered = {"kind": "select", "count": "3", "strategy": "loudest"}

    answer = client.post(address, data=entered)

    assert answer.status_code == 422
    assert "strategy" in re.findall(r'role="alert"><bdi>(.*?)</bdi>', answer.text)[0]
    assert 'value="loudest"' in answer.text
    ids = re.findall(r' id="([^"]*)"', answer.text)
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_a_job_that_is_deleted_leaves_the_comparison_without_its_pictures(
    client: ServiceClient, jobs: tuple[str, str]
) -> None:
    short = finished_job(client, dataset={"root": "photos", "path": "test"}).id
    found = ask(client, jobs[0], kind="leaks", tests=[short], near_duplicates="none")

    client.delete(f"/v1/jobs/{short}").raise_for_status()

    page = client.get(f"/jobs/{jobs[0]}/comparisons/{found['id']}").raise_for_status().text
    assert f"job {short}" in page
    assert "cat/copy.png" in page


@pytest.mark.slow
def test_the_list_has_pages_without_results(client: ServiceClient, jobs: tuple[str, str]) -> None:
    address = f"/v1/jobs/{jobs[0]}/comparisons"
    made = [ask(client, jobs[0], kind="select", count=each, seed=70)["id"] for each in (1, 2, 3)]

    first = client.get(f"{address}?limit=2").raise_for_status().json()
    second = client.get(f"{address}?limit=200&before={first['next']}").raise_for_status().json()

    listed = [each["id"] for each in (*first["comparisons"], *second["comparisons"])]
    assert listed[:3] == made[::-1]
    assert len(first["comparisons"]) == 2
    assert second["next"] is None
    assert len(set(listed)) == len(listed)
    assert all(each["result"] is None for each in first["comparisons"])
    assert "chosen by" in first["comparisons"][0]["summary"]
    assert client.get(f"{address}?before={'0' * 32}").status_code == 404


def test_a_job_keeps_so_many_comparisons(
    client: ServiceClient, jobs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "MOST_OF_A_JOB", 1)

    for seed in (80, 81):
        body = {"kind": "select", "count": 1, "seed": seed}
        answer = client.post(f"/v1/jobs/{jobs[0]}/comparisons", json=body)

    assert answer.status_code == 409
    assert answer.json()["remedy"] == "delete one that is no longer needed"


@pytest.mark.parametrize("odd", ["x", "0" * 31, "0" * 32, "%2e%2e", "a" * 32 + "%00", "é"])
@pytest.mark.parametrize("file", ["", "/table.parquet", "/marks.parquet", "/classes.parquet"])
def test_an_odd_id_is_an_error_of_the_client(
    client: ServiceClient, jobs: tuple[str, str], odd: str, file: str
) -> None:
    address = f"/v1/jobs/{jobs[0]}/comparisons/{odd}{file}"

    assert client.get(address).status_code in (404, 422)
    if not file:
        assert client.delete(address).status_code in (404, 422)
        assert client.get(f"/jobs/{jobs[0]}/comparisons/{odd}").status_code in (404, 422)


def test_a_choice_that_goes_on_from_none_is_refused_at_once(
    client: ServiceClient, jobs: tuple[str, str]
) -> None:
    changed = ask(client, jobs[1], kind="diff", old=jobs[0], permutations=0)
    for job, chosen in ((jobs[0], "0" * 32), (jobs[1], changed["id"])):
        body = {"kind": "select", "count": 1, "chosen": chosen}
        answer = client.post(f"/v1/jobs/{job}/comparisons", json=body)

        assert answer.status_code == 422
        assert answer.json()["field"] == "chosen"


@pytest.mark.slow
def test_results_have_some_classes_and_a_table_all(
    client: ServiceClient, jobs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparisons, "serve", serve_with_two_classes)

    changed = ask(client, jobs[1], kind="diff", old=jobs[0], permutations=1)
    chosen = ask(client, jobs[0], kind="select", count=9, seed=90)

    names = [each["name"] for each in changed["result"]["classes"]]  # type: ignore[index]
    assert (len(names), names[-1]) == (2, "")
    assert "1 of 3 classes that moved most" in changed["result"]["warnings"][-1]  # type: ignore[index]
    rows = read(client, changed["links"]["classes"])  # type: ignore[index]
    assert len(rows) == 4
    assert len(chosen["result"]["classes"]) == 2  # type: ignore[index]
    assert "the table has the class of each sample" in chosen["result"]["warnings"][-1]  # type: ignore[index]


def serve_with_two_classes(*arguments: Any) -> None:  # noqa: ANN401 - in a process of its own
    selection.MOST_CLASSES = versions.MOST_CLASSES = 2
    real_serve(*arguments)


real_serve = comparisons.serve
