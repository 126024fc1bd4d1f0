"""Counts over the rows of a score file, and the warnings that follow from them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from difficulty_service.files.arrow_columns import to_numpy
from difficulty_service.files.wording import count_of, list_names
from difficulty_service.scoring.duplicates import Duplicates
from difficulty_service.scoring.score_rows import Classes

KINDS = {"duplicate_of": "an exact copy", "near_duplicate_of": "a near copy"}
"""What the columns of copies name, for people."""


@dataclass
class RowCounts:
    """Counts over the rows of a score file.

    Attributes:
        samples: Number of rows.
        compared: Number of rows that are compared with other classes, by a label margin.
        doubtful: Number of rows that look more like another class: label margin above 0.
        suspicious: Number of rows whose suspicion is above 0; None without that column.
        duplicates: Number of rows whose features are those of an earlier row.
        near_duplicates: Number of rows that are near duplicates of an earlier row; None where
            they were not looked for.
        unscored: Number of rows without an RMD, by their label.
    """

    samples: int = 0
    compared: int = 0
    doubtful: int = 0
    suspicious: int | None = None
    duplicates: int = 0
    near_duplicates: int | None = None
    unscored: Counter[int] = field(default_factory=Counter)

    @property
    def scored(self) -> int:
        """Number of rows that have an RMD."""
        return self.samples - self.unscored.total()

    @property
    def by_evidence(self) -> int:
        """Number of doubtful rows: by their suspicion, or else by their label margin."""
        return self.doubtful if self.suspicious is None else self.suspicious

    def update(self, batch: pa.RecordBatch) -> None:
        """Counts more rows."""
        margins = to_numpy(batch["label_margin"])
        self.samples += len(batch)
        self.compared += len(batch) - batch["label_margin"].null_count
        self.doubtful += int((margins > 0).sum())
        if "suspicion" in batch.schema.names:
            self.suspicious = (self.suspicious or 0) + int((to_numpy(batch["suspicion"]) > 0).sum())
        self.unscored.update(batch["label"].filter(batch["rmd"].is_null()).to_pylist())


def row_warnings(
    counts: RowCounts,
    classes: Classes,
    store_names: Sequence[str],
    copies: Mapping[str, Duplicates],
) -> list[str]:
    """Sentences about samples without scores, a single class, and copies with different labels.

    Args:
        counts: Counts over all rows.
        classes: Classes of the score file.
        store_names: Class names of the store, for the labels of the copies.
        copies: The copies that were looked for, by their column.
    """
    sentences = []
    if counts.unscored:
        names = list_names([classes.names[label] for label in sorted(counts.unscored)])
        sentences.append(
            f"no score for {counts.unscored.total():,} of {count_of(counts.samples, 'image')}, "
            f"because the Gaussians were fitted to fewer than two images of their class: {names}"
        )
    if not counts.compared and counts.scored:
        sentences.append(
            "there is no second class to compare with, so rmd and label_margin tell nothing: "
            "md_agnostic tells how unusual an image is"
        )
    if counts.doubtful > counts.compared / 2:
        sentences.append(
            "more than half of the images look more like another class than their own "
            "(label_margin above 0), so these features hardly tell the classes apart; a stronger "
            "backbone may do better"
        )
    for column, found in copies.items():
        if found.conflict:
            first, second = found.conflict
            sentences.append(
                f"{count_of(found.num_conflicting, 'image')} have {KINDS[column]} with another "
                f"label, the first are {first.sample_id} ({store_names[first.label]}) and "
                f"{second.sample_id} ({store_names[second.label]})"
            )
    return sentences
