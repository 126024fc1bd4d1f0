"""What the pages say works: their Python runs, their commands and links exist."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from difficulty_service.cli import COMMANDS
from difficulty_service.score_file import SCHEMA, write_scores

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_on_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table(
        {"sample_id": ["a"], "label": [0], "label_name": ["cat"], "rmd": pa.array([1.0])}
    )
    write_scores(tmp_path / "scores.parquet", table, {"backbone": "builtin"})
    monkeypatch.chdir(tmp_path)

    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), {})  # noqa: S102 - our own pages


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_a_page_exist(page: Path) -> None:
    names = {command.__name__ for command in COMMANDS}

    used = re.findall(
        r"^(?:\.venv/bin/)?difficulty (\w+)", "\n".join(blocks(page, "")), re.MULTILINE
    )

    assert set(used) <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_score_column_is_described() -> None:
    page = (ROOT / "docs" / "score-file.md").read_text()

    assert all(f"`{name}`" in page for name in SCHEMA.names)
