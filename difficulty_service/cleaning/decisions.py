"""Which samples of a score file are kept, dropped or relabelled, and why."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.cleaning.class_names import class_names_of
from difficulty_service.cleaning.conditions import columns_in, rows_where
from difficulty_service.cleaning.marks import Mark, MarkedSample
from difficulty_service.errors import CleaningError, Setting
from difficulty_service.files.wording import count_of, is_or_are, list_names
from difficulty_service.score_columns import SCORERS
from difficulty_service.score_file import ScoreFile

LISTED = 20
"""Number of sample ids that a warning lists."""

MARKED_DROP = "marked drop"
"""Why a sample is dropped that a person marked so; otherwise it is the condition."""


@dataclass(frozen=True)
class CleaningRules:
    """What decides about the samples. A mark has precedence over both conditions.

    Attributes:
        marks: Mark of each sample id that a person has looked at.
        drop: Condition under which a sample is dropped; None for no such condition.
        relabel: Condition under which a sample that is not dropped gets the class of its
            `suspected_label`, if the condition is about the suspicion, and otherwise that of its
            `nearest_label`; None for no such condition.
        new_classes: Whether marks may relabel to classes that are not in the score file.
    """

    marks: Mapping[str, MarkedSample]
    drop: str | None = None
    relabel: str | None = None
    new_classes: bool = False


@dataclass(frozen=True)
class ClassCounts:
    """Numbers of samples of one class.

    Attributes:
        before: Samples with this label in the score file.
        dropped: Those of them that are dropped.
        moved_out: Those of them that get another label.
        moved_in: Samples of other classes that get this label.
    """

    before: int
    dropped: int
    moved_out: int
    moved_in: int

    @property
    def after(self) -> int:
        """Samples with this label in the cleaned dataset."""
        return self.before - self.dropped - self.moved_out + self.moved_in


@dataclass(frozen=True)
class Decisions:
    """What is decided about each sample, in the order of the score file.

    Attributes:
        table: Columns of text: sample_id, label (the final class), original_label, mark (null for a
            sample that no rule names) and reason (why it is dropped; null if it is kept).
        classes: Counts of each class.
        warnings: Warnings, one sentence each.
    """

    table: pa.Table
    classes: Mapping[str, ClassCounts]
    warnings: tuple[str, ...]

    def kept(self) -> pa.Table:
        """The samples that are kept: sample_id, label, original_label, mark."""
        return self.table.filter(pc.is_null(self.table["reason"])).drop_columns("reason")

    def dropped(self) -> pa.Table:
        """The samples that are dropped: sample_id, label, reason."""
        rows = self.table.filter(pc.is_valid(self.table["reason"]))
        return rows.select(["sample_id", "original_label", "reason"]).rename_columns(
            ["sample_id", "label", "reason"]
        )


@dataclass(frozen=True)
class _Draft:
    """The columns of the decisions, which the rules change in place."""

    ids: list[str]
    original: list[str]
    labels: list[str]
    marks: list[str | None]
    reasons: list[str | None]

    def relabel(self, row: int, label: str) -> None:
        """Gives a sample a class, which may be the one that it has."""
        self.labels[row] = label
        self.marks[row] = Mark.KEEP if label == self.original[row] else Mark.RELABEL
        self.reasons[row] = None

    def drop(self, row: int, reason: str) -> None:
        """Drops a sample."""
        self.labels[row] = self.original[row]
        self.marks[row], self.reasons[row] = Mark.DROP, reason

    def table(self) -> pa.Table:
        """The columns of `Decisions.table`."""
        names = ("sample_id", "label", "original_label", "mark", "reason")
        columns = (self.ids, self.labels, self.original, self.marks, self.reasons)
        return pa.table([pa.array(column, pa.string()) for column in columns], names)


def decide(scores: ScoreFile, rules: CleaningRules) -> Decisions:
    """Applies marks and conditions to the samples of a score file.

    Args:
        scores: All columns of a score file.
        rules: What decides about the samples.

    Raises:
        CleaningError: A condition cannot be evaluated, a mark names an unknown class, or no mark
            belongs to a sample of the score file.
        ScoreFileError: The column of the class that fits best is absent.
    """
    names = class_names_of(scores)
    _refuse_unknown_classes(rules, list(names.values()))
    ids: list[str] = scores.table["sample_id"].to_pylist()
    warnings = _check_ids(rules.marks, ids)
    original: list[str] = scores.table["label_name"].cast(pa.string()).to_pylist()
    nothing: list[str | None] = [None] * len(ids)
    draft = _Draft(ids, original, list(original), nothing, list(nothing))
    warnings += _relabel_to_likeliest(draft, scores, rules.relabel, names)
    if rules.drop is not None:
        for row in np.flatnonzero(rows_where(rules.drop, scores.table)).tolist():
            draft.drop(row, rules.drop)
    warnings += _apply_marks(draft, rules.marks)
    table = draft.table()
    classes = count_classes(table, list(names.values()))
    return Decisions(table, classes, (*warnings, *_warn_of_empty(classes)))


def count_classes(table: pa.Table, names: Sequence[str]) -> dict[str, ClassCounts]:
    """Counts of each class that has samples before or after.

    Args:
        table: The columns original_label, label and reason of decisions.
        names: Names of the classes in the order of the result; new classes follow.
    """
    is_kept = pc.is_null(table["reason"])
    kept = table.filter(is_kept)
    before = _count(table["original_label"])
    after = _count(kept["label"])
    kept_before = _count(kept["original_label"])
    stayed = _count(kept.filter(pc.equal(kept["label"], kept["original_label"]))["label"])
    known = [name for name in names if name in before or name in after]
    return {
        name: ClassCounts(
            before=before[name],
            dropped=before[name] - kept_before[name],
            moved_out=kept_before[name] - stayed[name],
            moved_in=after[name] - stayed[name],
        )
        for name in (*known, *sorted((before | after).keys() - set(names)))
    }


def _count(labels: pa.ChunkedArray) -> Counter[str]:
    return Counter(labels.to_pylist())


def _refuse_unknown_classes(rules: CleaningRules, names: Sequence[str]) -> None:
    wanted = {marked.label for marked in rules.marks.values() if marked.label is not None}
    unknown = sorted(wanted - set(names))
    if unknown and not rules.new_classes:
        raise CleaningError(
            f"marks relabel to {', '.join(map(repr, unknown))}, but the classes are "
            f"{', '.join(names)}",
            "correct the marks, or allow new classes with ",
            Setting("new_classes", value=True),
            parameter="marks",
        )


def _check_ids(marks: Mapping[str, MarkedSample], ids: Sequence[str]) -> list[str]:
    """Warnings about marks of samples that are not in the score file."""
    known = set(ids)
    unknown = [sample_id for sample_id in marks if sample_id not in known]
    if not unknown:
        return []
    if len(unknown) == len(marks):
        raise CleaningError(
            f"none of the {len(unknown):,} marked samples is in the score file: marked ids look "
            f"like {unknown[:3]}, those of the scores like {list(ids[:3])}",
            parameter="marks",
        )
    marked = f"{count_of(len(unknown), 'marked sample')} {is_or_are(len(unknown))}"
    return [f"{marked} not in the score file: {list_names(unknown, LISTED)}"]


def _relabel_to_likeliest(
    draft: _Draft, scores: ScoreFile, condition: str | None, names: Mapping[int, str]
) -> list[str]:
    if condition is None:
        return []
    rows = np.flatnonzero(rows_where(condition, scores.table))
    chosen = pa.array(rows)
    if columns_in(condition) & {*SCORERS["suspicion"].columns}:
        kind = "suspected"
        likeliest = scores.column("suspected_label_name").take(chosen).to_pylist()
    else:
        kind = "nearest"
        nearest = scores.column("nearest_label").take(chosen)
        likeliest = [names.get(label) for label in nearest.to_pylist()]
    for row, name in zip(rows.tolist(), likeliest, strict=True):
        if name not in {None, draft.original[row]}:
            draft.relabel(row, name)
    unnamed = likeliest.count(None)
    if not unnamed:
        return []
    return [f"{unnamed:,} samples keep their label, because their {kind} class is not known"]


def _apply_marks(draft: _Draft, marks: Mapping[str, MarkedSample]) -> list[str]:
    overruled = 0
    for row, sample_id in enumerate(draft.ids):
        if sample_id not in marks:
            continue
        marked, before = marks[sample_id], (draft.labels[row], draft.reasons[row])
        by_condition = draft.marks[row] is not None
        if marked.mark is Mark.DROP:
            draft.drop(row, MARKED_DROP)
        else:
            draft.relabel(row, marked.label or draft.original[row])
        overruled += by_condition and before != (draft.labels[row], draft.reasons[row])
    if not overruled:
        return []
    return [f"{overruled:,} samples that a condition selects follow their mark instead"]


def _warn_of_empty(classes: Mapping[str, ClassCounts]) -> list[str]:
    empty = [name for name, counts in classes.items() if not counts.after]
    return [f"class {name!r} has no samples left" for name in empty]
