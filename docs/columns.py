"""Writes the tables of columns and of metadata in docs/score-file.md, from what declares them.

Run: python docs/columns.py
"""

from pathlib import Path

from difficulty_service.cli.wrong_call import as_option
from difficulty_service.score_columns import COLUMNS, COMPUTED_BY, Column
from difficulty_service.scores.provenance import Provenance

PAGE = Path(__file__).with_name("score-file.md")

START = "<!-- {name}: written by `python docs/columns.py` -->\n\n"
END = "\n<!-- end of {name} -->"


def page() -> str:
    """The whole page, with its tables written anew."""
    text = PAGE.read_text()
    for name, table in {"columns": _columns(), "keys": _keys()}.items():
        start, end = (mark.format(name=name) for mark in (START, END))
        before, rest = text.split(start)
        _, after = rest.split(end)
        text = "".join([before, start, table, end, after])
    return text


def _columns() -> str:
    header = (
        "| column | type | values | meaning | how to get it |\n| --- | --- | --- | --- | --- |\n"
    )
    rows = [
        f"| `{column.name}` | {column.type} | {column.values} | {column.sentence} "
        f"| {_remedy(column)} |\n"
        for column in COLUMNS.values()
    ]
    return header + "".join(rows)


def _remedy(column: Column) -> str:
    """How to get a column, in the words of the error where it is absent."""
    if column.required:
        return "in every file"
    parts = COMPUTED_BY.get(column.name, ("score",))
    return "".join(part if isinstance(part, str) else f"`{as_option(part)}`" for part in parts)


def _keys() -> str:
    rows = [
        f"| `{name}` | {' '.join((field.description or '').split())} |\n"
        for name, field in Provenance.model_fields.items()
    ]
    return "".join(["| key | value |\n| --- | --- |\n", *rows])


if __name__ == "__main__":
    PAGE.write_text(page())
