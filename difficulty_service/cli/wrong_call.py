"""Calls that cannot work, and settings that an error suggests, as options of a command."""

import shlex
from collections.abc import Callable, Iterable

from cyclopts import CycloptsError, MissingArgumentError, UnusedCliTokensError

from difficulty_service.base.errors import Setting


class WrongCall(Exception):
    """The options of a call do not fit together; the message names them. The exit code is 2."""


class AboveLimit(Exception):
    """The command did what it should, and found more than its caller allows. The exit code is 3."""


def option(name: str) -> str:
    """A keyword as an option: `--batch-size`."""
    return f"--{name.replace('_', '-')}"


def options(names: Iterable[str]) -> str:
    """Keywords as options, separated by commas."""
    return ", ".join(map(option, sorted(names)))


def describe_wrong_call(error: CycloptsError | WrongCall) -> str:
    """What is wrong with a call, in one line."""
    if isinstance(error, UnusedCliTokensError):
        return f"unexpected argument {' '.join(error.unused_tokens or ())}"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        if error.keyword is not None:
            return f"{error.keyword} needs a value"
        needed = f"{' '.join(error.command_chain or ())} needs {error.argument.name}"
        meaning = meaning_of(error.argument.field_info.name, error.target)
        return f"{needed}: {meaning}" if meaning else needed
    if error.__cause__ is not None:
        # Imported here, because only models have bounds, and they have loaded it.
        from pydantic import ValidationError

        from difficulty_service.base.wording import explain_invalid

        if isinstance(error.__cause__, ValidationError):
            return explain_invalid(error.__cause__, spell_option)
    return " ".join(str(error).split())


def meaning_of(parameter: str, command: Callable[..., object] | None) -> str:
    """What a command says of a parameter in its docstring; the first sentence."""
    from docstring_parser import parse

    for each in parse(getattr(command, "__doc__", None) or "").params:
        if each.arg_name == parameter:
            first = " ".join((each.description or "").split()).split(". ")[0].rstrip(".")
            return first[:1].lower() + first[1:]
    return ""


def spell_option(name: str, value: object) -> str:
    """An option and its value, as the command line has them."""
    return f"{option(name)} {' '.join(value) if isinstance(value, list) else value}"


OPTIONS = {"min_actors": "--ray-actors", "max_actors": "--ray-actors", "subset": "--shard"}
"""Options that have another name than the parameter they set."""


def as_option(setting: Setting) -> str:
    """A setting as the command line writes it: `--split test`, `--no-resume`."""
    name = OPTIONS.get(setting.parameter, option(setting.parameter))
    if setting.value is None or setting.value is True:
        return name
    if setting.value is False:
        return name.replace("--", "--no-", 1)
    return f"{name} {shlex.quote(str(setting.value))}"
