"""`difficulty compare`: runs side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from difficulty_service.base.extras import needs_extra
from trainer.commands import Level, Resamples


@needs_extra('"difficulty compare"', "train")
def compare(
    runs: Annotated[list[Path], Parameter("RUN...", help="Folders of runs.")],
    /,
    *,
    out: Annotated[
        Path | None,
        Parameter(
            help="File for the tables: .md (with a page, CSV, JSON and diagrams beside it), "
            ".tex for booktabs, .csv or .json."
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        Parameter(
            metavar="NAME,...",
            help="Metrics in the order of the tables, by their CSV names, such as "
            "accuracy,ece,ood_auroc_entropy.",
        ),
    ] = None,
    level: Level = 0.95,
    resamples: Resamples = 1000,
) -> None:
    """Compares runs: mean and standard deviation over seeds, with intervals.

    The best mean is bold only if its difference from every other run exceeds the interval of a
    paired bootstrap.
    """
    from trainer.reports.comparison_files import require_table_file

    if out is not None:
        require_table_file(out)
    names = None if metrics is None else [name.strip() for name in metrics.split(",")]
    show_comparison(runs, out, level, resamples, names)


def show_comparison(
    runs: Sequence[Path],
    out: Path | None,
    level: float,
    resamples: int,
    names: Sequence[str] | None = None,
) -> None:
    """Prints the comparison of runs, and writes it to a file."""
    from difficulty_service.cli.console import out as console
    from trainer.console import print_markdown, watch_passes
    from trainer.metrics.bootstrap import Resampling
    from trainer.reports.columns import MAIN_COLUMNS, choose_metrics
    from trainer.reports.comparison import compare_runs, resample_comparison
    from trainer.reports.comparison_files import write_comparison
    from trainer.reports.comparison_table import markdown_table
    from trainer.reports.pair_tables import tabulated_metrics

    comparison, intervals = compare_runs(runs), None
    metrics = None if names is None else choose_metrics(comparison, names)
    shown = metrics or MAIN_COLUMNS
    if resamples:
        resampling = Resampling(resamples, level)
        passes = sum(len(run.records) for run in comparison.runs) * len(comparison.stages)
        with watch_passes(passes) as advance:
            names_shown = tabulated_metrics(comparison, shown)
            intervals = resample_comparison(comparison, names_shown, resampling, advance)
    width = console.width if console.is_terminal else None
    print_markdown(markdown_table(comparison, shown, intervals, width))
    if out is None:
        return
    page = write_comparison(comparison, out, intervals, metrics)
    if page is None:
        console.print(f"written to {out}")
    else:
        console.print(f"tables and diagrams written next to {out}")
        console.print(f"all in one page: {page}; open it in a browser")
