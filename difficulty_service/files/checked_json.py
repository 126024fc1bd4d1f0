"""JSON objects with a checksum of their values in members of its own.

White space, the order of the members and the spelling of a number do not matter.
"""

import json
from collections.abc import Mapping
from typing import Any

import xxhash

from difficulty_service.files.checksum import DamagedFile

KEY = "checksum"
MARK = "with_checksum"
"""A member that tells an object that lost its checksum from one that never had any.

It is the first member, the checksum is the last, so that no piece that is cut out takes both and
leaves any other member.
"""

PREFIX = "xxh3-128:"


def dump_checked(values: Mapping[str, Any], **options: Any) -> str:  # noqa: ANN401
    """A JSON object with its checksum, and that it has one, as other members.

    Args:
        values: JSON values.
        options: Arguments of `json.dumps`.
    """
    is_sorted = options.pop("sort_keys", False)
    allow_nan = options.get("allow_nan", True)
    written = json.loads(json.dumps(values, sort_keys=is_sorted, allow_nan=allow_nan))
    return json.dumps({MARK: True, **written, KEY: _checksum(written)}, **options)


def load_checked(text: str) -> dict[str, Any]:
    """The values of a JSON object, without its checksum; it may have none.

    Raises:
        DamagedFile: The checksum does not match.
        ValueError: The text is no JSON object.
    """
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError(f"it holds {type(values).__name__}, not an object")  # noqa: TRY004 - of a file
    checksum, marked = values.pop(KEY, None), values.pop(MARK, False)
    # Damage to a key must not make a file look like one without a checksum.
    texts = [value for value in values.values() if isinstance(value, str)]
    is_damaged = any(text.startswith(PREFIX) for text in texts)
    if checksum is None:
        is_damaged |= bool(marked)
    else:
        is_damaged |= checksum != _checksum(values)
    if is_damaged:
        raise DamagedFile(
            f"its checksum does not match its content; delete the members {KEY} and {MARK} if the "
            "rest was changed on purpose"
        )
    return values


def _checksum(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return PREFIX + xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))
