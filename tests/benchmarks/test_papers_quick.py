"""Reduced forms of the results of the papers run, and a row that succeeded is not run again."""

import shlex
from collections.abc import Callable, Sequence
from itertools import pairwise
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TextIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.papers_quick import small_data
from benchmarks.papers_quick.__main__ import DONE, LOG, run
from benchmarks.papers_quick.rows import ROWS, Row
from benchmarks.papers_quick.small_data import SOURCES, prepare, taken
from trainer.recipes.file import read_recipe

ForkCommand = Callable[..., ForkServerProcess]


@pytest.fixture(scope="module")
def places(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return prepare(shared, tmp_path_factory.mktemp("small"))


TRAININGS = [
    pytest.param(command, id=row.name)
    for row in ROWS
    for command in row.commands
    if command.split()[0] in {"train", "sweep"}
]


@pytest.mark.parametrize("command", TRAININGS)
def test_every_training_of_a_reduced_form_has_a_recipe_that_can_be_read(command: str) -> None:
    places = dict.fromkeys((*SOURCES, "mobilenet", "bert", "out"), "/place")
    _, recipe, *words = shlex.split(command.format(**places))
    settings = [value for option, value in pairwise(words) if option == "--set"]
    swept = [
        "=".join((value.partition("=")[0], value.rpartition("=")[2].rpartition(",")[2]))
        for option, value in pairwise(words)
        if option == "--over"
    ]

    read_recipe(recipe, [*settings, *swept])


@pytest.mark.long
@pytest.mark.parametrize("name", ["difficulty-sheets", "focal-intervals"])
def test_a_reduced_form_runs_and_is_not_run_again(
    name: str, places: dict[str, str], fork_command: ForkCommand, tmp_path: Path
) -> None:
    def call(module: str, words: Sequence[str], log: TextIO) -> int | None:
        assert module == "difficulty_service"
        process = fork_command(*words, output=log.name, errors=log.name)
        process.join()
        return process.exitcode

    (row,) = (each for each in ROWS if each.name == name)
    assert run(row, tmp_path / name, places, call), (tmp_path / name / LOG).read_text()
    written = (tmp_path / name / LOG).stat().st_mtime_ns
    assert run(row, tmp_path / name, places, call)
    assert (tmp_path / name / LOG).stat().st_mtime_ns == written


def test_a_row_says_what_it_takes_from_which_table() -> None:
    (row,) = (each for each in ROWS if each.name == "difficulty-ood")

    assert taken(row.commands) == (
        "300 rows of cifar10_train_1, 120 rows of cifar10_test, 120 rows of mnist_ood2000"
    )
    assert taken(["benchmarks.studies.toys --seeds 2"]) == ""


def test_what_an_interrupted_row_has_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "row" / "run").mkdir(parents=True)
    assert run(Row("row", ("--help",)), tmp_path / "row", {})
    assert sorted(path.name for path in (tmp_path / "row").iterdir()) == [DONE, LOG]


def test_a_row_whose_commands_have_changed_runs_again(tmp_path: Path) -> None:
    ran = []

    def call(_: str, words: Sequence[str], __: TextIO) -> int:
        ran.append(list(words))
        return 0

    for words in ("train one", "train one", "train other"):
        assert run(Row("row", (words,)), tmp_path / "row", {}, call)

    assert ran == [["train", "one"], ["train", "other"]]


def test_a_table_whose_writing_was_interrupted_is_written_again(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = small_data.pq.write_table

    def interrupted(table: pa.Table, path: Path) -> None:
        write(table.slice(0, 1), path)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(small_data.pq, "write_table", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare(shared, tmp_path)

    places = prepare(shared, tmp_path)

    assert pq.read_metadata(places["cifar10"]).num_rows == SOURCES["cifar10"][1]
