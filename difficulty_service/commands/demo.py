"""`difficulty demo`: the whole path on real images, offline, in under a minute."""

from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from difficulty_service.commands.console import out as console

if TYPE_CHECKING:
    from difficulty_service.scoring.score_store import ScoreSummary


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("difficulty-demo"),
) -> None:
    """Scores 1,797 handwritten digits that ship with the package, with its own encoder."""
    from difficulty_service.commands.score import run_score
    from difficulty_service.commands.score_report import report_scores
    from difficulty_service.datasets.sample import DatasetOptions
    from difficulty_service.pipeline import ExtractRequest, ScoreRequest

    with as_file(files("difficulty_service.demo") / "digits.parquet") as digits:
        extraction = ExtractRequest(
            str(digits), out / "scores.features", "builtin", DatasetOptions(id_column="id")
        )
        scoring = ScoreRequest(out / "scores.parquet")
        summary = run_score(extraction, scoring, lambda: extraction.backbone, verbose=False)
        report_scores(summary, scoring.out)
        console.print()
        draw_extremes(summary, digits, out)


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
        console.print(f"pictures of the {name} are in {path}", markup=False)
