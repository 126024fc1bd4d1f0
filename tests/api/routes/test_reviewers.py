"""Several keys review one job: who sees it, who sees what others decided, and how they agree."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from httpx2 import Response
from sqlalchemy import Engine, update

from api.jobs.marks import JobMarks
from api.jobs.store import get_job
from api.storage.keys import Key, create_key, revoke_key
from api.storage.tables import KEYS
from difficulty_service.marks.files import read_marks
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample

Call = Callable[..., Response]


def mark(
    call: Call, name: str, row: int, kind: str, label: str | None = None, to: str = "marks"
) -> int:
    """Marks one sample with a key; gives the status of the answer."""
    change = {"row": row, "decision": {"mark": kind, "label": label}}
    return call(name, "POST", to, json={"marks": [change]}).status_code


def share(call: Call, keys: dict[str, tuple[Key, str]], name: str, by: str = "owner") -> int:
    return call(by, "PUT", f"reviewers/{keys[name][0].id}").status_code


def test_the_owner_sees_how_far_each_reviewer_has_come_and_how_they_agree(
    call: Call, keys: dict[str, tuple[Key, str]]
) -> None:
    assert share(call, keys, "colleague") == 204
    for row in (0, 1, 2):
        mark(call, "owner", row, "keep")
    mark(call, "colleague", 0, "keep")
    mark(call, "colleague", 1, "relabel", "dog")
    mark(call, "overseer", 3, "drop")

    found = call("owner", "GET", "reviewers").json()

    rows = {each["name"]: each for each in found["reviewers"]}
    assert {name: each["counts"] for name, each in rows.items()} == {
        "owner": {"keep": 3, "relabel": 0, "drop": 0, "misplaced": 0},
        "colleague": {"keep": 1, "relabel": 1, "drop": 0, "misplaced": 0},
        "overseer": {"keep": 0, "relabel": 0, "drop": 1, "misplaced": 0},
    }
    assert {name: each["doubtful_seen"] for name, each in rows.items()} == {
        "owner": 1.0,
        "colleague": 1.0,
        "overseer": 0.0,
    }
    assert [rows[name]["shared"] for name in ("owner", "colleague")] == [False, True]
    assert found["agreement"] == {
        "alpha": pytest.approx(1 - 3 * 2 / (4**2 - 3**2 - 1)),
        "compared": 2,
        "disagreed": 1,
        "adjudicated": 0,
        "tied": 1,
    }
    assert call("overseer", "GET", "reviewers").json() == found


def test_a_reviewer_sees_only_what_it_has_decided_itself(
    call: Call, keys: dict[str, tuple[Key, str]], job: str
) -> None:
    share(call, keys, "colleague")
    mark(call, "owner", 0, "keep")
    mark(call, "colleague", 0, "drop")

    found = call("colleague", "GET", "reviewers").json()
    page = call("colleague", "GET", f"/jobs/{job}/reviewers").text

    assert [each["name"] for each in found["reviewers"]] == ["colleague"]
    assert found["agreement"] is None
    assert "alpha" not in page
    assert ">owner<" not in page
    assert [each["mark"] for each in call("colleague", "GET", "marks").json()["marks"]] == ["drop"]


def test_another_key_learns_nothing_of_a_job_until_it_is_shared_and_after(
    call: Call, keys: dict[str, tuple[Key, str]], job: str
) -> None:
    paths = ("", "marks", "marks.csv", "reviewers", f"/jobs/{job}", f"/jobs/{job}/reviewers")

    def seen() -> list[int]:
        return [call("colleague", "GET", path).status_code for path in paths]

    assert seen() == [404] * len(paths)
    assert call("colleague", "PUT", f"reviewers/{keys['colleague'][0].id}").status_code == 404
    unknown = call("colleague", "GET", "/v1/jobs/" + "0" * 26 + "/reviewers").json()
    hidden = call("colleague", "GET", "reviewers").json()
    assert hidden | {"detail": ""} == unknown | {"detail": ""}

    share(call, keys, "colleague")

    assert seen() == [200] * len(paths)
    assert [each["id"] for each in call("colleague", "GET", "/v1/jobs").json()["jobs"]] == [job]
    assert f"/jobs/{job}" in call("colleague", "GET", "/").text
    assert call("stranger", "GET", "").status_code == 404
    assert mark(call, "colleague", 0, "keep") == 200

    assert call("owner", "DELETE", f"reviewers/{keys['colleague'][0].id}").status_code == 204

    assert seen() == [404] * len(paths)
    assert mark(call, "colleague", 0, "drop") == 404
    names = [each["name"] for each in call("owner", "GET", "reviewers").json()["reviewers"]]
    assert names == ["colleague"]


def test_whom_both_jobs_are_shared_with_sees_what_a_round_changed(
    call: Call, keys: dict[str, tuple[Key, str]], job: str, finish: Callable[..., str]
) -> None:
    second = finish(job, marks={"drop": 1}, round=2)
    before = f'<th scope="col"><a href="/jobs/{job}">before</a></th>'

    def seen(name: str) -> str:
        page = call(name, "GET", f"/jobs/{second}/round").text
        assert "Before and after round 2" in page
        return page

    call("owner", "PUT", f"/v1/jobs/{second}/reviewers/{keys['colleague'][0].id}")
    assert before in seen("owner")
    assert "not shared with you" in seen("colleague")

    share(call, keys, "colleague")
    assert before in seen("colleague")


def test_whom_a_job_is_shared_with_may_neither_delete_nor_share_it_nor_mark_without_write(
    call: Call, keys: dict[str, tuple[Key, str]]
) -> None:
    share(call, keys, "colleague")
    share(call, keys, "reader")

    assert call("colleague", "DELETE", "").status_code == 403
    assert share(call, keys, "stranger", by="colleague") == 403
    assert share(call, keys, "stranger", by="overseer") == 403
    assert share(call, keys, "stranger", by="admin") == 204
    assert mark(call, "reader", 0, "keep") == 403
    assert call("reader", "GET", "scores").status_code == 200


def test_a_job_is_shared_with_keys_in_force_only(
    call: Call, keys: dict[str, tuple[Key, str]], engine: Engine
) -> None:
    revoke_key(engine, keys["colleague"][0].id)
    expired = keys["reader"][0].id
    with engine.begin() as connection:
        connection.execute(update(KEYS).where(KEYS.c.id == expired).values(expires_at=1.0))

    for key_id in (keys["colleague"][0].id, expired, "0" * 26, "nobody"):
        refused = call("owner", "PUT", f"reviewers/{key_id}")
        assert (refused.status_code, refused.json()["field"]) == (422, "key")


def test_a_reviewer_whose_key_has_expired_since_is_said_to_be_so(
    call: Call, keys: dict[str, tuple[Key, str]], engine: Engine, job: str
) -> None:
    key_id = keys["colleague"][0].id
    call("owner", "PUT", f"reviewers/{key_id}")
    with engine.begin() as connection:
        connection.execute(update(KEYS).where(KEYS.c.id == key_id).values(expires_at=1.0))

    found = {each["name"]: each for each in call("owner", "GET", "reviewers").json()["reviewers"]}
    page = call("owner", "GET", f"/jobs/{job}/reviewers").text

    assert found["colleague"]["expired"]
    assert "<bdi>colleague</bdi> (expired)" in page


def test_the_page_shares_a_job_and_ends_that_without_a_script(
    call: Call, keys: dict[str, tuple[Key, str]], job: str
) -> None:
    page = f"/jobs/{job}/reviewers"
    entered = {"key_id": f" {keys['colleague'][0].id} "}

    shared = call("owner", "POST", page, data=entered).text

    assert "Share no longer with colleague" in shared
    assert call("colleague", "GET", page).status_code == 200
    removed = {"key_id": keys["colleague"][0].id}
    ended = call("owner", "POST", f"{page}/remove", data=removed).text
    assert "Share no longer with colleague" not in ended
    assert call("colleague", "GET", page).status_code == 404


@pytest.fixture
def split(call: Call, keys: dict[str, tuple[Key, str]]) -> None:
    """Three reviewers: all keep s0, most relabel s1, two are split about s2 and s3."""
    share(call, keys, "colleague")
    for name, decisions in {
        "owner": ("keep", "keep", "keep", "keep"),
        "colleague": ("keep", "relabel", "drop", "drop"),
        "overseer": ("keep", "relabel"),
    }.items():
        for row, kind in enumerate(decisions):
            assert mark(call, name, row, kind, "dog" if kind == "relabel" else None) == 200


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_merged_marks_have_one_decision_for_each_sample_and_count_ties(
    call: Call, tmp_path: Path, ending: str
) -> None:
    mark(call, "owner", 3, "drop", to="decisions")

    answer = call("owner", "GET", f"marks.{ending}?of=all")

    path = tmp_path / f"marks.{ending}"
    path.write_bytes(answer.content)
    assert answer.headers["Difficulty-Tied"] == "1"
    assert [*read_marks(path, ["s0", "s1", "s2", "s3"]).samples.values()] == [
        MarkedSample("s0", Mark.KEEP, None, "cat", round=1),
        MarkedSample("s1", Mark.RELABEL, "dog", "cat", round=1),
        MarkedSample("s3", Mark.DROP, None, "dog", round=1),
    ]
    if ending == "csv":
        lines = answer.text.splitlines()
        assert [line.split(",", 5)[0] for line in lines[1:]] == ['"s0"', '"s1"', '"s3"']
        assert [line.rsplit(",", 2)[1:] for line in lines[1:]] == [
            ['"unanimous"', "3"],
            ['"majority"', "3"],
            ['"adjudicated"', "2"],
        ]


@pytest.mark.usefixtures("split")
def test_only_who_sees_the_marks_of_others_gets_them_merged_or_filters_by_them(
    call: Call, job: str
) -> None:
    for name, status in {"owner": 200, "overseer": 200, "colleague": 403, "stranger": 404}.items():
        assert call(name, "GET", "marks.csv?of=all").status_code == status
    assert call("owner", "GET", "marks.csv?of=others").status_code == 422

    for wanted in ("disagree", "tie", "final"):
        assert call("colleague", "GET", f"scores?mark={wanted}").status_code == 422
        page = call("colleague", "GET", f"/jobs/{job}/images?mark={wanted}").text
        assert "the marks of others are for the owner" in page
        assert 'id="image-' not in page
    assert "reviewers disagree" in call("owner", "GET", f"/jobs/{job}/images").text
    assert "reviewers disagree" not in call("colleague", "GET", f"/jobs/{job}/images").text


@pytest.mark.usefixtures("split")
def test_samples_on_which_reviewers_disagree_are_listed_until_the_owner_decides(
    call: Call, job: str
) -> None:
    def listed(mark: str) -> list[int]:
        page = call("owner", "GET", f"/jobs/{job}/images?mark={mark}&sort=file").text
        return [int(row) for row in re.findall(r'id="image-(\d+)"', page)]

    assert (listed("disagree"), listed("tie"), listed("final")) == ([1, 2, 3], [2, 3], [])

    decided = call("owner", "POST", f"/jobs/{job}/images/2/decide", data={"mark": "drop"})

    assert (listed("disagree"), listed("tie"), listed("final")) == ([1, 3], [3], [2])
    assert "Final decision" in decided.text
    found = call("owner", "GET", "scores?mark=disagree&sort=rmd").json()["samples"]
    assert [each["sample_id"] for each in found] == ["s3", "s1"]

    call("owner", "POST", f"/jobs/{job}/images/2/decide", data={"mark": "none"})

    assert listed("tie") == [2, 3]


@pytest.mark.usefixtures("split")
def test_the_page_of_an_image_says_what_each_reviewer_decided_to_the_owner_alone(
    call: Call, job: str
) -> None:
    def said(name: str) -> list[tuple[str, str]]:
        page = call(name, "GET", f"/jobs/{job}/images/1").text
        part = page.partition('<section class="said"')[2].partition("</section>")[0]
        return re.findall(r"<dt><bdi>(.*?)</bdi></dt><dd>(.*?)</dd>", part)

    expected = [
        ("colleague", "relabel to <bdi>dog</bdi>"),
        ("overseer", "relabel to <bdi>dog</bdi>"),
        ("owner", "keep"),
    ]
    assert sorted(said("owner")) == expected
    assert sorted(said("overseer")) == expected
    assert said("colleague") == []
    assert "Decide finally" in call("owner", "GET", f"/jobs/{job}/images/1").text
    assert "Decide finally" not in call("overseer", "GET", f"/jobs/{job}/images/1").text


@pytest.mark.usefixtures("split")
def test_only_the_owner_or_an_administrator_decides_finally(call: Call, job: str) -> None:
    for name, status in {"owner": 200, "admin": 200, "overseer": 403, "colleague": 403}.items():
        assert mark(call, name, 1, "drop", to="decisions") == status
        form = call(name, "POST", f"/jobs/{job}/images/1/decide", data={"mark": "drop"})
        assert form.status_code == status
    assert mark(call, "stranger", 1, "drop", to="decisions") == 404
    assert mark(call, "owner", 1, "relabel", "horse", to="decisions") == 422
    assert call("owner", "GET", "reviewers").json()["agreement"]["adjudicated"] == 1


@pytest.mark.usefixtures("split")
def test_scoring_again_applies_the_merged_decisions_where_the_owner_asks_for_them(
    call: Call, body: dict[str, object], engine: Engine, job: str, keys: dict[str, tuple[Key, str]]
) -> None:
    def applied(**fields: object) -> dict[str, tuple[str, str | None]]:
        answer = call("owner", "POST", "/v1/jobs", json=body | {"marks": job} | fields)
        stored = get_job(engine, keys["owner"][0].id, answer.json()["id"])
        assert stored is not None
        marks = JobMarks(engine, stored.id).read().composed().samples
        return {sample_id: (mark.mark.value, mark.label) for sample_id, mark in marks.items()}

    merged = {"s0": ("keep", None), "s1": ("relabel", "dog")}
    assert applied(marks_of="all") == merged
    assert applied() == {f"s{row}": ("keep", None) for row in range(4)}

    page = call("owner", "GET", f"/jobs/{job}/reviewers").text
    assert "Score again with merged marks" in page
    again = {"token": "t", "of": "all"}
    shown = call("owner", "POST", f"/jobs/{job}/score-again", data=again)
    stored = get_job(engine, None, shown.url.path.rpartition("/")[2])
    assert stored is not None
    assert {*JobMarks(engine, stored.id).read().ids} == {*merged}
    assert stored.wanted.marks_of == "all"

    for name in ("colleague", "overseer"):
        asked = body | {"marks": job, "marks_of": "all"}
        assert call(name, "POST", "/v1/jobs", json=asked).status_code == 422
        assert "Score again with merged" not in call(name, "GET", f"/jobs/{job}/reviewers").text


def test_the_page_links_shares_that_together_are_the_doubtful_labels(call: Call, job: str) -> None:
    page = call("owner", "GET", f"/jobs/{job}/reviewers").text

    links = re.findall(r'href="(/jobs/[^"]*share=[123]of3)"', page)
    lists = [call("owner", "GET", link.replace("&amp;", "&")).text for link in links]
    rows = [re.findall(r'id="image-(\d+)"', each) for each in lists]
    assert len(links) == 3
    assert sorted(row for each in rows for row in each) == ["0", "1"]
    assert 'name="share" value="2of3" checked' in lists[1]


def test_a_job_is_shared_by_the_name_of_a_key(
    call: Call, keys: dict[str, tuple[Key, str]], job: str
) -> None:
    page = call("owner", "POST", f"/jobs/{job}/reviewers", data={"key_id": " Colleague "})

    assert page.status_code == 200
    assert call("colleague", "GET", "").status_code == 200
    assert [each["key"] for each in call("owner", "GET", "reviewers").json()["reviewers"]] == [
        keys["colleague"][0].id
    ]


def test_a_name_that_no_key_or_several_have_is_explained_on_the_page(
    call: Call, engine: Engine, job: str
) -> None:
    for _ in range(2):
        create_key(engine, "twin", ["write"])

    unknown = call("owner", "POST", f"/jobs/{job}/reviewers", data={"key_id": "nobody"})
    several = call("owner", "POST", f"/jobs/{job}/reviewers", data={"key_id": "twin"})

    assert (unknown.status_code, several.status_code) == (422, 409)
    assert "There is no key &#39;nobody&#39;. Check its name" in unknown.text
    assert "2 keys are called &#39;twin&#39;. Ask your colleague for the id" in several.text


def test_a_key_that_only_looks_is_told_so_and_one_that_decides_is_not(
    call: Call, keys: dict[str, tuple[Key, str]], job: str
) -> None:
    call("owner", "PUT", f"reviewers/{keys['reader'][0].id}").raise_for_status()

    guest = call("reader", "GET", f"/jobs/{job}").text

    assert "You may look at everything here" in guest
    assert "You may look at everything here" not in call("owner", "GET", f"/jobs/{job}").text
