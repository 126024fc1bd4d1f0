"""How often the paths of the project may wait for a GPU; `budget.toml` is the table."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BUDGET: Mapping[str, Mapping[str, Mapping[str, int]]] = tomllib.loads(
    (Path(__file__).parent / "budget.toml").read_text()
)


def require_within(group: str, path: str, counted: Mapping[str, Any]) -> None:
    """Fails a test of a path that waits or copies more often than the table allows."""
    allowed = BUDGET[group][path]
    exceeded = counted["wait"] > allowed["waits"] or counted["blocking copy"] > allowed["copies"]
    lines = "\n".join(counted["lines"])
    assert not exceeded, (
        f"{group} {path!r}: {counted['wait']:g} waits and {counted['blocking copy']:g} blocking "
        f"copies, where {allowed['waits']} and {allowed['copies']} are allowed:\n{lines}"
    )
