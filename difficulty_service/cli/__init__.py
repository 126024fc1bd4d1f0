"""The command line: `difficulty`."""

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import docstring_parser
from cyclopts import App, CycloptsError, Group, Parameter
from docstring_parser import Docstring, DocstringStyle
from docstring_parser.parser import parse_from_object

from difficulty_service.base.analyses import all_analyses
from difficulty_service.base.entry_points import entry_points_of
from difficulty_service.base.errors import DifficultyError
from difficulty_service.base.process_setup import enable_avx512_kernels, keep_freed_memory
from difficulty_service.cli.lazily import ANALYSES, REVIEW, SCORE, SERVE, add_command
from difficulty_service.cli.own_packages import prefer_own_packages
from difficulty_service.cli.wrong_call import (
    AboveLimit,
    WrongCall,
    as_option,
    describe_wrong_call,
)

PLUGIN_GROUP = "difficulty.commands"
"""Group of entry points: functions of other packages that add commands to the application."""

COMMANDS = {
    **dict.fromkeys(("demo", "score", "extract", "fit", "merge", "backbones", "estimate"), SCORE),
    **dict.fromkeys(("report", "clean", "export"), REVIEW),
    "mcp": SERVE,
}
"""Functions that are commands, each in a module of the same name, and the panel of each; analyses
add theirs."""

DESCRIPTION = """Scores how hard each image of a labelled dataset is: larger is harder.

`difficulty score photos/ --out scores.parquet` does it all; `difficulty demo` shows it offline.
"""

Shell = Literal["bash", "fish", "powershell", "zsh"]

OPTIONS = Group("Options", sort_key=-1)
"""Panel of the options of a command itself, before those that it shares with others."""


GENERAL = Group("Options", sort_key=99)
"""Panel of the options of the application, below its commands."""


def create_app() -> App:
    """The application, with the commands of every installed package.

    Called with words, it raises CycloptsError for a wrong call and the error of a command.
    """
    app = App(
        name="difficulty",
        help=DESCRIPTION,
        help_flags=("--help", "-h"),
        version=show_versions,
        default_parameter=Parameter(negative=(), show_default=show_default),
        group_parameters=OPTIONS,
        help_format="plaintext",
        result_action="return_value",
        print_error=False,
        exit_on_error=False,
    )
    docstring_parser.parse_from_object = parse_docstring
    app["--help"].group = app["--version"].group = GENERAL
    app.command(debug, name="--debug", group=GENERAL)
    app.command(show_completion, name="--show-completion", group=GENERAL)
    app.command(install_completion, name="--install-completion", group=GENERAL)
    for name, group in COMMANDS.items():
        add_command(app, f"difficulty_service.cli.{name}:{name}", group=group)
    for analysis in all_analyses().values():
        for function in analysis.commands:
            add_command(app, function, group=ANALYSES)
    for plugin in entry_points_of(PLUGIN_GROUP):
        plugin.load()(app)
    return app


def show_versions() -> str:
    """What a report of a mistake should say of the machine."""
    from difficulty_service.cli.versions import describe_versions

    return describe_versions()


def parse_docstring(
    obj: Any,  # noqa: ANN401 - as cyclopts calls it
    style: DocstringStyle = DocstringStyle.GOOGLE,
) -> Docstring:
    """What a function says of its parameters, each in one line; nothing of a class.

    Fields of a model have sentences. cyclopts would look for more in the source of every model and
    of all its bases, BaseModel among them, which takes longer than the rest of `--help`.
    """
    if isinstance(obj, type):
        return Docstring()
    parsed = parse_from_object(obj, style)
    for each in parsed.params:
        each.description = " ".join((each.description or "").split())
    return parsed


def debug() -> None:
    """Show the traceback of an error."""
    # `main` takes this option away, wherever it stands; without anything else it asks for nothing.
    create_app()([])


def install_completion(*, shell: Shell | None = None) -> None:
    """Install completion for the current shell, or for --shell NAME.

    Args:
        shell: Name of the shell.
    """
    from difficulty_service.cli.console import out

    path = create_app().install_completion(shell=shell or current_shell())
    out.print(f"completion is in {path}; it works in a new shell")


def show_completion(*, shell: Shell | None = None) -> None:
    """Show completion for the current shell, or for --shell NAME.

    Args:
        shell: Name of the shell.
    """
    sys.stdout.write(create_app().generate_completion(shell=shell or current_shell()))


def current_shell() -> Shell:
    """The shell that called this process."""
    from cyclopts.completion.detect import ShellDetectionError, detect_shell

    try:
        return detect_shell()
    except ShellDetectionError:
        shells = ", ".join(get_args(Shell))
        raise WrongCall(f"the shell is unknown; name it with --shell: {shells}") from None


def show_default(value: object) -> str | None:
    """The default of an option as it is typed; None for one that help need not mention."""
    if value is None or isinstance(value, bool):
        return "on" if value else None
    return ",".join(value) if isinstance(value, tuple) else str(value)


def main() -> int:
    """Runs a command; an error is one line and exit code 1, 2 for a wrong call, 3 for a limit."""
    enable_avx512_kernels()
    keep_freed_memory()
    with warnings.catch_warnings():
        warnings.showwarning = partial(show_warning, warnings.showwarning)
        return run_command()


def run_command() -> int:
    """Runs the command of `sys.argv`, and gives its exit code."""
    try:
        prefer_own_packages(entry_points_of(PLUGIN_GROUP))
        create_app()([word for word in sys.argv[1:] if word != "--debug"])
    except (WrongCall, CycloptsError) as error:
        return fail(describe_wrong_call(error), 2)
    except AboveLimit as error:
        return fail(str(error), 3)
    except (DifficultyError, OSError, MemoryError) as error:
        if "--debug" in sys.argv:
            raise
        return fail(describe_error(error), 1)
    return 0


def show_warning(
    otherwise: Callable[..., None],
    message: Warning | str,
    category: type[Warning],
    *where: Any,  # noqa: ANN401 - as Python calls it
    **options: Any,  # noqa: ANN401
) -> None:
    """Prints a warning about a file in one line, and any other as Python does."""
    from difficulty_service.base.checksums import ChangedFile
    from difficulty_service.cli.console import print_warnings

    if issubclass(category, ChangedFile):
        print_warnings([str(message)])
    else:
        otherwise(message, category, *where, **options)


def fail(message: str, code: int) -> int:
    """Prints an error on standard error, and gives the exit code."""
    from difficulty_service.cli.console import alarm

    alarm.print(f"error: {message}")
    return code


def describe_error(error: Exception) -> str:
    """An error as one line, with remedies as options of the command line."""
    if isinstance(error, DifficultyError):
        return " ".join(error.message(as_option).split())
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
