"""`difficulty demo`: the whole path on real images, offline, in under a minute."""

import os
import sys
import webbrowser
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from difficulty_service.cli.console import out as console

if TYPE_CHECKING:
    from difficulty_service.scoring.store import ScoreSummary


def demo(
    *,
    out: Path = Path("difficulty-demo"),
    open_report: Annotated[bool, Parameter("--open", negative="--no-open")] = True,
) -> None:
    """Scores 1,797 handwritten digits that ship with the package, with its own encoder.

    Args:
        out: Folder for the results.
        open_report: Open the report in a browser, if there is a desktop.
    """
    from difficulty_service.cli.report import write_score_report
    from difficulty_service.cli.score import run_score
    from difficulty_service.cli.score_report import report_scores
    from difficulty_service.datasets.sample import DatasetOptions
    from difficulty_service.extraction.plan import Plan
    from difficulty_service.scoring.pipeline import ScoreRequest

    with as_file(files("difficulty_service.demo") / "digits.parquet") as digits:
        plan = Plan(str(digits), out / "scores.features", "builtin", DatasetOptions(id_column="id"))
        scoring = ScoreRequest(out / "scores.parquet")
        summary = run_score(plan, scoring, verbose=False).found
        report_scores(summary, scoring.out)
        console.print()
        draw_extremes(summary, digits, out)
        path = out / "report.html"
        write_score_report(scoring.out, path)
    if open_report and has_desktop():
        webbrowser.open(path.resolve().as_uri())


def has_desktop() -> bool:
    """Whether a person sits at this terminal and a browser window can open before them."""
    if not sys.stdout.isatty():
        return False
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def draw_extremes(summary: "ScoreSummary", digits: Path, folder: Path) -> None:
    """Draws the hardest and the easiest samples, each above its label and score."""
    import pyarrow.parquet as pq

    from difficulty_service.demo.contact_sheet import write_contact_sheet

    source = pq.read_table(digits, columns=["id", "image"]).to_pydict()
    images = dict(zip(source["id"], source["image"], strict=True))
    for name, table in (("hardest", summary.hardest), ("easiest", summary.easiest)):
        rows = table.to_pylist()
        captions = [f"'{row['label_name']}' {row['rmd']:.0f}" for row in rows]
        path = folder / f"{name}.png"
        write_contact_sheet(path, [images[row["sample_id"]] for row in rows], captions)
        console.print(f"pictures of the {name} are in {path}")
