"""Writes the table of addresses in docs/api.md from the routes.

Run: python docs/addresses.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from api.app import create_app
from api.settings import Settings
from docs.marked_parts import with_parts

PAGE = Path(__file__).with_name("api.md")


def page() -> str:
    """The page with the table of the present addresses."""
    with TemporaryDirectory() as folder:
        paths = create_app(Settings(data_dir=Path(folder))).openapi()["paths"]
    rows = [
        f"| `{method.upper()} {path}` | {operation['summary']} | {_parameters(operation)} |"
        for path, operations in paths.items()
        for method, operation in operations.items()
    ]
    header = ["| address | what it is for | parameters |", "| --- | --- | --- |"]
    return with_parts(PAGE, "addresses.py", {"addresses": "\n".join([*header, *rows, ""])})


def _parameters(operation: dict[str, Any]) -> str:
    """Names of the parameters of its query."""
    given = operation.get("parameters", ())
    return ", ".join(f"`{each['name']}`" for each in given if each["in"] == "query")


if __name__ == "__main__":
    PAGE.write_text(page())
