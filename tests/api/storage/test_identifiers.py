"""Ids of jobs, uploads and keys."""

import time
from urllib.parse import quote

import pytest

from api.storage.tables import is_id, new_id


def test_names_are_of_one_length_and_safe_in_addresses() -> None:
    names = [new_id() for _ in range(100)]

    assert {len(name) for name in names} == {26}
    assert all(quote(name, safe="") == name for name in names)


def test_no_two_names_are_equal() -> None:
    assert len({new_id() for _ in range(10_000)}) == 10_000


def test_later_names_sort_after_earlier_ones() -> None:
    names = []
    for _ in range(5):
        names.append(new_id())
        time.sleep(0.002)

    assert names == sorted(names)


def test_a_new_name_is_well_formed() -> None:
    assert is_id(new_id())


@pytest.mark.parametrize("text", ["", "a" * 25, "a" * 27, "A" * 26, "a" * 25 + "\0", "u" * 26])
def test_a_text_without_the_form_of_an_id_is_recognised(text: str) -> None:
    assert not is_id(text)
