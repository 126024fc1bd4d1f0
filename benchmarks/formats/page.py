"""The parts of docs/formats.md that are made of its table."""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
TABLE, TRIPS, FIELDS = (DOCS / f"{name}.csv" for name in ("formats", "round_trips", "fields"))
PAGE = DOCS / "formats.md"
_START, _END = "<!-- {}: written by `make formats` -->\n\n", "\n<!-- end of {} -->"
_NOTHING = "-"

Rows = Sequence[Mapping[str, str]]


def rows_of(table: Path = TABLE) -> Rows:
    """The rows of the table."""
    with table.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def page_of(text: str, rows: Rows, trips: Rows, fields: Rows) -> str:
    """The text of the page, with its parts written anew."""
    parts = {"summary": _summary(rows), "differences": _differences(rows)}
    parts |= {"trips": _trips(trips), "fields": _fields(fields)}
    for name, part in parts.items():
        before, rest = text.split(_START.format(name))
        _, after = rest.split(_END.format(name))
        text = "".join([before, _START.format(name), part, _END.format(name), after])
    return text


def _summary(rows: Rows) -> str:
    groups: dict[tuple[str, str], list[Mapping[str, str]]] = defaultdict(list)
    for row in rows:
        groups[f"{row['writer']} {row['version']}", row["format"]].append(row)
    lines = [
        "| program | format | datasets | boxes or images given | ours found | its reader found | "
        "ours: pixels | its reader: pixels | cleaned |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (writer, form), group in groups.items():
        cleaned = [row["cleaned"] for row in group if row["cleaned"] != _NOTHING]
        cells = (
            *(writer, form, str(len(group)), _total(group, "boxes"), _total(group, "ours")),
            *(_total(group, "its own reader"), _most(group, "ours: pixels")),
            _most(group, "its own: pixels"),
            f"{cleaned.count('yes')} of {len(cleaned)}" if cleaned else _NOTHING,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _total(group: Iterable[Mapping[str, str]], column: str) -> str:
    """The sum of the numbers of a column, or the word that is in it."""
    texts = [row[column].partition(" ")[0] for row in group if row[column] != _NOTHING]
    numbers = [int(text) for text in texts if text.isdigit()]
    words = list(dict.fromkeys(row[column] for row in group if not row[column][:1].isdigit()))
    words = [word for word in words if word != _NOTHING]
    return ", ".join([*([str(sum(numbers))] if numbers else []), *words]) or _NOTHING


def _most(group: Iterable[Mapping[str, str]], column: str) -> str:
    numbers = [float(row[column]) for row in group if row[column] != _NOTHING]
    return f"{max(numbers):.2f}" if numbers else _NOTHING


def _differences(rows: Rows) -> str:
    situations: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for row in rows:
        if row["difference"]:
            situations[row["writer"], row["format"], row["difference"]].append(row["situation"])
    lines = ["| program | format | situation | difference |", "|---|---|---|---|"]
    for (writer, form, difference), names in situations.items():
        text = difference.replace("|", r"\|")
        lines.append(f"| {writer} | {form} | {'; '.join(names)} | {text} |")
    return "\n".join(lines) + "\n"


def _trips(rows: Rows) -> str:
    lines = [f"| {' | '.join(rows[0])} |", "|" + "---|" * len(rows[0])]
    lines += [f"| {' | '.join(cell or _NOTHING for cell in row.values())} |" for row in rows]
    return "\n".join(lines) + "\n"


def _fields(rows: Rows) -> str:
    groups: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    for row in rows:
        groups[f"{row['program']} {row['version']}"].append(row)
    lines = ["| program | images | levels apart |", "|---|---|---|"]
    for program, group in groups.items():
        names = "; ".join(row["image"] for row in group)
        lines.append(f"| {program} | {names} | {_most_levels(group)} |")
    return "\n".join(lines) + "\n"


def _most_levels(group: Iterable[Mapping[str, str]]) -> str:
    """The largest number of levels, or why an image is not read."""
    return max((row["levels apart"] for row in group), key=lambda text: (len(text), text))


def write_page() -> None:
    """Writes the parts of the page anew."""
    PAGE.write_text(page_of(PAGE.read_text(), rows_of(), rows_of(TRIPS), rows_of(FIELDS)))
