"""`difficulty demo`: the whole path on real images, offline, in under a minute."""

from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from difficulty_service.commands.console import out as console

SHOWN = 20


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("difficulty-demo"),
) -> None:
    """Scores 1,797 handwritten digits that ship with the package, with its own encoder."""
    from difficulty_service.commands.extract import run_extract
    from difficulty_service.commands.score import report, score_and_write
    from difficulty_service.datasets.sample import DatasetOptions
    from difficulty_service.pipeline import ExtractRequest

    scores = out / "scores.parquet"
    with as_file(files("difficulty_service.demo") / "digits.parquet") as digits:
        request = ExtractRequest(
            str(digits), out / "scores.features", "builtin", DatasetOptions(id_column="id")
        )
        store = run_extract(request).store
        # 1,797 samples are few for 512 dimensions, which is what shrinkage is for.
        scored = score_and_write(store, scores, None, ["rmd"], ("ledoit-wolf", "auto", False))
        report(scored, scores)
        show_extremes(scores, digits, out)


def show_extremes(scores: Path, digits: Path, folder: Path) -> None:
    """Draws the hardest and the easiest samples, each above its label and score."""
    import pyarrow.parquet as pq

    from difficulty_service.demo.contact_sheet import write_contact_sheet
    from difficulty_service.score_file import extremes

    source = pq.read_table(digits, columns=["id", "image"]).to_pydict()
    images = dict(zip(source["id"], source["image"], strict=True))
    for name, rows in extremes(scores, SHOWN).items():
        captions = [
            f"'{label}' {score:.0f}"
            for label, score in zip(
                rows["label_name"].to_pylist(), rows["rmd"].to_pylist(), strict=True
            )
        ]
        path = folder / f"{name}.png"
        write_contact_sheet(path, [images[key] for key in rows["sample_id"].to_pylist()], captions)
        console.print(f"pictures of the {name} are in {path}", markup=False)
