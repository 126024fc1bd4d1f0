"""The life of the decisions about a dataset: remembered beside its scores, taken back, kept.

A mark is about a sample and its content. Those of a dataset are remembered in a file beside its
scores, so that they hold when it is scored again, by another backbone or after files were moved.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

from difficulty_service.base.checksums import checksum_file, is_changed
from difficulty_service.base.errors import CleaningError, ConfigError
from difficulty_service.base.wording import count_of
from difficulty_service.marks.files import read_marks, write_marks
from difficulty_service.marks.mark_kinds import count_kinds
from difficulty_service.marks.record import NO_MARKS, MarkedSample, MarkHistory, Marks


class Memory(Protocol):
    """Remembers the decisions about a dataset."""

    def remember(self, marks: Iterable[MarkedSample], /) -> None:
        """Keeps these decisions in place of all that were kept before."""


@dataclass(frozen=True)
class UndoneRound:
    """A round whose decisions are taken back, with those of all later rounds.

    Later ones were made on scores that knew the round, so that they fall with it. A sample that was
    decided differently before has no decision afterwards: only its latest one is remembered.

    Attributes:
        number: Number of the round: its decisions were made on the scores of that round.
        left: What people decided before.
        taken: Decisions that are taken back.
        file: New file for them, which gives them again as marks.
    """

    number: int
    left: Marks
    taken: Mapping[str, MarkedSample]
    file: Path

    def __str__(self) -> str:
        counts = Counter(each.mark.value for each in self.taken.values())
        return f"Taken back from round {self.number} on: {count_kinds(counts)}"


@dataclass(frozen=True)
class Review:
    """The decisions with which a dataset is scored next.

    Attributes:
        memory: Where they are remembered once they are applied; None for nowhere.
        undone: Round that is taken back before; None for none.
    """

    history: MarkHistory
    memory: Memory | None = None
    undone: UndoneRound | None = None

    def take_back(self) -> None:
        """Keeps the decisions that are taken back in their own file, and remembers the others."""
        if self.undone is not None and self.memory is not None:
            # First, so that nothing is ever in neither file.
            write_marks(self.undone.file, self.undone.taken.values())
            self.memory.remember(self.undone.left.samples.values())

    def remember(self, marks: Iterable[MarkedSample]) -> None:
        """Remembers decisions as they were applied."""
        if self.memory is not None:
            self.memory.remember(marks)


@dataclass(frozen=True)
class ReviewFolder:
    """The files beside a score file that remember what people decided about its samples."""

    scores: Path

    @property
    def file(self) -> Path:
        """The file of the decisions that hold."""
        return self.scores.with_suffix(".marks.csv")

    @property
    def unused_file(self) -> Path:
        """A file for decisions that are taken back, which does not exist yet."""
        names = (f".marks.undone{'' if each == 1 else f'-{each}'}.csv" for each in count(1))
        paths = map(self.scores.with_suffix, names)
        return next(path for path in paths if not path.exists())

    def remembered(self, sample_ids: Collection[str] = ()) -> Marks:
        """The decisions that hold; none without a file. Errors as in `read_marks`."""
        return read_marks(self.file, sample_ids) if self.file.exists() else NO_MARKS

    def remember(self, marks: Iterable[MarkedSample], /) -> None:
        """Keeps these decisions in place of all that were kept before."""
        listed = list(marks)
        if listed:
            write_marks(self.file, listed)
        else:
            self.file.unlink(missing_ok=True)
            checksum_file(self.file).unlink(missing_ok=True)

    def changes_since(self, written: Marks) -> Mapping[str, MarkedSample | None]:
        """What another program has decided since the file was written, None where it took back.

        Decisions that are lost, since the file is damaged, are set aside first.
        """
        now = self.remembered().samples
        lost = [each for key, each in written.samples.items() if key not in now]
        if lost and is_changed(self.file):
            self.set_aside(lost)
        changed: dict[str, MarkedSample | None] = {}
        for sample_id in {**now, **written.samples}:
            before, after = written.samples.get(sample_id), now.get(sample_id)
            if (before and before.choice) != (after and after.choice):
                changed[sample_id] = after
        return changed

    def set_aside(self, marks: Iterable[MarkedSample]) -> None:
        """Keeps decisions that hold no longer in a new file."""
        write_marks(self.unused_file, marks)

    def open(self, marks: Marks | None = None, undo_round: int | None = None) -> Review:
        """The decisions with which the dataset is scored next; changes no file.

        Args:
            marks: New decisions; None for none.
            undo_round: Number of a round to take back, with all later ones; None for none.

        Raises:
            ConfigError: Decisions are added and taken back at once.
            CleaningError: The file cannot be read, or has no decision of that round.
        """
        if undo_round is None:
            return Review(MarkHistory(self.remembered(), marks or NO_MARKS), self)
        if marks is not None:
            raise ConfigError(
                "undo_round takes decisions back and marks adds some: run them in turn",
                parameter="undo_round",
            )
        undone = self._without(undo_round)
        return Review(MarkHistory(undone.left), self, undone)

    def _without(self, number: int) -> UndoneRound:
        """What is left of the decisions without a round."""
        marks = self.remembered()
        if not marks.samples:
            raise CleaningError(
                f"there is no round to take back: {self.file} remembers no decision",
                parameter="undo_round",
            )
        sizes = Counter(each.number for each in marks.samples.values())
        if number not in sizes:
            known = ", ".join(
                f"{each} ({count_of(size, 'decision')})" for each, size in sorted(sizes.items())
            )
            raise CleaningError(
                f"{self.file} has no decision of round {number}; its rounds are {known}",
                parameter="undo_round",
            )
        left = {key: each for key, each in marks.samples.items() if each.number < number}
        taken = {key: each for key, each in marks.samples.items() if each.number >= number}
        return UndoneRound(number, Marks(left, marks.warnings), taken, self.unused_file)
