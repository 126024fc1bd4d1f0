"""JSON objects with a checksum of their values, which is a member of its own.

White space, the order of the members and the spelling of a number do not matter.
"""

import json
from collections.abc import Mapping
from typing import Any

import xxhash

from difficulty_service.files.checksum import DamagedFile

KEY = "checksum"
PREFIX = "xxh3-128:"


def dump_checked(values: Mapping[str, Any], **options: Any) -> str:  # noqa: ANN401
    """A JSON object with its checksum as another member.

    Args:
        values: JSON values.
        options: Arguments of `json.dumps`.
    """
    written = json.loads(json.dumps(values, allow_nan=options.get("allow_nan", True)))
    return json.dumps({**values, KEY: _checksum(written)}, **options)


def load_checked(text: str) -> dict[str, Any]:
    """The values of a JSON object, without its checksum; it may have none.

    Raises:
        DamagedFile: The checksum does not match.
        ValueError: The text is no JSON object.
    """
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError(f"it holds {type(values).__name__}, not an object")  # noqa: TRY004 - of a file
    checksum = values.pop(KEY, None)
    # Damage to the key must not make a file look like one without a checksum.
    lost = any(isinstance(value, str) and value.startswith(PREFIX) for value in values.values())
    if lost or (checksum is not None and checksum != _checksum(values)):
        raise DamagedFile(
            "its checksum does not match its content; delete the member checksum if the rest was "
            "changed on purpose"
        )
    return values


def _checksum(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return PREFIX + xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))
