"""A comparison as LaTeX tables in the style of booktabs, with pairs as papers print them."""

import re
from collections.abc import Sequence

from trainer.reports.columns import MAIN_COLUMNS, NO_VALUE, column_of
from trainer.reports.comparison import ComparisonIntervals, RunComparison
from trainer.reports.comparison_table import advice, seeds_alone
from trainer.reports.pair_tables import PAIR_NOTE, Pair, PairTable, other_tables, pair_table

SYMBOLS = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "\N{EN DASH}": "--",
}
"""What LaTeX would read otherwise, or does not have."""

BEST = "Bold: better than every other run as trained, beyond the interval of the difference."


def latex_tables(
    comparison: RunComparison,
    metrics: Sequence[str] = MAIN_COLUMNS,
    intervals: ComparisonIntervals | None = None,
) -> str:
    """A tabular of the metrics and, with the default metrics, of OOD data and corrupted images."""
    columns = [column_of(metric) for metric in metrics]
    tables = [pair_table(comparison, columns, "Test data", PAIR_NOTE, intervals)]
    tables += other_tables(comparison, intervals) if tuple(metrics) == MAIN_COLUMNS else []
    notes = [] if intervals is None else [" ".join((BEST, *seeds_alone(intervals)))]
    lines = [r"% Needs \usepackage{booktabs}."]
    lines += [f"% {text}" for text in (*notes, *advice(comparison))]
    return "\n".join([*lines, *(_tabular(table) for table in tables)]) + "\n"


def escaped(text: str) -> str:
    """A text as LaTeX prints it."""
    return re.sub("|".join(map(re.escape, SYMBOLS)), lambda each: SYMBOLS[each.group()], text)


def _tabular(table: PairTable) -> str:
    header = ["run", *(column.header for column in table.columns), "T"]
    rows = [[escaped(name), *map(_cell, cells), _temperature(cells)] for name, cells in table.rows]
    lines = [
        "",
        # A line break in a name must not end the comment.
        f"% {' '.join(f'{table.heading}. {table.note}'.split())}",
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        rf"{' & '.join(map(escaped, header))} \\",
        r"\midrule",
        *(rf"{' & '.join(row)} \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines)


def _cell(pair: Pair) -> str:
    raw = rf"\textbf{{{escaped(pair.raw)}}}" if pair.is_best else escaped(pair.raw)
    return f"{raw} / {escaped(pair.scaled)}" if pair.scaled else raw


def _temperature(cells: Sequence[Pair]) -> str:
    """The temperature of a run, which its cells share; a dash where none is scaled."""
    return escaped(next((cell.temperature for cell in cells if cell.temperature), NO_VALUE))
