"""The pages under attack: stolen and forged sign-ins, requests of other sites, marks of others."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.api.live.running import Service, Tenants

PAGE = {"Accept": "text/html"}
PATIENCE = 30.0  # seconds
HOSTILE = (
    *("</script><script>alert(1)</script>", "=1+1", "{{7*7}}"),
    "'\"><img src=x onerror=alert(1)>",
)
PAGES = ("", "/images", "/images/0", "/classes", "/pairs", "/map", "/errors", "/tray")

pytestmark = pytest.mark.slow


@contextmanager
def signed_in(service: Service, secret: str) -> Iterator[httpx2.Client]:
    """A browser that is signed in: it has a cookie and no key in a header."""
    with httpx2.Client(base_url=service.url, headers=PAGE, timeout=PATIENCE) as client:
        answer = client.post("/sign-in", data={"key": secret, "next": "/"})
        assert answer.status_code == 303
        yield client


def changes(tenants: Tenants) -> dict[str, dict[str, Any]]:
    """Every address of the pages and of the marks that changes something, with a valid body."""
    job = tenants.their_job
    mark = {"row": 0, "decision": {"mark": "drop"}}
    return {
        "/": {"data": {"source": "root", "root": "photos", "path": "train"}},
        f"/jobs/{job}/images/0": {"data": {"mark": "drop"}},
        f"/jobs/{job}/images/mark-matching": {"data": {"mark": "drop"}},
        f"/jobs/{job}/score-again": {"data": {"token": "x"}},
        f"/jobs/{job}/try-again": {"data": {"token": "x"}},
        f"/jobs/{job}/copies": {"data": {"row": "0", "label": "cat"}},
        f"/jobs/{job}/faults": {"data": {"fault": "dark", "mark": "drop"}},
        f"/jobs/{job}/remove": {"data": {}},
        f"/v1/jobs/{job}/marks": {"json": {"marks": [mark]}},
        "/v1/uploads": {"json": {"format": "zip"}},
        "/sign-out": {"data": {}},
    }


def marks_of(client: httpx2.Client, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/jobs/{job}/marks").json()["marks"]
    return found


def test_the_cookie_is_for_this_site_and_session_and_for_no_script(
    service: Service, tenants: Tenants
) -> None:
    with httpx2.Client(base_url=service.url) as client:
        cookie = client.post("/sign-in", data={"key": tenants.mine}).headers["set-cookie"].lower()
        out = client.post("/sign-out").headers["set-cookie"].lower()

    attributes = {part.strip() for part in cookie.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= attributes
    # Without an expiry, it ends with the browser; without a domain, no other host gets it.
    assert not [each for each in attributes if each.startswith(("expires", "max-age", "domain"))]
    assert "max-age=0" in out


def test_a_forged_cookie_is_no_sign_in(service: Service, tenants: Tenants) -> None:
    key = tenants.mine
    forged = (
        *(key[:-1], key + "x", key.swapcase(), f'"{key[:-2]}"', "", "x" * 5000, "' OR 1=1 --"),
        *("%00", "\u00e9", f"x; other={key}", "null"),
    )
    with httpx2.Client(base_url=service.url, headers=PAGE) as client:
        statuses = [
            client.get("/", headers={"Cookie": f"difficulty_key={each}".encode()}).status_code
            for each in forged
        ]

    assert set(statuses) == {303}


def test_a_revoked_key_ends_a_sign_in_at_once(service: Service, tenants: Tenants) -> None:
    job = tenants.their_job
    with signed_in(service, tenants.theirs) as browser:
        before = browser.get(f"/jobs/{job}")
        service.revoke_key("theirs")
        pages = [browser.get(f"/jobs/{job}{page}") for page in PAGES]
        fragment = browser.get(f"/jobs/{job}/tray", headers={"HX-Request": "true"})
        posted = [
            browser.post(address, **body).status_code
            for address, body in changes(tenants).items()
            if address != "/sign-out"
        ]
        picture = browser.get(f"/jobs/{job}/images/0/picture")

    assert before.status_code == 200
    assert {page.status_code for page in pages} == {303}
    assert all(page.headers["location"].startswith("/sign-in") for page in pages)
    assert (fragment.status_code, fragment.headers["hx-redirect"]) == (401, "/sign-in")
    assert set(posted) <= {303, 401}
    assert picture.status_code in {303, 401}
    assert "image" not in picture.headers.get("content-type", "")


@pytest.mark.parametrize(
    "origin",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "{own}"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "{own}.evil.example"},
        {"Origin": "http://user@evil.example"},
    ],
)
def test_no_page_of_another_site_changes_anything_for_who_is_signed_in(
    service: Service, tenants: Tenants, origin: dict[str, str]
) -> None:
    headers = {name: value.format(own=service.url) for name, value in origin.items()}
    with signed_in(service, tenants.theirs) as browser:
        answers = {
            address: browser.post(address, headers=headers, **body)
            for address, body in changes(tenants).items()
        }
        forms = browser.post("/sign-in", data={"key": tenants.mine}, headers=headers)
        marks = marks_of(browser, tenants.their_job)
        state = browser.get(f"/v1/jobs/{tenants.their_job}").json()["state"]

    assert {address: each.status_code for address, each in answers.items()} == dict.fromkeys(
        answers, 403
    )
    # Signing a visitor in with the attacker's key would send the visitor's datasets there.
    assert forms.status_code == 403
    assert "set-cookie" not in forms.headers
    assert (marks, state) == ([], "succeeded")


def test_no_request_to_read_changes_anything(service: Service, tenants: Tenants) -> None:
    with signed_in(service, tenants.theirs) as browser:
        statuses = {
            address: browser.request(method, address, params=body.get("data")).status_code
            for address, body in changes(tenants).items()
            for method in ("HEAD", "GET")
            if address not in {"/", "/v1/uploads"}
        }
        marks = marks_of(browser, tenants.their_job)
        state = browser.get(f"/v1/jobs/{tenants.their_job}").json()["state"]
        jobs = browser.get("/v1/jobs").json()["jobs"]

    assert max(statuses.values()) < 500
    assert (marks, state, len(jobs)) == ([], "succeeded", 1)


def test_no_answer_may_be_framed_sniffed_or_read_by_another_site(
    service: Service, tenants: Tenants
) -> None:
    job = tenants.their_job
    addresses = (
        *(f"/jobs/{job}{page}" for page in PAGES),
        *("/", "/docs", "/none", "/sign-in", "/static/explorer.css", "/healthz"),
        *(f"/v1/jobs/{job}", f"/v1/jobs/{job}/marks.csv", f"/jobs/{job}/images/0/picture"),
    )
    other = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    with signed_in(service, tenants.theirs) as browser:
        answers = [browser.get(address, headers=other) for address in addresses]
        asked = [browser.options(address, headers=other) for address in addresses]

    for answer in (*answers, *asked):
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy, answer.url
        assert "unsafe-" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_no_key_reads_or_changes_marks_of_another(service: Service, tenants: Tenants) -> None:
    job = tenants.their_job
    everybody = service.new_key("reader", "read-all")
    with signed_in(service, tenants.theirs) as owner:
        assert owner.post(f"/jobs/{job}/images/0", data={"mark": "drop"}).status_code == 303
        before = marks_of(owner, job)
        with signed_in(service, tenants.mine) as stranger:
            pages = [stranger.get(f"/jobs/{job}{page}").status_code for page in PAGES]
            exports = [
                stranger.get(f"/v1/jobs/{job}/marks{end}").status_code
                for end in ("", ".csv", ".parquet")
            ]
            posted = [
                stranger.post(address, **body).status_code
                for address, body in changes(tenants).items()
                if job in address
            ]
        with signed_in(service, everybody) as reader:
            seen = marks_of(reader, job)
            csv = reader.get(f"/v1/jobs/{job}/marks.csv").text
            written = [
                reader.post(address, **body).status_code
                for address, body in changes(tenants).items()
                if job in address
            ]
        after = marks_of(owner, job)

    assert set(pages + exports + posted) == {404}
    # Who may read all jobs has marks of their own, here none, and may not write them.
    assert (seen, len(csv.splitlines())) == ([], 1)
    assert set(written) == {403}
    assert [mark["mark"] for mark in before] == ["drop"]
    assert after == before


def test_hostile_text_comes_back_escaped_or_is_refused(service: Service, tenants: Tenants) -> None:
    job = tenants.their_job
    with signed_in(service, tenants.theirs) as browser:
        for text in HOSTILE:
            query = {"q": text, "label": text, "mark": text, "sort": text, "area": text}
            answers = [
                browser.get(f"/jobs/{job}/images", params=query),
                browser.get("/sign-in", params={"next": text}),
                browser.get("/", params={"before": text}),
                browser.get(f"/jobs/{text}"),
                browser.post("/sign-in", data={"key": text, "next": text}),
                browser.post("/", data={"source": "root", "root": text, "path": text}),
                browser.post(f"/jobs/{job}/images/0", data={"mark": "relabel", "label": text}),
            ]
            for answer in answers:
                assert answer.status_code < 500
                assert "<script>alert" not in answer.text
                assert "<img src=x" not in answer.text
        body = {"marks": [{"row": 0, "decision": {"mark": "relabel", "label": HOSTILE[0]}}]}
        refused = browser.post(f"/v1/jobs/{job}/marks", json=body)
        marks = marks_of(browser, job)

    assert (refused.status_code, marks) == (422, [])
    assert json.loads(refused.text)["type"] == "/problems/invalid-request"
