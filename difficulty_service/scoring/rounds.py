"""Rounds of review: each is what people decided on the same scores."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.base.errors import ScoreFileError
from difficulty_service.scores.file import READERS, read_scores
from difficulty_service.scores.provenance import Provenance


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
    was_open = pc.less_equal(suspicion, 0)  # null where it was verified
    ids = earlier.column("sample_id").filter(was_open)
    return int(pc.sum(pc.is_in(doubtful, value_set=ids.combine_chunks())).as_py() or 0)
