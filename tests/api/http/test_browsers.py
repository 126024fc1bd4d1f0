"""Browsers sign in with a cookie, and pages of other sites change nothing."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from api.jobs.store import SubmitLimits, request_cancel, submit
from api.storage.keys import create_key, revoke_key
from tests.service import ServiceClient, client_of

PAGE = {"Accept": "text/html"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ServiceClient]:
    with client_of(tmp_path, follow_redirects=False) as client:
        yield client


@pytest.fixture
def engine(client: ServiceClient) -> Engine:
    return client.engine


def test_a_page_without_a_key_leads_to_the_sign_in_and_back(client: ServiceClient) -> None:
    _, secret = create_key(client.engine, "browser", ["write"])

    refused = client.get("/jobs/none?x=1", headers=PAGE)
    signed_in = client.post("/sign-in", data={"key": secret, "next": "/jobs/none?x=1"})
    page = client.get("/", headers=PAGE)

    assert refused.headers["location"] == "/sign-in?next=%2Fjobs%2Fnone%3Fx%3D1"
    assert signed_in.headers["location"] == "/jobs/none?x=1"
    cookie = signed_in.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie
    assert page.status_code == 200


def test_who_is_sent_a_link_reads_what_it_is_and_whom_to_ask(tmp_path: Path) -> None:
    def asked(**settings: object) -> str:
        with client_of(tmp_path, **settings) as client:
            create_key(client.engine, "browser", ["write"])
            return client.get("/sign-in?next=/jobs/one").text

    plain, named = asked(), asked(contact="Ana <ana@example.org>")

    assert "Here people check the labels of a dataset that are probably wrong" in plain
    assert "Ask whoever sent you the link, or the operator of this service." in plain
    assert "Ask <bdi>Ana &lt;ana@example.org&gt;</bdi>." in named
    assert "Then the page opens that you were sent." in named


@pytest.mark.slow
def test_no_answer_to_a_key_may_be_kept_for_others(client: ServiceClient) -> None:
    _, secret = create_key(client.engine, "admin", ["admin"])
    body = {"dataset": {"root": "photos", "path": "train"}, "backbone": "builtin"}
    job, _ = submit(client.engine, "", body, None, SubmitLimits(10, 3))
    request_cancel(client.engine, "", job.id)  # so that its events end
    described = client.app.openapi()["paths"]  # type: ignore[attr-defined]
    routes = {
        (method, route.path)
        for router in client.app.routes  # type: ignore[attr-defined]
        for route in (router.original_router.routes if hasattr(router, "original_router") else ())
        for method in route.methods
    }
    assert {path.replace(":path}", "}") for _, path in routes} > {*described}

    statuses, kept = set(), {}
    for method, path in sorted(routes, key=lambda route: (route[0] != "GET", route)):
        address = re.sub(r"\{[^}]*\}", "x", path.replace("{job_id}", job.id))
        for sent in (secret, "x"):
            answer = client.request(method, address, headers={"X-API-Key": sent})
            caching = answer.headers.get("Cache-Control", "")
            statuses.add(answer.status_code)
            if not {"no-store", "private"} & {*caching.split(", ")}:
                kept[method, path] = caching

    assert kept == {}
    assert statuses >= {200, 401, 404, 409, 422}
    assert 500 not in statuses


def test_over_https_the_cookie_never_leaves_it(client: ServiceClient) -> None:
    _, secret = create_key(client.engine, "browser", ["write"])

    answer = client.post("https://localhost/sign-in", data={"key": secret})
    page = client.get("https://localhost/", headers=PAGE)
    out = client.post("https://localhost/sign-out")

    assert "; secure" in answer.headers["set-cookie"].lower()
    assert page.status_code == 200
    assert client.get("https://localhost/", headers=PAGE).status_code == 303
    assert "; secure" in out.headers["set-cookie"].lower()


def test_over_https_a_sibling_subdomain_cannot_sign_a_browser_in(client: ServiceClient) -> None:
    """It may set cookies for all hosts of their domain, but none that begins with __Host-."""
    _, secret = create_key(client.engine, "browser", ["write"])
    signed_in = client.post("https://localhost/sign-in", data={"key": secret})
    name = signed_in.headers["set-cookie"].partition("=")[0]
    client.cookies.clear()

    planted = {"Cookie": f"{name.removeprefix('__Host-')}={secret}", **PAGE}
    page = client.get("https://localhost/", headers=planted)

    assert name.startswith("__Host-")
    assert {"path=/", "secure"} <= set(signed_in.headers["set-cookie"].lower().split("; "))
    assert page.status_code == 303


def test_signing_out_and_revoking_end_a_sign_in(client: ServiceClient) -> None:
    key, secret = create_key(client.engine, "browser", ["write"])
    client.post("/sign-in", data={"key": secret})
    revoke_key(client.engine, key.id)
    after_revoking = client.get("/", headers=PAGE)
    _, other = create_key(client.engine, "browser", ["write"])
    client.post("/sign-in", data={"key": other})

    client.post("/sign-out")

    assert after_revoking.status_code == 303
    assert client.get("/", headers=PAGE).status_code == 303


@pytest.mark.parametrize(
    "address",
    ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:x", "/\n"],
)
def test_a_sign_in_leads_to_no_other_site(client: ServiceClient, address: str) -> None:
    _, secret = create_key(client.engine, "browser", ["write"])

    answer = client.post("/sign-in", data={"key": secret, "next": address})

    assert answer.headers["location"] == "/"


def test_wrong_keys_at_the_sign_in_are_limited(tmp_path: Path) -> None:
    with client_of(tmp_path, rate_limit="3/hour") as client:
        create_key(client.engine, "browser", ["write"])

        statuses = [client.post("/sign-in", data={"key": "wrong"}).status_code for _ in range(5)]

    assert statuses == [401, 401, 401, 429, 429]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 422),
        ({"Sec-Fetch-Site": "same-origin"}, 422),
        ({"Sec-Fetch-Site": "none"}, 422),
        ({"Origin": "http://localhost"}, 422),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
@pytest.mark.parametrize("has_key", [False, True])
def test_changes_that_other_sites_request_are_refused(
    client: ServiceClient, headers: dict[str, str], status: int, *, has_key: bool
) -> None:
    if has_key:
        _, secret = create_key(client.engine, "browser", ["write"])
        client.post("/sign-in", data={"key": secret})

    answer = client.post("/v1/jobs", json={}, headers=headers)

    assert answer.status_code == status


def test_a_key_in_a_header_may_come_from_anywhere(client: ServiceClient) -> None:
    _, secret = create_key(client.engine, "browser", ["write"])
    headers = {"Authorization": f"Bearer {secret}", "Origin": "http://tools.example"}

    assert client.post("/v1/jobs", json={}, headers=headers).status_code == 422


@pytest.mark.parametrize("path", ["/", "/v1/jobs", "/static/explorer.css", "/healthz", "/none"])
def test_every_answer_has_a_policy_that_allows_nothing_foreign_or_inline(
    client: ServiceClient, path: str
) -> None:
    headers = client.get(path, headers=PAGE).headers

    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"


def test_a_problem_is_a_page_for_browsers_and_data_for_programs(client: ServiceClient) -> None:
    page = client.get("/jobs/none", headers=PAGE)
    data = client.get("/v1/jobs/none", headers=PAGE)

    assert page.headers["content-type"].startswith("text/html")
    assert "There is no such thing" in page.text
    assert data.json()["type"] == "/problems/not-found"


def test_pictures_do_not_count_as_requests(tmp_path: Path) -> None:
    with client_of(tmp_path, rate_limit="2/hour") as client:
        for address in (
            "/jobs/none/images/7/picture",
            "/v1/jobs/none/thumbnails/a.png",
            "/v1/jobs/none/missing/3.webp",
        ):
            assert {client.get(address).status_code for _ in range(4)} == {404}

        assert client.get("/v1/jobs").status_code == 200
