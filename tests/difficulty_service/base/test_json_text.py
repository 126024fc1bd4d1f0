"""JSON that is nested too deeply, which is noticed before Arrow would parse it."""

import io
import random

import pyarrow.json
import pytest

from difficulty_service.base import json_text
from difficulty_service.base.json_text import MOST_LEVELS, NestedTooDeeply, ShallowJson


def nested(levels: int) -> bytes:
    """A line of JSON with lists in an object, to so many levels."""
    return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}\n"


def is_refused(text: bytes, piece: int = -1) -> bool:
    stream = ShallowJson(io.BytesIO(text))
    try:
        while stream.read(piece):
            pass
    except NestedTooDeeply:
        return True
    return False


def naive_levels(text: str) -> int:
    """The most levels of a text in which any line may be the first of a part, character by one."""
    most = levels = place = 0
    inside = False
    while place < len(text):
        each = text[place]
        if each == "\\" and text[place + 1 : place + 2] in {"\\", '"'}:
            place += 1
        elif each in "\r\n":
            inside = False
        elif each == '"':
            inside = not inside
        elif each in "[{" and not inside:
            levels += 1
        elif each in "]}" and not inside:
            levels = max(levels - 1, 0)
        most = max(most, levels)
        place += 1
    return most


def test_levels_are_counted_as_a_naive_reader_does_however_the_bytes_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_text, "MOST_LEVELS", 2)
    chance = random.Random(0)  # noqa: S311
    texts = ["".join(chance.choices('[]{}"\\\n\ra', k=chance.randrange(24))) for _ in range(3000)]

    refused = [naive_levels(text) > 2 for text in texts]

    assert 500 < sum(refused) < 2500
    for piece in (-1, 1, 2, 5):
        assert [is_refused(text.encode(), piece) for text in texts] == refused


def test_as_many_levels_as_are_allowed_are_read() -> None:
    table = pyarrow.json.read_json(ShallowJson(io.BytesIO(nested(MOST_LEVELS) * 3)))

    assert table.num_rows == 3


@pytest.mark.parametrize("before", [b"", b'{"a": []}\n', b'{"a": "\n', b"]]]]]]\n", b'{"a": 1}\r'])
def test_one_level_more_is_refused_whatever_is_in_front_of_it(before: bytes) -> None:
    with pytest.raises(NestedTooDeeply):
        pyarrow.json.read_json(ShallowJson(io.BytesIO(before + nested(MOST_LEVELS + 1))))


def test_brackets_in_text_are_no_levels() -> None:
    text = b'{"a": "' + b"[{" * 1000 + b'\\"' + b"[{" * 1000 + b'"}\n'

    table = pyarrow.json.read_json(ShallowJson(io.BytesIO(text)))

    assert table["a"].to_pylist() == ["[{" * 1000 + '"' + "[{" * 1000]
