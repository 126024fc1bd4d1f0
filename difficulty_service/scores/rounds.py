"""Rounds of review: each is what people decided on the same scores."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.base.errors import CleaningError, ScoreFileError
from difficulty_service.base.wording import count_of
from difficulty_service.marks.mark_kinds import count_kinds
from difficulty_service.marks.marks import (
    MarkedSample,
    Marks,
    delete_marks,
    marks_file,
    remembered_marks,
    undone_file,
    write_marks,
)
from difficulty_service.scorers.suspicion import VERIFIED
from difficulty_service.scores.file import READERS, read_scores
from difficulty_service.scores.provenance import Provenance


@dataclass(frozen=True)
class UndoneRound:
    """A round whose decisions are taken back, with those of all later rounds.

    Later ones were made on scores that knew the round, so that they fall with it. A sample that was
    decided differently before has no decision afterwards: only its latest one is remembered.

    Attributes:
        number: Number of the round: its decisions were made on the scores of that round.
        left: What people decided before.
        taken: Decisions that are taken back.
    """

    number: int
    left: Marks
    taken: Mapping[str, MarkedSample]

    def write(self, scores: Path) -> Path:
        """Remembers only what is left, and keeps what is taken back in a new file.

        Returns:
            That file, which gives the decisions again as marks.
        """
        undone = undone_file(scores)
        write_marks(undone, self.taken)  # first, so that nothing is ever in neither file
        if self.left.samples:
            write_marks(marks_file(scores), self.left.samples)
        else:
            delete_marks(marks_file(scores))
        return undone

    def __str__(self) -> str:
        counts = Counter(each.mark.value for each in self.taken.values())
        return f"Taken back from round {self.number} on: {count_kinds(counts)}"


def take_back(scores: Path, number: int) -> UndoneRound:
    """What is left of the marks beside a score file without a round; changes no file.

    Raises:
        CleaningError: Nothing is remembered there, or nothing of that round.
    """
    marks, path = remembered_marks(scores), marks_file(scores)
    if not marks.samples:
        raise CleaningError(
            f"there is no round to take back: {path} remembers no decision", parameter="undo_round"
        )
    sizes = Counter(each.number for each in marks.samples.values())
    if number not in sizes:
        known = ", ".join(
            f"{each} ({count_of(size, 'decision')})" for each, size in sorted(sizes.items())
        )
        raise CleaningError(
            f"{path} has no decision of round {number}; its rounds are {known}",
            parameter="undo_round",
        )
    left = {key: each for key, each in marks.samples.items() if each.number < number}
    taken = {key: each for key, each in marks.samples.items() if each.number >= number}
    return UndoneRound(number, Marks(left, marks.warnings), taken)


def count_newly_doubtful(before: Path, doubtful: pa.ChunkedArray, now: Provenance) -> int | None:
    """Number of samples that became doubtful since an earlier round.

    Args:
        before: Score file of that round; text is not read, because that takes all of its columns.
        doubtful: Ids of the samples whose suspicion is above 0 now.
        now: What is known of the scores now.

    Returns:
        The number; None where either has no suspicion, or the file is gone, damaged, of another
        dataset or not of an earlier round.
    """
    if now.round is None or now.suspicion is None or before.suffix.lower() in READERS:
        return None
    try:
        earlier = read_scores(before, ["sample_id", "suspicion"])
    except ScoreFileError:
        return None
    known, suspicion = earlier.provenance, earlier.column("suspicion")
    if known.fingerprint is None or known.fingerprint != now.fingerprint:
        return None
    if (known.round, known.marks, known.suspicion) == (now.round, now.marks, now.suspicion):
        return known.newly_doubtful  # these are the same scores once more
    if (known.round or 1) >= now.round:
        return None
    was_open = pc.and_(pc.less_equal(suspicion, 0), pc.greater(suspicion, VERIFIED))
    ids = earlier.column("sample_id").filter(was_open)
    return int(pc.sum(pc.is_in(doubtful, value_set=ids.combine_chunks())).as_py() or 0)
