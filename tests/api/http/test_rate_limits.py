"""Too many requests of one key or address are refused, those of others are not."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.http.limits import FEWEST_TO_FORGET, Counts, rate_limiter
from api.http.problems import Problem
from api.storage.keys import create_key
from difficulty_service.base.errors import ConfigError
from tests.service import ServiceClient, client_of

HOURLY = "3/hour"


def test_the_request_beyond_the_limit_is_answered_with_a_time_to_wait() -> None:
    count = rate_limiter(HOURLY)
    for _ in range(3):
        count("ant")

    with pytest.raises(Problem) as caught:
        count("ant")

    assert caught.value.status == 429
    assert 1 <= int(caught.value.headers["Retry-After"]) <= 3600


def test_clients_are_counted_apart() -> None:
    count = rate_limiter(HOURLY)
    for _ in range(3):
        count("ant")

    count("bee")

    with pytest.raises(Problem):
        count("ant")


def test_two_applications_count_apart() -> None:
    first, second = rate_limiter("1/hour"), rate_limiter("1/hour")
    first("ant")

    second("ant")

    with pytest.raises(Problem):
        second("ant")


def test_a_window_that_has_passed_counts_anew() -> None:
    clock = itertools.chain([0.0, 59.0], itertools.repeat(60.0))
    counts = Counts(now=lambda: next(clock))

    assert [counts.add("ant", expiry=60) for _ in range(4)] == [
        (1, 60),
        (2, 60),
        (1, 120),
        (2, 120),
    ]


def test_requests_from_ever_new_addresses_leave_no_more_counts_than_a_window_has() -> None:
    seconds = 0.0
    counts = Counts(now=lambda: seconds)
    for number in range(20 * FEWEST_TO_FORGET):
        counts.add(f"address {number}", expiry=60)
        seconds += 0.1

    assert len(counts) <= 2 * FEWEST_TO_FORGET


def test_counts_that_last_are_kept_however_many_there_are() -> None:
    counts = Counts()
    for number in range(5 * FEWEST_TO_FORGET):
        counts.add(f"address {number}", expiry=3600)

    assert [counts.add("address 0", expiry=3600)[0] for _ in range(2)] == [2, 3]
    assert counts.add(f"address {FEWEST_TO_FORGET}", expiry=3600)[0] == 2


@pytest.mark.parametrize("rate", ["", "often", "10", "10/fortnight", "-1/minute"])
def test_a_rate_that_cannot_be_read_is_refused(rate: str) -> None:
    with pytest.raises(ConfigError, match="600/minute"):
        rate_limiter(rate)


def test_of_several_limits_the_strictest_holds() -> None:
    count = rate_limiter("100/second;2/hour")
    for _ in range(2):
        count("ant")

    with pytest.raises(Problem) as caught:
        count("ant")

    assert "2 per 1 hour" in caught.value.detail


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ServiceClient]:
    with client_of(tmp_path, rate_limit=HOURLY) as client:
        yield client


def test_the_answer_is_a_problem_with_a_time_to_wait(client: ServiceClient) -> None:
    statuses = [client.get("/v1/nothing").status_code for _ in range(3)]

    response = client.get("/v1/nothing")

    assert statuses == [404, 404, 404]
    assert response.status_code == 429
    assert response.json()["type"] == "/problems/too-many-requests"
    assert int(response.headers["retry-after"]) >= 1


def test_requests_for_all_addresses_of_the_service_are_counted_together(
    client: ServiceClient,
) -> None:
    for path in ("/v1/a", "/v1/b", "/v1/c"):
        client.get(path)

    assert client.get("/v1/d").status_code == 429


def test_health_checks_are_not_counted(client: ServiceClient) -> None:
    statuses = [client.get("/healthz").status_code for _ in range(6)]

    assert statuses == [200] * 6


def test_each_key_has_its_own_count(client: ServiceClient) -> None:
    engine = client.engine
    secrets = [create_key(engine, name, ["read"])[1] for name in ("ant", "bee")]
    ant, bee = ({"X-API-Key": secret} for secret in secrets)
    for _ in range(4):
        spent = client.get("/v1/nothing", headers=ant)

    fresh = client.get("/v1/nothing", headers=bee)

    assert (spent.status_code, fresh.status_code) == (429, 404)


def test_guessing_keys_is_counted_on_the_address(client: ServiceClient) -> None:
    engine = client.engine
    _, secret = create_key(engine, "ant", ["read"])
    guesses = [
        client.get("/v1/nothing", headers={"X-API-Key": f"difficulty_guess{number}"}).status_code
        for number in range(5)
    ]

    rightful = client.get("/v1/nothing", headers={"X-API-Key": secret})

    assert guesses == [401, 401, 401, 429, 429]
    assert rightful.status_code == 404
