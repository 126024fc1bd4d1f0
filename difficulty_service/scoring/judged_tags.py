"""The verdict on the tags of a dataset."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from difficulty_service.scoring.pipeline import (
    ExtractedDataset,
)


@dataclass(frozen=True)
class TagReport:
    """The verdict on the tags of all samples.

    Attributes:
        tags: A row for each tag: `tag`, `given` (number of samples with it), `wrong` (expected
            number of these that are wrong), `probably_wrong` and `almost_certainly_wrong` (numbers
            with a `p_wrong` above 1/2 and above 0.95), `missing`, `probably_missing` and
            `almost_certainly_missing` (the same of the other samples); null where the tag is too
            rare to be judged.
        wrong: Share of the given tags that are wrong.
        missing: Share of the tags that belong to samples which is not given.
        num_samples: Number of samples with tags.
        num_scored: Number of rows of the score file.
        num_doubtful: Number of those that are probably wrong.
    """

    tags: pa.Table
    wrong: float
    missing: float
    num_samples: int
    num_scored: int
    num_doubtful: int
    warnings: tuple[str, ...]

    def total(self, column: str) -> float:
        """Sum over all tags of a column of `tags`."""
        return float(np.nansum(self.tags[column].to_numpy()))


@dataclass(frozen=True)
class ScoredTags:
    """Result of `score_dataset_tags`."""

    extracted: ExtractedDataset
    found: TagReport
