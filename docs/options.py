"""Writes docs/options.md, the reference of options, from their models.

Run: python docs/options.py
"""

from pathlib import Path

from pydantic import BaseModel

from difficulty_service.scores.score_columns import SCORERS
from difficulty_service.settings.options import (
    EncodingOptions,
    ReadingOptions,
    ScoringOptions,
    sentence_of,
)

PAGE = Path(__file__).with_suffix(".md")

START = """# Options of scoring

<!-- Written by `python docs/options.py`; a test holds it against the models. -->

The same names, defaults and bounds hold for `difficulty score` (`--augment-runs 4`),
`ds.score_dataset` (`augment_runs=4`), a job's body (`"augment_runs": 4`) and the form of the
service. What only the owner of a machine may choose, such as device, memory, threads and folders,
is an option of the command line and of Python, and [a setting](api.md#settings) of the service.
"""

TITLES: dict[type[BaseModel], str] = {
    ReadingOptions: "Which samples, and how tables are read",
    EncodingOptions: "What is done to each sample",
    ScoringOptions: "How features become scores",
}


def page() -> str:
    """The whole page."""
    sections = [START]
    for options, title in TITLES.items():
        rows = [
            f"| `{name}` | {_default(field.default)} | {sentence_of(options, name)} |"
            for name, field in options.model_fields.items()
        ]
        header = ["| option | default | what it does |", "| --- | --- | --- |"]
        sections.append("\n".join([f"## {title}", "", *header, *rows, ""]))
    scorers = [
        f"| `{scorer.name}` | {scorer.sentence} | {', '.join(f'`{c}`' for c in scorer.columns)} |"
        for scorer in SCORERS.values()
    ]
    header = ["| scorer | what it is | columns |", "| --- | --- | --- |"]
    sections.append("\n".join(["## Scorers", "", *header, *scorers, ""]))
    return "\n".join(sections)


def _default(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{','.join(value) if isinstance(value, tuple) else value}`"


if __name__ == "__main__":
    PAGE.write_text(page())
