"""Who a request comes from: only proxies that the operator names may say so."""

import httpx2
import pytest

from tests.api.live.running import Service, StartService

RATE = {"rate_limit": "5/minute"}


def statuses(service: Service) -> list[int]:
    """Ten requests that claim ten different origins."""
    with service.client() as client:
        return [
            client.get("/v1/jobs", headers={"X-Forwarded-For": f"198.51.100.{number}"}).status_code
            for number in range(10)
        ]


@pytest.mark.slow
def test_an_address_that_a_client_claims_does_not_evade_the_rate_limit(
    start_service: StartService, sqlite_url: str
) -> None:
    assert statuses(start_service(sqlite_url, **RATE)) == [200] * 5 + [429] * 5


@pytest.mark.slow
def test_an_address_that_a_trusted_proxy_names_is_the_clients(
    start_service: StartService, sqlite_url: str
) -> None:
    service = start_service(sqlite_url, **RATE, trusted_proxies='["127.0.0.0/8", "::1"]')

    assert statuses(service) == [200] * 10


@pytest.mark.slow
def test_without_keys_a_page_of_another_site_reaches_nothing(shared_service: Service) -> None:
    foreign = {"Host": "rebound.example"}

    answers = [
        httpx2.request(method, shared_service.url + path, headers=foreign)
        for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/"))
    ]

    assert [answer.status_code for answer in answers] == [403] * 3
