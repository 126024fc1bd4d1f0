"""Models, losses and data from outside the package, which recipes refer to by name.

`package.module:name` is imported. `object:NAME` is an object that a Python program passed to
`trainer.train`, and is known only until that call ends.
"""

import inspect
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from difficulty_service.base.errors import ConfigError

LIBRARIES = ("timm:", "transformers:")
"""What the names of models begin with that are networks of another library."""

OBJECT_PREFIX = "object:"

REQUIRED = inspect.Parameter.empty
"""Default value of a setting that has none."""

_OBJECTS: ContextVar[Mapping[str, Any]] = ContextVar("objects", default=MappingProxyType({}))


@dataclass(frozen=True)
class OwnSettings:
    """The settings that a function or class takes by name.

    Attributes:
        defaults: Default value of each setting, REQUIRED where it has none.
        takes_any: Whether it takes settings of any other name, too.
    """

    defaults: Mapping[str, Any]
    takes_any: bool


def is_object(name: str) -> bool:
    """Whether a name in a recipe stands for an object of the calling program."""
    return name.startswith(OBJECT_PREFIX)


def is_own(name: str) -> bool:
    """Whether a model or a loss of this name comes from outside the package."""
    return ":" in name and not name.startswith(LIBRARIES)


@contextmanager
def known_objects(objects: Mapping[str, Any]) -> Iterator[None]:
    """Makes objects known by name until the block ends."""
    token = _OBJECTS.set(MappingProxyType(dict(objects)))
    try:
        yield
    finally:
        _OBJECTS.reset(token)


def find_own(name: str) -> Any:  # noqa: ANN401 - any object of the user
    """The object that a name in a recipe stands for; importing it runs its module.

    Modules are looked for where Python looks for them and then in the current directory.
    """
    if is_object(name):
        if name not in _OBJECTS.get():
            raise ConfigError(
                f"{name!r} was an object of a Python program, and only that program has it",
                "pass it to `trainer.train` again",
            )
        return _OBJECTS.get()[name]
    module, _, path = name.partition(":")
    found = _import(module, name)
    for attribute in path.split("."):
        if not hasattr(found, attribute):
            raise ConfigError(f"{name!r}: {module} has no {path!r}")
        found = getattr(found, attribute)
    if not callable(found):
        raise ConfigError(f"{name!r} is {type(found).__name__}, which cannot be called")
    return found


def settings_of(own: Any, reserved: Collection[str]) -> OwnSettings:  # noqa: ANN401
    """The settings of a function or class; any other object has none.

    Reserved parameters are no settings.
    """
    if not inspect.isroutine(own) and not inspect.isclass(own):
        return OwnSettings({}, takes_any=False)
    try:
        parameters = inspect.signature(own).parameters.values()
    except ValueError:  # some functions written in C
        return OwnSettings({}, takes_any=True)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return OwnSettings(
        {
            parameter.name: parameter.default
            for parameter in parameters
            if parameter.kind in named and parameter.name not in reserved
        },
        takes_any=any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters),
    )


def describe_own(model: str, loss: str) -> list[str]:
    """One sentence for each part of a recipe that is imported from outside the package."""
    sentences = []
    for key, name in (("model.name", model), ("loss.name", loss)):
        if is_own(name) and not is_object(name):
            module = sys.modules.get(name.partition(":")[0])
            file = getattr(module, "__file__", None)
            sentences.append(f"{key} = {name!r} runs code of {file or 'an extension module'}")
    return sentences


def name_of(own: Any, part: str) -> str:  # noqa: ANN401
    """The name of an object for a recipe: `package.module:name` where it can be imported.

    Otherwise it is named by its part of the recipe, such as "model".
    """
    module, path = getattr(own, "__module__", None), getattr(own, "__qualname__", None)
    found = sys.modules.get(module) if module not in (None, "__main__") else None
    for attribute in (path or "").split("."):
        found = getattr(found, attribute, None)
    if found is own and own is not None:
        return f"{module}:{path}"
    return f"{OBJECT_PREFIX}{part}"


def _import(module: str, name: str) -> Any:  # noqa: ANN401 - a module
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)  # last, so that a file here never hides an installed package
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        where = "" if error.name == module.partition(".")[0] else f", which {module} imports"
        raise ConfigError(
            f"{name!r}: there is no module {error.name!r}{where}",
            f"install it, or run the command in its folder; the current one is {folder}",
        ) from error
    except Exception as error:  # whatever the module does
        raise ConfigError(
            f"{name!r}: {module} cannot be imported ({type(error).__name__}: {error})"
        ) from error
