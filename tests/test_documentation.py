"""What the pages say works: their Python runs, their commands and links exist."""

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.main import get_command

from difficulty_service.cli import create_app
from difficulty_service.score_file import SCHEMA, write_scores
from trainer.config import (
    DataConfig,
    OptimiserConfig,
    RegulariserConfig,
    ScheduleConfig,
    TrainingConfig,
)
from trainer.losses import LOSSES, LOSSES_WITH_MEMORY, loss_constants
from trainer.recipes.file import recipe_from_dict, shipped_recipes

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NEEDS_A_SERVICE = "api.md"  # its examples have tests of their own, beside a running service


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != NEEDS_A_SERVICE], ids=lambda page: page.name
)
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
    app = create_app()
    names = {each.callback.__name__ for each in app.registered_commands if each.callback}
    names |= {str(each.name) for each in app.registered_groups}

    used = re.findall(
        r"^(?:\.venv/bin/)?difficulty (\w+)", "\n".join(blocks(page, "")), re.MULTILINE
    )

    assert set(used) <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_on_a_page_exist(page: Path) -> None:
    options = {
        name: {option for one in commands_of(command) for option in options_of(one)}
        for name, command in get_command(create_app()).commands.items()  # type: ignore[attr-defined]
    }
    text = "\n".join(blocks(page, "")).replace("\\\n", " ")
    used = re.findall(r"\bdifficulty(?:_service)? ([a-z]+) ([^\n]*)", text)

    unknown = [
        (name, option)
        for name, rest in used
        for option in re.findall(r"--[a-z][a-z-]*", rest)
        if option not in options.get(name, ())
    ]

    assert unknown == []


def commands_of(command: Any) -> list[Any]:  # noqa: ANN401 - of a library that is hardly typed
    """A command itself, or those of a group."""
    return list(getattr(command, "commands", {"": command}).values())


def options_of(command: Any) -> set[str]:  # noqa: ANN401
    """As they are written on the command line."""
    return {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_recipes_on_a_page_can_be_read(page: Path) -> None:
    for block in blocks(page, "toml"):
        assert recipe_from_dict(tomllib.loads(block), page.name).name


def test_every_score_column_is_described() -> None:
    page = (ROOT / "docs" / "score-file.md").read_text()

    assert all(f"`{name}`" in page for name in SCHEMA.names)


def test_every_key_of_a_recipe_is_described() -> None:
    page = (ROOT / "docs" / "training.md").read_text()
    tables = (DataConfig, RegulariserConfig, OptimiserConfig, ScheduleConfig, TrainingConfig)

    keys = {field.name for table in tables for field in dataclasses.fields(table)} - {"name"}

    assert [key for key in sorted(keys) if not re.search(rf"`(\w+\.)?{key}`", page)] == []


def test_every_loss_model_constant_and_shipped_recipe_is_described() -> None:
    page = (ROOT / "docs" / "training.md").read_text()

    losses = LOSSES | LOSSES_WITH_MEMORY
    names = {*losses, *(constant for loss in losses for constant in loss_constants(loss))}

    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
    assert [
        name
        for name in shipped_recipes()
        if f"`{name}`" not in page and f"`_{name.rpartition('_')[2]}`" not in page
    ] == []
