"""Matches paths with a glob, part by part, in a time that is linear in the length of the path."""

import fnmatch
import re
from dataclasses import dataclass

from difficulty_service.base.errors import DatasetError

WILDCARD = re.compile(r"[*?[]")
RECURSIVE = "**"
MAX_RECURSIVE = 4

States = frozenset[int]
"""Numbers of the parts of a glob that may come next; the number of all parts if none need to."""


@dataclass(frozen=True)
class GlobPattern:
    """The parts of a glob between slashes; `**` stands for any number of folders.

    Names that begin with a dot are matched only by parts that do so as well.

    Attributes:
        parts: Parts of the glob; several `**` in a row are one.
    """

    parts: tuple[str, ...]

    @property
    def start(self) -> States:
        """The states before the first part of a path."""
        return self._with_empty_matches({0})

    def step(self, states: States, name: str) -> States:
        """The states after one more part of a path; none where it cannot match any more."""
        hidden = name.startswith(".")
        after = set()
        for state in states:
            part = self.parts[state] if state < len(self.parts) else None
            if part is None or (hidden and not part.startswith(".")):
                continue
            if part == RECURSIVE:
                after.add(state)
                if state + 1 == len(self.parts):  # the files below a folder, not the folder
                    after.add(state + 1)
            elif fnmatch.fnmatchcase(name, part):
                after.add(state + 1)
        return self._with_empty_matches(after)

    def leads_on(self, states: States) -> bool:
        """Whether a path in a folder with these states may match."""
        return any(state < len(self.parts) for state in states)

    def accepts(self, states: States) -> bool:
        """Whether the path so far matches."""
        return len(self.parts) in states

    def matches(self, path: str) -> bool:
        """Whether a path matches, relative to the folder that the glob is relative to."""
        states = self.start
        for name in path.strip("/").split("/"):
            states = self.step(states, name)
        return self.accepts(states)

    def _with_empty_matches(self, states: set[int]) -> States:
        reached = set(states)
        for state in states:
            following = state
            while self.parts[following:-1] and self.parts[following] == RECURSIVE:
                following += 1
                reached.add(following)
        return frozenset(reached)


def parse_glob(pattern: str) -> GlobPattern:
    """Parses a glob.

    Raises:
        DatasetError: It has more than four `**`.
    """
    parts: list[str] = []
    for part in pattern.strip("/").split("/"):
        if part != RECURSIVE or parts[-1:] != [RECURSIVE]:
            parts.append(part)
    # Those in a row count one by one: a hundred of them are a mistake, whatever they match.
    number = pattern.split("/").count(RECURSIVE)
    if number > MAX_RECURSIVE:
        raise DatasetError(
            f"the pattern has {number} times `**`, more than the {MAX_RECURSIVE} allowed",
            "name a folder nearer to the files",
            parameter="location",
        )
    return GlobPattern(tuple(parts))
