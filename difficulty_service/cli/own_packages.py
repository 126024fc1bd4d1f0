"""The packages that are installed beside this one, found there whatever else has their names."""

import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path

from difficulty_service.base.errors import DifficultyError
from difficulty_service.base.extras import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[2]
"""Folder in which this package and those beside it are installed."""


def prefer_own_packages(plugins: Iterable[EntryPoint]) -> None:
    """Reorders `sys.path` so that the packages of our entry points are found beside this one.

    A working folder or a PYTHONPATH may have an `api` or a `trainer` of its own, which would be run
    in place of ours. Such folders come last, and child processes inherit this order.

    Raises:
        DifficultyError: A package is not there, or something else has been found in its place.
    """
    own = [plugin for plugin in plugins if plugin.dist and plugin.dist.name == DISTRIBUTION]
    names = {plugin.module.partition(".")[0] for plugin in own}
    hiding = [
        entry
        for entry in sys.path
        if Path(entry).resolve() != ROOT
        and any(PathFinder.find_spec(name, [entry]) for name in names)
    ]
    if hiding:
        kept = [entry for entry in sys.path if entry not in hiding]
        if ROOT not in map(Path, kept):
            kept.append(str(ROOT))
        sys.path[:] = [*kept, *hiding]
    for plugin in own:
        require_own(plugin.module)


def require_own(module: str) -> None:
    """Raises DifficultyError if a module would not be imported from beside this package."""
    name = module.partition(".")[0]
    # Nothing is imported to look, which would run what is found.
    spec = find_spec(name)
    places = list((spec and spec.submodule_search_locations) or ())
    if str(ROOT / name) in places and PathFinder.find_spec(module, places) is not None:
        return
    found = (spec and spec.origin) or next(iter(places), None)
    raise DifficultyError(
        f"the package {name!r} of {DISTRIBUTION} is not in {ROOT}"
        if found is None
        else f"{found} hides the package {name!r} of {DISTRIBUTION}, which belongs in {ROOT}",
        f"install {DISTRIBUTION} again, in an environment of its own",
    )
