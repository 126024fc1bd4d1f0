"""What other packages add to this one: each is an entry point of a group.

| group | what an entry point is |
| --- | --- |
| `difficulty.scorers` | a `Scorer`; its column has the name of the entry point |
| `difficulty.exports` | an `Export`, a format of `difficulty export` |
| `difficulty.analyses` | an `Analysis`, with its commands, Python functions and comparison |
| `difficulty.datasets` | a function that opens `PREFIX:REFERENCE`; see `datasets.plugged` |
| `difficulty.backbones` | a function that builds `PREFIX:NAME`; see `backbones.plugged` |
| `difficulty.commands` | a function that adds commands to the application |

A `Scorer`, an `Export` and an `Analysis` are declarations: what does the work is imported when it
is asked for, so that listing them stays fast.
"""

import pkgutil
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import Any, ClassVar, TypeVar

from difficulty_service.base.entry_points import entry_points_of


@dataclass(frozen=True)
class Scorer:
    """A score that can be asked for by its name.

    Attributes:
        name: Name by which it is asked for.
        sentence: What it finds, for people who choose.
        columns: Columns of a score file that it fills; by default one of its own name.
        compute: Where it needs all features at once, `module:function` of what computes its
            column: it takes `scorers.ScorerInput`, and returns a tensor or array of shape
            (samples,), larger is harder, with NaN for a sample without a score.
        package: Optional package that `compute` needs.
        needs_words: Whether `compute` compares images with names of classes, as a CLIP can.
    """

    name: str
    sentence: str
    columns: tuple[str, ...] = ()
    compute: str | None = None
    package: str | None = None
    needs_words: bool = False

    def __post_init__(self) -> None:
        if not self.columns:
            object.__setattr__(self, "columns", (self.name,))

    @property
    def fault(self) -> str | None:
        """Why another package cannot offer it; None if it can."""
        if self.compute is None or self.columns != (self.name,):
            return "it must say what computes the one column of its name"
        return None


@dataclass(frozen=True)
class Export:
    """A format of another tool.

    Attributes:
        name: Name by which it is asked for.
        sentence: What is written, for people who choose.
        write: `module:function` of what writes it. For a file it takes the score file and the
            path, with the images between them where the file has images; for a folder the score
            file, the images, an empty folder and the absolute path that the folder will have. It
            returns an `Exported`.
        is_folder: Whether it is a folder, with the images.
        has_images: Whether it is a file that has images, too.
        push: `module:function` of what uploads the folder, by which a person may name a place. It
            takes the folder and the name, and returns the address.
        takes_texts: Whether the samples may be texts.
    """

    name: str
    sentence: str
    write: str
    is_folder: bool = False
    has_images: bool = False
    push: str | None = None
    takes_texts: bool = True
    fault: ClassVar[str | None] = None


@dataclass(frozen=True)
class Analysis:
    """A question about a dataset beyond the scores of its samples.

    Nothing imports an analysis but by its declaration, so that one can be added or taken away.

    Attributes:
        name: Name of the folder, or of the entry point.
        commands: `module:function` of each command, which is called as its function is.
        functions: `module:function` of each function that `difficulty_service` offers.
        comparison: `module:NAME` of the `bodies.comparison_kinds.Comparison` by which finished jobs
            are asked; None where they are not.
        abilities: `module:function` of what the rest asks of it, by name, as in `ability`.
    """

    name: str
    commands: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    comparison: str | None = None
    abilities: Mapping[str, str] = field(default_factory=dict)
    fault: ClassVar[str | None] = None


Declared = TypeVar("Declared", Scorer, Export, Analysis)


def declared(group: str, kind: type[Declared], taken: Collection[str]) -> Iterator[Declared]:
    """What other packages declare in a group, in the order of their names.

    What cannot be used is left out with a warning, because everything else still works.

    Args:
        group: Group of entry points.
        kind: What each of them must be, under its own name.
        taken: Names that are in use.
    """
    for plugin in sorted(entry_points_of(group)):
        try:
            found = plugin.load()
        except Exception as error:  # noqa: BLE001 - whatever another package raises
            found, problem = None, f"{type(error).__name__}: {error}"
        else:
            problem = f"it is no {kind.__name__} of that name"
        if plugin.name in taken:
            found, problem = None, "the name is taken"
        if isinstance(found, kind) and found.name == plugin.name and plugin.name.isidentifier():
            if found.fault is None:
                yield found
                continue
            problem = found.fault
        text = f"{plugin.name} of {plugin.value}, in {group}, is left out: {problem}"
        warnings.warn(text, stacklevel=2)


def entry_point_of(group: str, name: str) -> EntryPoint | None:
    """The entry point that the prefix of `PREFIX:NAME` stands for; None if no package has it."""
    prefix, colon, _ = name.partition(":")
    matches = entry_points_of(group).select(name=prefix) if colon else ()
    return next(iter(matches), None)


def function_of(path: str) -> Callable[..., Any]:
    """The function that `module:function` names."""
    function: Callable[..., Any] = pkgutil.resolve_name(path)
    return function
