"""Range requests follow RFC 9110."""

import pytest

from api.http.byte_ranges import RequestedBytes, parse_range
from api.http.problems import Problem

ETAG = '"abc"'


def answer(
    asked: str | None = None, if_range: str | None = None, none_match: str | None = None
) -> RequestedBytes:
    return parse_range(100, ETAG, requested=asked, if_range=if_range, none_match=none_match)


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-99", 0, 100),
        ("bytes=10-19", 10, 20),
        ("bytes=90-", 90, 100),
        ("bytes=90-1000", 90, 100),
        ("bytes=-1", 99, 100),
        ("bytes=-1000", 0, 100),
    ],
)
def test_one_range_is_answered_with_those_bytes(asked: str, start: int, stop: int) -> None:
    assert answer(asked) == RequestedBytes(206, start, stop)


@pytest.mark.parametrize("asked", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_a_range_behind_the_end_cannot_be_met(asked: str) -> None:
    with pytest.raises(Problem) as caught:
        answer(asked)

    assert (caught.value.status, caught.value.detail) == (416, "the file has 100 bytes")


@pytest.mark.parametrize(
    "asked",
    [
        None,
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=5-4",
        "bytes=a-b",
        "lines=0-1",
        "bytes=0-1,4-5",
    ],
)
def test_anything_but_a_single_range_is_answered_with_the_whole_file(asked: str | None) -> None:
    assert answer(asked) == RequestedBytes(200, 0, 100)


def test_a_range_holds_only_for_the_file_with_the_given_tag() -> None:
    assert answer("bytes=0-0", if_range=ETAG) == RequestedBytes(206, 0, 1)
    assert answer("bytes=0-0", if_range='"other"') == RequestedBytes(200, 0, 100)
    assert answer("bytes=0-0", if_range=f"W/{ETAG}") == RequestedBytes(200, 0, 100)
    assert answer("bytes=0-0", if_range="Sat, 21 Nov 2026 04:00:00 GMT") == RequestedBytes(
        200, 0, 100
    )


@pytest.mark.parametrize("none_match", [ETAG, f"W/{ETAG}", f'"x", {ETAG}', "*"])
def test_a_client_that_has_the_file_gets_not_modified(none_match: str) -> None:
    assert answer("bytes=0-0", none_match=none_match).status == 304


def test_a_client_that_has_another_file_gets_this_one() -> None:
    assert answer(none_match='"x"') == RequestedBytes(200, 0, 100)
