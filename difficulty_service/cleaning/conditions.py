"""Conditions on columns, such as `label_margin > 4 and not (label_name == 'cat')`.

A condition has the syntax of a Python expression, of which only comparisons, `and`, `or`, `not`,
`in`, parentheses, numbers, quoted text and the names of columns are allowed. It is evaluated by
Arrow; no Python code is run.
"""

import ast
from collections.abc import Callable
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.errors import CleaningError
from difficulty_service.score_columns import COMPUTED_BY, remedy_of

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
    """Evaluates a condition on each row of a table.

    A comparison with a missing value is neither true nor false, and such a row is not selected;
    `rmd is null` and `rmd is not null` select by missing values.

    Args:
        condition: The condition.
        table: Columns that it may name; those of text may be dictionary-encoded.

    Returns:
        Whether the condition is true, without nulls. Shape (rows,).

    Raises:
        CleaningError: The syntax is not allowed, a column is unknown, or values of different types
            are compared.
    """
    tree = _parse(condition)
    reader = _Reader(condition, table)
    try:
        mask = reader.truth(tree.body)
    except RecursionError as error:
        raise _refusal(condition, "has too many levels") from error
    return pc.fill_null(mask, fill_value=False)


def columns_in(condition: str) -> frozenset[str]:
    """Names of the columns that a condition compares.

    Raises:
        CleaningError: It is not a Python expression.
    """
    nodes = ast.walk(_parse(condition))
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name)) - {NULL}


def _parse(condition: str) -> ast.Expression:
    try:
        return ast.parse(condition.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _refusal(condition, f"cannot be read: {reason}") from error


def _refusal(condition: str, reason: str) -> CleaningError:
    return CleaningError(
        f"the condition {condition!r} {reason}",
        "write it as in: label_margin > 4 and not (label_name == 'cat' or rmd is null)",
    )


class _Reader:
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
            columns = self._table.column_names
            remedy = remedy_of(node.id, columns)
            text = () if node.id in COMPUTED_BY else ("; text is written in quotes",)
            raise CleaningError(
                f"the condition {self._condition!r} names the column {node.id!r}, which the score "
                "file does not have",
                *remedy,
                *text,
            )
        column = self._table[node.id]
        if pa.types.is_dictionary(column.type):
            return column.cast(column.type.value_type)
        return column

    def _refuse(self, node: ast.expr, reason: str) -> CleaningError:
        return _refusal(self._condition, f"cannot be used: {ast.unparse(node)!r} {reason}")
