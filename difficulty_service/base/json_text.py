"""Parses JSON that anybody may have written."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401 - whatever it holds
    """The value of a JSON text; ValueError where it is none, also where it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
