"""Small changes of bytes, texts and JSON, from a random generator with a fixed seed."""

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

LONGEST_BLOCK = 64
MOST_MEMBERS = 50_000
"""Members of a list after it was repeated, which are more bytes than the service takes; a repeated
list of repeated ones would cost as much time to write out as thousands of other changes."""

STRANGE_BYTES = (
    *(b"\x00", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\xed\xa0\x80"),
    *(
        b"\r\n\r\n",
        b"--x--",
        b"{",
        b'"',
        b"]",
        b"PK\x01\x02",
        b"PAR1",
        b"\xc0\xaf",
        b"\xef\xbb\xbf",
    ),
)
STRANGE_TEXTS = (
    *(
        "",
        " ",
        "\x00",
        "\x7f",
        "\ud7ff",
        "\ufffe",
        "\u202e",
        "é",
        "💥",
        "e\u0301",
        "%00",
        "%ff",
        "%",
    ),
    *("../..", "/", "//", "\\", "?", "#", ";", ",", "=", "&", "'", '"', "<b>", "{{1}}", "\r\nA: b"),
    *("-1", "0", "1e309", "NaN", "-inf", "9" * 40, "0x10", "١٢", "1_0", "null", "true", "a" * 3000),
)
STRANGE_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 0.5, 1e308, 2**31, 2**53, 2**63, 2**64, -(2**63) - 1, 10**40),
    *(float("nan"), float("inf"), [], {}, [[]], [None], {"": {}}, {"a": [1]}, *STRANGE_TEXTS),
)


def changed_bytes(random: Random, whole: bytes) -> bytes:
    """The bytes with one to three changes of any kind."""
    content = bytearray(whole)
    for _ in range(random.randint(1, 3)):
        random.choice(BYTE_CHANGES)(random, content)
    return bytes(content)


def _flip(random: Random, content: bytearray) -> None:
    for _ in range(random.randint(1, 8) if content else 0):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)


def _fill(random: Random, content: bytearray) -> None:
    start, end = _block(random, content)
    value = random.choice((0, 255, random.randrange(256)))
    content[start:end] = bytes([value]) * (end - start)


def _remove(random: Random, content: bytearray) -> None:
    start, end = _block(random, content)
    del content[start:end]


def _repeat(random: Random, content: bytearray) -> None:
    start, end = _block(random, content)
    content[end:end] = content[start:end] * random.randint(1, 20)


def _cut(random: Random, content: bytearray) -> None:
    del content[random.randint(0, len(content)) :]


def _insert(random: Random, content: bytearray) -> None:
    place = random.randint(0, len(content))
    content[place:place] = random.choice(STRANGE_BYTES)


def _overwrite(random: Random, content: bytearray) -> None:
    strange = random.choice(STRANGE_BYTES)
    place = random.randint(0, len(content))
    content[place : place + len(strange)] = strange


BYTE_CHANGES: tuple[Callable[[Random, bytearray], None], ...] = (
    *(_flip, _fill, _remove, _repeat, _cut, _insert, _overwrite),
)


def _block(random: Random, content: bytearray) -> tuple[int, int]:
    start = random.randint(0, len(content))
    return start, min(len(content), start + random.randint(1, LONGEST_BLOCK))


def changed_text(random: Random, text: str) -> str:
    """The text with a strange one in place of it, within it or instead of its end."""
    strange = random.choice(STRANGE_TEXTS)
    place = random.randint(0, len(text))
    return random.choice((strange, text[:place] + strange + text[place:], text[:place] + strange))


def changed_json(random: Random, value: Any) -> bytes:  # noqa: ANN401
    """The JSON of a value in which one to three members are others, and rarely its bytes, too."""
    root = [deepcopy(value)]
    for _ in range(random.randint(1, 3)):
        holder, place = _place(random, root)
        _change_member(random, holder, place)
    content = json.dumps(root[0] if root else None).encode()
    return changed_bytes(random, content) if random.random() < 0.15 else content


def _place(random: Random, value: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """A list or object inside a value, with one of its places.

    Each level is as likely as the next, so that a long list of numbers does not hide the rest.
    """
    while True:
        places = list(value) if isinstance(value, dict) else range(len(value))
        place = random.choice(places)
        member = value[place]
        if not isinstance(member, list | dict) or not member or random.random() < 0.3:
            return value, place
        value = member


def _members(value: Any) -> int:  # noqa: ANN401
    """Number of values that a value holds, with itself."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_members, inner))


def _change_member(random: Random, holder: Any, place: Any) -> None:  # noqa: ANN401
    choice = random.randrange(6)
    if choice == 0 and isinstance(holder, dict):
        del holder[place]
    elif choice == 1 and isinstance(holder, dict):
        holder[random.choice(STRANGE_TEXTS)] = holder[place]
    elif choice == 1:
        holder *= min(random.randint(2, 200), max(1, MOST_MEMBERS // _members(holder)))
    elif choice == 2 and isinstance(holder[place], str):
        holder[place] = changed_text(random, holder[place])
    elif choice == 3:
        holder[place] = [holder[place]]
    else:
        holder[place] = deepcopy(random.choice(STRANGE_VALUES))
