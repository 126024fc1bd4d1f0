"""The analyses that there are: a line for each folder of `analyses`, and other packages' ones."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from difficulty_service.base.errors import MissingAnalysis
from difficulty_service.base.plugins import Analysis, declared, function_of

GROUP = "difficulty.analyses"
"""Group of the entry points of other packages."""

FOLDERS = (
    "audit",
    "consensus",
    "leaks",
    "versions",
    "selection",
    "annotators",
    "tags",
    "missing_boxes",
    "backbones",
)


def own_analyses() -> Mapping[str, Analysis]:
    """The analyses of this package by their names, in the order in which they are listed."""
    return {name: import_module(f"difficulty_service.analyses.{name}").ANALYSIS for name in FOLDERS}


@cache
def all_analyses() -> Mapping[str, Analysis]:
    """The analyses of this package, then of other packages."""
    own = own_analyses()
    return {**own, **{each.name: each for each in declared(GROUP, Analysis, own)}}


def ability(analysis: str, name: str) -> Callable[..., Any]:
    """A function of an analysis that is part of something larger, such as judging a job's tags.

    Raises:
        MissingAnalysis: The analysis is not there.
    """
    found = own_analyses().get(analysis)
    if found is None:
        raise MissingAnalysis(f"this installation has no analysis of {analysis}")
    return function_of(found.abilities[name])
