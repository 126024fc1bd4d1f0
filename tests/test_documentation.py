"""What the pages say works: their Python runs, their commands, options, links and figures exist."""

import csv
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evidence.page import DOCS as EVIDENCE
from benchmarks.evidence.page import page as evidence_page
from benchmarks.evidence.page_text import Tables
from docs.recipes import PAGE, page
from docs.training import PAGE as TRAINING_PAGE
from docs.training import page as training_page
from docs.words import words, words_by_page
from tests.command_options import options_by_command
from tests.factories import write_score_file
from tests.two_processes import run_in_two
from trainer.losses import LOSSES, LOSSES_WITH_MEMORY, loss_constants
from trainer.recipes.file import recipe_from_dict, shipped_recipes
from trainer.recipes.tables import TABLES

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NEEDS_A_SERVICE = ("api.md", "client.md")  # examples with tests beside a running service
BEGINS_ONCE = ("own-loop.md",)  # the first example of the page makes the data of the others
FENCED = re.compile(r"^```(\w*|\{\w+\}[^\n]*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
OPTION = re.compile(r"(?<!\S)--[a-z][\w-]*")
OPTIONS_OF_ALL = {"--debug", "--help", "--install-completion", "--version"}
OPTIONS_OF_OTHERS = {"--shm-size", "--cpus", "--logdir", "--machine_rank", "--no-deps", "--rm"}
"""Options of docker, tensorboard, accelerate, pip and docker compose that sentences name."""

MOST_WORDS = 45_000
"""Words of all pages, without generated parts."""


OF_DEVELOPERS = ("keras", "lightning")
"""Packages of examples that no extra of users brings."""

DISTRIBUTED = "init_process_group"

SLOW = (
    DISTRIBUTED,
    "from accelerate import",
    "from transformers import",
    "import keras",
    "import lightning",
)
"""Examples that take more than five seconds."""

EXAMPLE = """
import os

os.chdir(f"{folder}/{rank}")
names = {"__name__": "__main__"}
exec(compile(text, "example", "exec"), names)
memory = names["objective"].state_dict()["loss"]
state = memory | dict(names["network"].module.state_dict())
with open("state", "w") as file:
    file.write(repr({key: getattr(each, "tolist", lambda: each)() for key, each in state.items()}))
"""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page, with its language and the line that it starts on."""

    page: Path
    line: int
    language: str
    text: str


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for fenced in FENCED.finditer(text):
        yield Block(page, text.count("\n", 0, fenced.start()) + 1, fenced[1], fenced[2])


def cases(wanted: Callable[[Block], object]) -> list[Any]:
    """Blocks of all pages that a test has something to do with, named by page and line."""
    return [
        pytest.param(
            block,
            id=f"{page.name}:{block.line}",
            marks=[pytest.mark.slow] if any(word in block.text for word in SLOW) else [],
        )
        for page in PAGES
        for block in blocks_of(page)
        if wanted(block)
    ]


def commands_in(block: Block) -> list[tuple[str, str]]:
    """Every call of `difficulty` in a shell block: its command, and the rest of the line."""
    if block.language not in ("", "bash"):
        return []
    text = block.text.replace("\\\n", " ")
    return re.findall(
        r"(?:^|[\s'/])difficulty(?:_service)? ([a-z]+(?:-[a-z]+)*)\b ?([^\n]*(?:\n {4,}[^\n]*)*)",
        text,
    )


def beginning_of(block: Block) -> str:
    """What an example takes from the first one of its page."""
    first = next(each for each in blocks_of(block.page) if each.language == "python")
    return first.text if block.page.name in BEGINS_ONCE and block != first else ""


@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "block",
    cases(
        lambda block: (
            block.language == "python"
            and block.page.name not in NEEDS_A_SERVICE
            and DISTRIBUTED not in block.text
        )
    ),
)
def test_python_on_a_page_runs(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", "torch")  # the example sets it for good
    for package in OF_DEVELOPERS:
        if f"import {package}" in block.text:
            pytest.importorskip(package)
    write_score_file(tmp_path / "scores.parquet", {"a": 1.0}, backbone="builtin")
    monkeypatch.chdir(tmp_path)
    text = beginning_of(block) + block.text

    exec(compile(text, block.page.name, "exec"), {"__name__": "example"})  # noqa: S102 - our own pages


@pytest.mark.parametrize("block", cases(lambda block: DISTRIBUTED in block.text))
def test_python_for_several_processes_runs_in_two(
    block: Block, forkserver: ForkServerContext, tmp_path: Path
) -> None:
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
    text = beginning_of(block) + block.text

    run_in_two(forkserver, EXAMPLE, folder=str(tmp_path), text=text)

    first, second = ((tmp_path / str(rank) / "state").read_text() for rank in range(2))
    assert first == second  # the parameters and the memory of the loss


@pytest.mark.parametrize("block", cases(commands_in))
def test_commands_and_options_in_a_block_exist(block: Block) -> None:
    options = options_by_command()

    unknown = [
        (command, option)
        for command, rest in commands_in(block)
        for option in (None, *re.findall(r"--[a-z][a-z-]*", rest))
        if command not in options or (option and option not in options[command])
    ]

    assert unknown == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "`--" in page.read_text()],
    ids=lambda page: page.name,
)
def test_options_in_the_text_of_a_page_exist(page: Path) -> None:
    known = set.union(OPTIONS_OF_ALL, OPTIONS_OF_OTHERS, *options_by_command().values())
    text = FENCED.sub("", page.read_text())

    named = [option for code in re.findall(r"`([^`]+)`", text) for option in OPTION.findall(code)]

    assert sorted(set(named) - known) == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if LINK.search(page.read_text())], ids=lambda page: page.name
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text())

    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("block", cases(lambda block: block.language == "toml"))
def test_a_recipe_on_a_page_can_be_read(block: Block) -> None:
    assert recipe_from_dict(tomllib.loads(block.text), block.page.name).name


def test_the_tests_that_the_page_of_security_names_exist() -> None:
    page = (ROOT / "docs" / "security.md").read_text()

    named = re.findall(r"`([a-z_/]*test_\w+\.py|tests/[\w/]+)`", page)

    assert named
    assert [
        name
        for name in named
        if not (ROOT / name).exists() and not (ROOT / "tests" / "api" / name).exists()
    ] == []


def test_the_page_of_keys_of_a_recipe_is_made_of_their_models() -> None:
    assert PAGE.read_text() == page(), "run: python docs/recipes.py"


def test_the_page_of_evidence_is_made_of_its_tables() -> None:
    made = evidence_page(Tables(EVIDENCE / "evidence"))

    assert (EVIDENCE / "evidence.md").read_text() == made, "run: python -m benchmarks.evidence.page"


def test_the_page_of_evidence_links_to_each_of_its_tables() -> None:
    linked = set(re.findall(r"\]\(evidence/(\w+\.csv)\)", (EVIDENCE / "evidence.md").read_text()))

    assert linked == {file.name for file in (EVIDENCE / "evidence").glob("*.csv")}


def test_every_key_of_a_recipe_is_described() -> None:
    fields = [
        field
        for kinds in TABLES.values()
        for member in kinds.members.values()
        for key, field in member.model_fields.items()
        if key != kinds.tag
    ]

    assert all(field.description for field in fields)


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


def test_the_losses_and_recipes_of_the_page_of_training_are_made_of_their_files() -> None:
    assert TRAINING_PAGE.read_text() == training_page(), "run: python docs/training.py"


def test_the_pages_are_short_together() -> None:
    assert sum(words_by_page().values()) <= MOST_WORDS


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("# A page\n\nof words.\n", 5),
        (
            "one\n<!-- part: written by `python x.py` -->\n\ntwo\n<!-- end of part -->\nthree\n",
            2,
        ),
        ("# A page\n\n<!-- Written by `python x.py`. -->\n", 0),
    ],
    ids=["all by hand", "a part made from code", "all made from code"],
)
def test_words_are_counted_without_what_is_made_from_code(text: str, count: int) -> None:
    assert words(text) == count


@pytest.mark.slow
def test_the_figures_are_drawn_from_the_numbers_beside_them(tmp_path: Path) -> None:
    subprocess.run([sys.executable, FIGURES / "draw.py", tmp_path], check=True)  # noqa: S603

    drawn = {file.name: file.read_text() for file in tmp_path.iterdir()}

    assert drawn == {file.name: file.read_text() for file in FIGURES.glob("*.svg")}
    assert {Path(name).stem for name in drawn} == {file.stem for file in FIGURES.glob("*.csv")}


@pytest.mark.parametrize("page", ["benchmarks.md", "findings.md"])
def test_a_page_shows_every_figure_that_is_drawn_for_it(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()

    shown = re.findall(r"!\[.+\]\((figures/\w+\.svg)\)", text)

    assert shown
    assert all((ROOT / "docs" / name).is_file() for name in shown)


def rows_of(name: str) -> list[dict[str, str]]:
    with (ROOT / "docs" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def table_with(header: str, page: str = "findings.md") -> list[list[str]]:
    """Cells of the table of a page that begins with `header`, bold taken away."""
    text = (ROOT / "docs" / page).read_text().replace("**", "")
    table = text.split(f"| {header} |", 1)[1].split("\n\n", 1)[0]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]
    for above, row in pairwise(rows):
        row[0] = row[0] or above[0]  # what is the same as above is left empty
    return rows


def with_deviations(row: dict[str, str], names: tuple[str, ...]) -> list[str]:
    return [f"{row[name]} ± {row[f'{name}_sd']}" for name in names]


LABELS = {"official": "official", "aggregated": "9 % wrong", "worst": "40 % wrong"}


@pytest.mark.parametrize(
    ("table", "keys", "metrics", "header"),
    [
        (
            "figures/probes",
            ("labels", "method"),
            ("accuracy", "adaptive_ece", "nll"),
            "labels | method | accuracy (%) | adaptive ECE (%) | NLL",
        ),
        (
            "findings/losses",
            ("dataset", "method"),
            ("accuracy", "adaptive_ece", "adaptive_ece_scaled"),
            "dataset | method | accuracy (%) | adaptive ECE (%) | scaled",
        ),
        (
            "findings/scratch",
            ("method",),
            ("accuracy", "adaptive_ece", "adaptive_ece_scaled"),
            "method | accuracy (%) | adaptive ECE (%) | scaled",
        ),
    ],
)
def test_the_trained_networks_of_the_page_are_those_of_the_table(
    table: str, keys: tuple[str, ...], metrics: tuple[str, ...], header: str
) -> None:
    measured = [
        [*(LABELS.get(row[key], row[key]) for key in keys), *with_deviations(row, metrics)]
        for row in rows_of(table)
    ]

    shown = table_with(header)

    assert len(shown) > 2
    assert [row for row in shown if row not in measured] == []


def test_the_few_images_of_the_page_are_those_of_the_table() -> None:
    names = ("auto_suspicion", "auto_label_margin", "none_label_margin", "ledoit_wolf_label_margin")
    measured = [
        [
            f"{int(row['images_per_class']):,}",
            *(row[name] for name in (*names, "probe", "auroc_95")),
        ]
        for row in rows_of("findings/few_images")
        if row["dataset"] == "CIFAR-10"
    ]

    shown = table_with("images per class | `suspicion`")

    assert len(shown) > 2
    assert [row for row in shown if row not in measured] == []


def test_the_error_rates_of_the_page_are_those_of_the_figure() -> None:
    bins = rows_of("figures/error_rate")

    shown = {backbone.strip("`"): rates for backbone, *rates in table_with("error rate")}

    for backbone, rates in shown.items():
        drawn = [float(bins[number - 1][backbone]) for number in (1, 5, 10, 15, 20)]
        everything = sum(float(row[backbone]) for row in bins) / len(bins)
        assert rates == [f"{rate:.1f} %" for rate in (*drawn, everything)]


@pytest.mark.parametrize("page", ["findings", "benchmarks"])
def test_a_page_links_to_each_of_its_tables(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()

    linked = set(re.findall(rf"\]\({page}/(\w+\.csv)\)", text))

    assert linked == {file.name for file in (ROOT / "docs" / page).glob("*.csv")}


@pytest.mark.parametrize("spread", ["0.05", "0.3", "1", "2"])
def test_a_row_of_the_table_of_spreads_is_that_of_its_study(spread: str) -> None:
    with (PAGE.parent / "findings" / "spread.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["spread"] == spread]
    cells = [spread]
    for dataset in ("cifar10", "cifar100"):
        for other in ("permuted", "constant"):
            name = f"NLL minus {other}"
            found = [
                (float(row[name]), float(row[f"{name}: interval"]))
                for row in rows
                if row["dataset"] == dataset
            ]
            mean = sum(difference for difference, _ in found) / len(found)
            lower = sum(difference < -error for difference, error in found)
            cells.append(f"{mean:.3f}, {lower} of {len(found)}")

    assert f"| {' | '.join(cells)} |" in (PAGE.parent / "findings.md").read_text()
