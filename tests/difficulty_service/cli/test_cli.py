"""The application: what it imports, what its help lists and what it says of wrong calls."""

import importlib
import io
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import get_args

import pytest
from rich.console import Console

from difficulty_service.cli import COMMANDS, Shell, create_app, main
from difficulty_service.scores.file import write_scores
from difficulty_service.scores.provenance import Provenance
from tests.factories import score_table

HELP = """
import json, sys
from difficulty_service.cli import main
sys.argv = ["difficulty", "--help"]
main()
print(json.dumps(sorted(sys.modules)))
"""


def listing() -> str:
    console = Console(file=io.StringIO(), width=300)
    create_app().help_print([], console=console)
    return console.file.getvalue()


def test_help_imports_no_command_and_none_of_what_they_need() -> None:
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", HELP], capture_output=True, text=True, check=True
    )

    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    commands = {f"difficulty_service.cli.{name}" for name in COMMANDS}
    plugged = {"api.commands", "trainer.commands.train"}
    heavy = {"numpy", "pydantic", "rich.markdown", "rich.progress", "torch"}
    assert loaded & (commands | plugged | heavy) == set()
    assert {"api.cli", "trainer.cli"} <= loaded


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_a_command_with_the_first_line_of_its_docstring(name: str) -> None:
    command = getattr(importlib.import_module(f"difficulty_service.cli.{name}"), name)

    start = f"│ {name.replace('_', '-')} "

    line = next(line for line in listing().splitlines() if line.startswith(start))

    assert command.__doc__.splitlines()[0] in line


@pytest.mark.parametrize("name", ["serve", "worker", "explore", "keys", "train", "uncertainty"])
def test_help_lists_the_commands_of_the_other_packages(name: str) -> None:
    assert f" {name} " in listing()


@pytest.mark.parametrize("shell", get_args(Shell))
def test_a_shell_completes_commands_and_their_options(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["difficulty", "--show-completion", "--shell", shell])

    code = main()

    script = capsys.readouterr().out
    assert code == 0
    assert all(word in script for word in ("estimate", "near-duplicates", "with-worker"))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--limit 0", "--limit 0 should be greater than or equal to 1"),
        ("--limit=-1", "--limit -1 should be greater than or equal to 1"),
        ("--near-duplicates -1", "--near-duplicates -1 should be greater than 0"),
        ("--augment-runs 101", "--augment-runs 101 should be less than or equal to 100"),
        ("--on-error shrug", "--on-error shrug should be 'skip' or 'stop'"),
        ("--ray-actors 9:2", "--ray-actors 9:2: '9:2' is neither a number of actors"),
        ("--corrupt fgo:3", "no corruption 'fgo'; did you mean 'fog'?"),
        ("--scorers rmd,sdspicion", "did you mean 'suspicion'?"),
        ("--fli", "Unknown option: --fli. Did you mean --flip?"),
        ("--no-flip", "Unknown option: --no-flip. Did you mean --flip?"),
        ("--limit 3 --limit 4", "--limit specified multiple times"),
        ("--split", "--split needs a value"),
        ("more", "unexpected argument more"),
    ],
)
def test_a_wrong_call_is_one_line_with_the_option_its_value_and_what_was_expected(
    words: str,
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = ["difficulty", "score", "photos", "--out", "scores.csv", *words.split()]
    monkeypatch.setattr(sys, "argv", call)

    code = main()

    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert complaint in printed.err
    assert printed.err.count("\n") == 1


def test_a_call_without_what_a_command_needs_names_it_and_says_what_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["difficulty", "score", "photos"])

    code = main()

    assert code == 2
    assert capsys.readouterr().err == (
        "error: score needs --out: score file to write, ending in .parquet, .csv or .jsonl; "
        "--dry-run needs none\n"
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("features.npz", b"PK\x03\x04 and no more"),
        ("features.npy", b"\x93NUMPY\x01\x00v\x00{'descr': ("),
        ("features/store.json", b'{"a": ' + 200_000 * b"["),
    ],
)
def test_a_damaged_file_is_one_line_that_names_it(
    name: str,
    content: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    features = path.parent if path.suffix == ".json" else path
    out = tmp_path / "scores.parquet"
    monkeypatch.setattr(sys, "argv", ["difficulty", "score", str(features), "--out", str(out)])

    code = main()

    assert code == 1
    assert capsys.readouterr().err.replace("\n", " ").count(path.name) == 1
    assert not out.exists()


@pytest.mark.filterwarnings("default")
def test_a_score_file_that_was_edited_is_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scores.csv"
    columns = {"rmd": [0.5, 1.0, 2.0], "percentile": [0.0, 0.5, 1.0]}
    write_scores(path, score_table([0, 1, 2], **columns), Provenance())
    path.write_text(path.read_text().replace("0.5", "0.7"))
    words = ["clean", str(path), "--drop", "rmd > 1", "--out", str(tmp_path / "cleaned.csv")]
    monkeypatch.setattr(sys, "argv", ["difficulty", *words])
    shown = warnings.showwarning

    code = main()

    errors = " ".join(capsys.readouterr().err.split())
    assert code == 0
    assert f"warning: {path} has changed since it was written" in errors
    assert errors.count("has changed") == 1
    assert "checksums.py" not in errors
    assert warnings.showwarning is shown
