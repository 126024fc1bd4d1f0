"""The results of all parts as one JSON file and one table in Markdown."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.gpu.parts import PartResult, Row

HEAD = ("| part | measured | value | unit | |", "| --- | --- | --- | --- | --- |")


def write_report(folder: Path, machine: str, results: Sequence[PartResult]) -> tuple[Path, Path]:
    """Writes `gpu.json` and `gpu.md`, and gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    as_json, table = folder / "gpu.json", folder / "gpu.md"
    content = {"machine": machine, "parts": [asdict(result) for result in results]}
    as_json.write_text(f"{json.dumps(content, indent=1)}\n")
    table.write_text(f"{machine}\n\n{markdown(results)}\n")
    return as_json, table


def markdown(results: Sequence[PartResult]) -> str:
    """One row for each number, and one for each part that has none or not all."""
    lines = [*HEAD]
    for result in results:
        lines += [_line(result.name, row) for row in result.rows]
        if result.left_out is not None:
            lines.append(f"| {result.name} | left out | | | {_cell(result.left_out)} |")
    return "\n".join(lines)


def _line(part: str, row: Row) -> str:
    value = "-" if row.value is None else show(row.value)
    return f"| {part} | {_cell(row.what)} | {value} | {row.unit} | {_cell(row.note)} |"


def show(value: float) -> str:
    """Three digits that count, or all of a whole number."""
    if value == int(value) or abs(value) >= 100:  # noqa: PLR2004 - three digits
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")
