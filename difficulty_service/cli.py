"""The command line: `difficulty`."""

import sys
from importlib.metadata import entry_points, version
from typing import Annotated

import typer

from difficulty_service.commands.audit import audit
from difficulty_service.commands.backbones import backbones
from difficulty_service.commands.clean import clean
from difficulty_service.commands.compare_scores import compare_scores
from difficulty_service.commands.consensus import consensus
from difficulty_service.commands.console import err
from difficulty_service.commands.demo import demo
from difficulty_service.commands.estimate import estimate
from difficulty_service.commands.explain import explain
from difficulty_service.commands.export import export
from difficulty_service.commands.extract import extract
from difficulty_service.commands.fit import fit
from difficulty_service.commands.merge import merge
from difficulty_service.commands.options import as_option
from difficulty_service.commands.report import report
from difficulty_service.commands.score import score
from difficulty_service.errors import DifficultyError
from difficulty_service.runtime.process_setup import enable_avx512_kernels, keep_freed_memory

PLUGIN_GROUP = "difficulty.commands"
"""Group of entry points: functions of other packages that add commands to the application."""

COMMANDS = (
    *(demo, backbones, extract, merge, fit, score),
    *(report, audit, compare_scores, consensus, explain, clean, export, estimate),
)


def show_version(requested: bool) -> None:  # noqa: FBT001 - typer passes it by position
    """Prints the version and exits, if requested."""
    if requested:
        typer.echo(f"difficulty {version('difficulty-service')}")
        raise typer.Exit


def describe(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Scores how hard each image of a labelled dataset is: larger is harder.

    `difficulty score photos/ --out scores.parquet` does it all; `difficulty demo` shows it
    offline.
    """


def create_app() -> typer.Typer:
    """The application, with the commands of every installed package."""
    app = typer.Typer(
        name="difficulty",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(describe)
    for command in COMMANDS:
        app.command()(command)
    for plugin in entry_points(group=PLUGIN_GROUP):
        plugin.load()(app)
    return app


def main() -> None:
    """Runs a command; a failure is one line and exit code 1, a wrong call exit code 2."""
    enable_avx512_kernels()
    keep_freed_memory()
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        create_app()(arguments)
    except (DifficultyError, OSError, MemoryError) as error:
        if "--debug" in sys.argv:
            raise
        err.print(f"error: {describe_error(error)}", markup=False)
        raise SystemExit(1) from None


def describe_error(error: Exception) -> str:
    """An error as one line, with remedies as options of the command line."""
    if isinstance(error, DifficultyError):
        return " ".join(error.message(as_option).split())
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
