"""Writes the columns and the keys of docs/score-file.md, from what declares them.

Run: python docs/columns.py
"""

from pathlib import Path

from difficulty_service.base.errors import Setting
from difficulty_service.cli.wrong_call import as_option
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.score_columns import COLUMNS, COMPUTED_BY, ColumnKind
from difficulty_service.scoring.image_faults import FAULTS
from docs.marked_parts import with_parts

PAGE = Path(__file__).with_name("score-file.md")


def page() -> str:
    """The whole page, with what is made of declarations written anew."""
    return with_parts(
        PAGE, "columns.py", {"columns": _columns(), "faults": _faults(), "keys": _keys()}
    )


def _columns() -> str:
    header = "| column | type | values | meaning | needs |\n| --- | --- | --- | --- | --- |\n"
    rows = [
        f"| `{column.name}` | {column.type} | {column.values} | {column.sentence} "
        f"| {_settings(column)} |\n"
        for column in COLUMNS.values()
    ]
    return header + "".join(rows)


def _settings(column: ColumnKind) -> str:
    """The options that compute a column, from the remedy of the error where it is absent."""
    remedy = COMPUTED_BY.get(column.name, ())
    unwanted = any(isinstance(part, str) and part.endswith("without ") for part in remedy)
    options = [f"`{as_option(part)}`" for part in remedy if isinstance(part, Setting)]
    return " ".join(["no", *options] if unwanted else options)


def _faults() -> str:
    rows = [f"| {fault.name} | {fault.why} |\n" for fault in FAULTS]
    return "| fault | an image has it where |\n| --- | --- |\n" + "".join(rows)


def _keys() -> str:
    return "".join(
        f"- `{name}`: {' '.join((field.description or '').split())}\n"
        for name, field in Provenance.model_fields.items()
    )


if __name__ == "__main__":
    PAGE.write_text(page())
