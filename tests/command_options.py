"""The options of the command line, for tests that look for one."""

from collections.abc import Iterator
from functools import cache

from cyclopts import App

from difficulty_service.cli import create_app


@cache
def options_by_command() -> dict[str, frozenset[str]]:
    """Options of every command; those of a group are those of its commands together."""
    app = create_app()
    return {name: frozenset(options_of(command, app)) for name, command in commands_of(app)}


def commands_of(app: App) -> Iterator[tuple[str, App]]:
    """Names and commands, without `--help` and its like."""
    return ((name, app[name]) for name in app if not name.startswith("-"))


def options_of(command: App, app: App) -> Iterator[str]:
    """Options of a command, or of the commands of a group."""
    if command.default_command is None:
        for _, part in commands_of(command):
            yield from options_of(part, app)
        return
    arguments = command.assemble_argument_collection(default_parameter=app.default_parameter)
    for argument in arguments:
        yield from (name for name in argument.names if name.startswith("-"))
