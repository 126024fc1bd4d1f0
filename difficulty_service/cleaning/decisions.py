"""Which samples of a score file are kept, dropped or relabelled, and why.

Conditions on columns, such as `label_margin > 4 and not (label_name == 'cat')`.

A condition has the syntax of a Python expression, of which only comparisons, `and`, `or`, `not`,
`in`, parentheses, numbers, quoted text and the names of columns are allowed. It is evaluated by
Arrow; no Python code is run.
"""

import ast
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.base.errors import CleaningError, Setting
from difficulty_service.base.plain_columns import plain_column
from difficulty_service.base.wording import count_of, is_or_are, list_names
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MARK_COLUMN, MarkedSample, refuse_marks_of_boxes
from difficulty_service.scores.copies import COPIES, copies_in, copy_groups
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.samples import class_names_of
from difficulty_service.scores.score_columns import COMPUTED_BY, SCORERS, absent_column, remedy_of
from difficulty_service.scores.tiers import CONDITIONS

NULL = "null"
"""The word for a missing value."""

Value: TypeAlias = pa.ChunkedArray | pa.Scalar

_COMPARISONS: dict[type[ast.cmpop], Callable[[Value, Value], Value]] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}


def rows_where(condition: str, table: pa.Table) -> pa.ChunkedArray:
    """Whether a condition is true of each row of a table, without nulls. Shape (rows,).

    A comparison with a missing value is neither true nor false, and such a row is not selected;
    `rmd is null` and `rmd is not null` select by missing values.

    """
    tree = _parse(condition)
    reader = _ConditionReader(condition, table)
    try:
        mask = reader.truth(tree.body)
    except RecursionError as error:
        raise _refusal(condition, "has too many levels") from error
    return pc.fill_null(mask, fill_value=False)


def columns_in(condition: str) -> frozenset[str]:
    """Names of the columns that a condition compares."""
    nodes = ast.walk(_parse(condition))
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name)) - {NULL}


def _parse(condition: str) -> ast.Expression:
    try:
        return ast.parse(CONDITIONS.get(condition.strip(), condition.strip()), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _refusal(condition, f"cannot be read: {reason}") from error


def _refusal(condition: str, reason: str) -> CleaningError:
    return CleaningError(
        f"the condition {condition!r} {reason}",
        "write it as in: label_margin > 4 and not (label_name == 'cat' or rmd is null)",
    )


class _ConditionReader:
    """Evaluates the syntax tree of a condition on a table."""

    def __init__(self, condition: str, table: pa.Table) -> None:
        self._condition = condition
        self._table = table

    def truth(self, node: ast.expr) -> pa.ChunkedArray:
        """Truth of a part of the condition in each row; null where it is unknown."""
        if isinstance(node, ast.BoolOp):
            combine = pc.and_kleene if isinstance(node.op, ast.And) else pc.or_kleene
            return reduce(combine, [self.truth(value) for value in node.values])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return pc.invert(self.truth(node.operand))
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            pairs = zip(operands[:-1], node.ops, operands[1:], strict=True)
            return reduce(pc.and_kleene, [self._compare(*pair) for pair in pairs])
        if isinstance(node, ast.Constant | ast.Name):
            raise self._refuse(node, "is not a comparison")
        raise self._refuse(node, "is not allowed")

    def _compare(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> pa.ChunkedArray:
        if isinstance(operator, ast.Is | ast.IsNot):
            return self._is_null(left, right, negated=isinstance(operator, ast.IsNot))
        if isinstance(operator, ast.In | ast.NotIn):
            found = self._is_in(left, right)
            return pc.invert(found) if isinstance(operator, ast.NotIn) else found
        try:
            result = _COMPARISONS[type(operator)](self._value(left), self._value(right))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            parts = f"{ast.unparse(left)!r} and {ast.unparse(right)!r}"
            raise _refusal(
                self._condition, f"compares {parts}, which are of different types"
            ) from error
        if isinstance(result, pa.Scalar):
            raise _refusal(self._condition, "compares two values, not a column")
        return result

    def _is_null(self, column: ast.expr, word: ast.expr, *, negated: bool) -> pa.ChunkedArray:
        if not (isinstance(word, ast.Name) and word.id == NULL):
            raise self._refuse(word, f"follows 'is', which only {NULL!r} may")
        if not isinstance(column, ast.Name):
            raise self._refuse(column, f"is compared with {NULL!r}, which only a column can be")
        values = self._column(column)
        return pc.is_valid(values) if negated else pc.is_null(values)

    def _is_in(self, column: ast.expr, group: ast.expr) -> pa.ChunkedArray:
        if not (isinstance(group, ast.Tuple | ast.List | ast.Set) and group.elts):
            raise self._refuse(group, "follows 'in', which needs values in parentheses")
        equal = [self._compare(column, ast.Eq(), value) for value in group.elts]
        return reduce(pc.or_kleene, equal)

    def _value(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Name):
            return self._column(node)
        sign = 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            sign, node = -1, node.operand
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and sign == 1:
            return pa.scalar(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return pa.scalar(float(sign * value))
        raise self._refuse(node, "is neither a column, a number nor quoted text")

    def _column(self, node: ast.Name) -> pa.ChunkedArray:
        if node.id not in self._table.column_names:
            text = () if node.id in COMPUTED_BY else ("; text is written in quotes",)
            raise CleaningError(
                f"the condition {self._condition!r} names the column {node.id!r}, which the score "
                "file does not have",
                *remedy_of(node.id, self._table.column_names),
                *text,
            )
        return plain_column(self._table[node.id])

    def _refuse(self, node: ast.expr, reason: str) -> CleaningError:
        return _refusal(self._condition, f"cannot be used: {ast.unparse(node)!r} {reason}")


LISTED = 20
"""Number of sample ids that a warning lists."""

MARKED_DROP = "marked drop"
"""Why a sample is dropped that a person marked so; otherwise it is the condition, or its copies."""


@dataclass(frozen=True)
class CleaningRules:
    """What decides about the samples. A mark has precedence over both conditions.

    Of copies, those count that are not dropped yet, with their new labels. The first one that a
    person marked is kept, else the first one. None is kept where their labels differ, or those of
    the marked ones.

    Attributes:
        drop: Condition under which a sample is dropped; None for no such condition.
        relabel: Condition under which a sample that is not dropped gets the class of its
            `suggested_label`, if the condition is about the suspicion, and otherwise that of its
            `nearest_label`; None for no such condition.
        new_classes: Whether marks may relabel to classes that are not in the score file.
        drop_duplicates: Whether one of each group of exact or near copies is kept at most.
    """

    marks: Mapping[str, MarkedSample]
    drop: str | None = None
    relabel: str | None = None
    new_classes: bool = False
    drop_duplicates: bool = False


@dataclass(frozen=True)
class DroppedCopies:
    """Numbers of samples that are dropped because of their copies.

    Attributes:
        surplus: Copies of a sample that is kept.
        conflicting: Copies of which none is kept, because their labels differ.
    """

    surplus: int
    conflicting: int


@dataclass(frozen=True)
class ClassCounts:
    """Numbers of samples of one class."""

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
        copies: None where copies are not dropped.
        rounds: Number of the round in which each misplaced box was found, as far as it is known.
    """

    table: pa.Table
    classes: Mapping[str, ClassCounts]
    warnings: tuple[str, ...]
    copies: DroppedCopies | None = None
    rounds: Mapping[str, int | None] = field(default_factory=dict)

    def kept(self) -> pa.Table:
        """The samples that are kept: sample_id, label, original_label, mark."""
        return self.table.filter(pc.is_null(self.table["reason"])).drop_columns("reason")

    def dropped(self) -> pa.Table:
        """The samples that are dropped: sample_id, label, reason."""
        rows = self.table.filter(pc.is_valid(self.table["reason"]))
        return rows.select(["sample_id", "original_label", "reason"]).rename_columns(
            ["sample_id", "label", "reason"]
        )

    def misplaced(self) -> pa.Table:
        """The boxes that are kept but are not where their objects are.

        Columns sample_id, image, box (its name in the image), label and round (null where it is not
        known).
        """
        rows = self.table.filter(pc.equal(self.table["mark"], Mark.MISPLACED.value))
        ids = rows["sample_id"].to_pylist()
        names = [each.rpartition("#") for each in ids]
        return pa.table(
            {
                "sample_id": pa.array(ids, pa.string()),
                "image": pa.array([image for image, _, _ in names], pa.string()),
                "box": pa.array([box for _, _, box in names], pa.string()),
                "label": rows["label"],
                "round": pa.array([self.rounds.get(each) for each in ids], pa.int64()),
            }
        )


@dataclass(frozen=True)
class _DecidedColumns:
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

    def append(self, left_out: Mapping[str, str]) -> None:
        """Adds samples that are not in the score file, with their labels."""
        self.ids.extend(left_out)
        for column in (self.original, self.labels):
            column.extend(left_out.values())
        for empty in (self.marks, self.reasons):
            empty.extend([None] * len(left_out))

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

    Raises:
        CleaningError: A condition cannot be evaluated, a mark names an unknown class or is of a box
            where the samples are none, no mark belongs to a sample of the score file, or it does
            not tell which samples are copies.
        ScoreFileError: The column of the class that fits best is absent.
    """
    names = class_names_of(scores)
    refuse_marks_of_boxes(rules.marks, boxes=scores.provenance.boxes)
    _refuse_unknown_classes(rules, list(names.values()))
    ids: list[str] = scores.table["sample_id"].to_pylist()
    left_out = _left_out(scores, rules.marks, ids)
    warnings = _check_ids(rules.marks, [*ids, *left_out])
    labels: list[str] = scores.table["label_name"].cast(pa.string()).to_pylist()
    given = (rules.marks[each].given_label if each in rules.marks else None for each in ids)
    original = [before or label for before, label in zip(given, labels, strict=True)]
    nothing: list[str | None] = [None] * len(ids)
    draft = _DecidedColumns(ids, original, labels, nothing, list(nothing))
    warnings += _relabel_to_likeliest(draft, scores, rules.relabel, names)
    if rules.drop is not None:
        for row in np.flatnonzero(rows_where(rules.drop, scores.table)).tolist():
            draft.drop(row, rules.drop)
    draft.append(left_out)
    warnings += _apply_marks(draft, rules.marks)
    copies = None
    if rules.drop_duplicates:
        copies, about_copies = _drop_copies(draft, scores, rules.marks)
        warnings += about_copies
    table = draft.table()
    classes = count_classes(table, list(names.values()))
    empty = [name for name, counts in classes.items() if not counts.after]
    warnings += [f"class {name!r} has no samples left" for name in empty]
    rounds = {name: each.round for name, each in rules.marks.items() if each.mark is Mark.MISPLACED}
    return Decisions(table, classes, tuple(warnings), copies, rounds)


def count_classes(table: pa.Table, names: Sequence[str]) -> dict[str, ClassCounts]:
    """Counts of each class with samples before or after, in the order of the names, then others."""
    kept = table.filter(pc.is_null(table["reason"]))
    before = Counter(table["original_label"].to_pylist())
    after = Counter(kept["label"].to_pylist())
    kept_before = Counter(kept["original_label"].to_pylist())
    same = kept.filter(pc.equal(kept["label"], kept["original_label"]))
    stayed = Counter(same["label"].to_pylist())
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


def _left_out(
    scores: ScoreFile, marks: Mapping[str, MarkedSample], ids: Sequence[str]
) -> dict[str, str]:
    """Samples that marks dropped before the others were scored, with their labels."""
    if not (scores.provenance.marks or {}).get(Mark.DROP):
        return {}
    known = set(ids)
    return {
        sample_id: marked.given_label
        for sample_id, marked in marks.items()
        if marked.mark is Mark.DROP and marked.given_label is not None and sample_id not in known
    }


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
            f"like {unknown[:3]}, ids of the scores like {list(ids[:3])}",
            parameter="marks",
        )
    marked = f"{count_of(len(unknown), 'marked sample')} {is_or_are(len(unknown))}"
    return [f"{marked} not in the score file: {list_names(unknown, LISTED)}"]


def _relabel_to_likeliest(
    draft: _DecidedColumns, scores: ScoreFile, condition: str | None, names: Mapping[int, str]
) -> list[str]:
    if condition is None:
        return []
    rows = np.flatnonzero(rows_where(condition, scores.table))
    chosen = pa.array(rows)
    if columns_in(condition) & {*SCORERS["suspicion"].columns}:
        kind = "suggested"
        likeliest = scores.column("suggested_label_name").take(chosen).to_pylist()
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
    return [f"{unnamed:,} samples keep their label, because their {kind} class is unknown"]


def _apply_marks(draft: _DecidedColumns, marks: Mapping[str, MarkedSample]) -> list[str]:
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
        if marked.mark is Mark.MISPLACED:
            draft.marks[row] = Mark.MISPLACED
        overruled += by_condition and before != (draft.labels[row], draft.reasons[row])
    if not overruled:
        return []
    return [f"{overruled:,} samples selected by a condition follow their mark instead"]


def _drop_copies(
    draft: _DecidedColumns, scores: ScoreFile, marks: Mapping[str, MarkedSample]
) -> tuple[DroppedCopies, list[str]]:
    table = scores.table
    if not {*COPIES} & {*table.column_names}:
        raise absent_column(
            COPIES[-1], table.column_names, "the score file", CleaningError, "drop_duplicates"
        )
    ids = table["sample_id"].cast(pa.string()).combine_chunks()
    right = {Mark.KEEP, Mark.RELABEL}
    verified = {sample_id for sample_id, each in marks.items() if each.mark in right}
    if MARK_COLUMN in table.column_names:
        verified |= {*ids.filter(table[MARK_COLUMN].is_valid()).to_pylist()} - marks.keys()
    groups = copy_groups(ids, copies_in(table))
    surplus, conflicting, disagreeing = 0, 0, list[str]()
    for rows in groups:
        left = [row for row in rows.tolist() if draft.reasons[row] is None]
        marked = [row for row in left if draft.ids[row] in verified]
        labels = list(dict.fromkeys(draft.labels[row] for row in marked or left))
        if len(labels) > 1:
            conflicting += len(left)
            disagreeing += [draft.ids[row] for row in marked]
            for row in left:
                draft.drop(row, f"copies have different labels: {', '.join(labels)}")
            continue
        # Marked ones first; sorting keeps the order of the dataset among them.
        by_rank = sorted(left, key=lambda row: row not in marked)
        surplus += len(by_rank[1:])
        for row in by_rank[1:]:
            draft.drop(row, f"copy of {draft.ids[by_rank[0]]}")
    warnings = []
    if not groups:
        warnings.append("no sample is known to be a copy of another, so no copy is dropped")
    if disagreeing:
        warnings.append(
            f"{count_of(len(disagreeing), 'marked sample')} {is_or_are(len(disagreeing))} dropped, "
            f"because a copy is marked with another label: {list_names(disagreeing, LISTED)}"
        )
    return DroppedCopies(surplus, conflicting), warnings
