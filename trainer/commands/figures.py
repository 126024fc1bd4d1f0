"""`difficulty figures`: the figures of the papers, from runs and score files."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from difficulty_service.base.extras import needs_extra
from difficulty_service.cli.wrong_call import WrongCall


@needs_extra('"difficulty figures"', "train")
def figures(
    inputs: Annotated[list[Path], Parameter("RUN...")],
    /,
    *,
    out: Annotated[Path, Parameter(metavar="DIR")],
    picture_format: Annotated[Literal["svg", "png"], Parameter("--format")] = "svg",
    score_column: Annotated[str | None, Parameter(metavar="COLUMN")] = None,
    bins: PositiveInt = 10,
    images: PositiveInt = 24,
) -> None:
    """Draws the figures of the papers that runs and score files allow.

    From runs: reliability before and after temperature scaling, histograms of confidence, entropy
    and gradients, risk over coverage, accuracy over rejection; NLL, calibration, entropy, norms and
    gradients over epochs, AdaFocal's gammas. From runs after `difficulty evaluate`: intervals of
    calibration errors; ROC curves, with --ood; calibration over severity, with --corruptions. From
    score files: the hardest and easiest images, and difficulty over severity, with files by
    `difficulty score --corrupt`. From both: error over difficulty, and predicted classes. Several
    runs share a diagram.

    DIR receives each figure with its numbers as CSV, and index.md, which lists them with captions,
    and what was left out with the reason.

    Args:
        inputs: Folders of runs, finished or not, and score files, in any order.
        out: Folder for the figures.
        picture_format: Type of the pictures.
        score_column: Column of the score files to draw; default: rmd.
        bins: Bins of error-over-difficulty; Cui et al. have 500 samples in each.
        images: Number of hardest and of easiest images in a sheet; figure 12 of Cui et al. has 100.
    """
    from difficulty_service.cli.console import out as console
    from trainer.reports.figures.figure import lines_of
    from trainer.reports.figures.sources import read_sources
    from trainer.reports.figures.writing import write_figures

    if out.exists() and not out.is_dir():
        raise WrongCall(f"--out {out} is a file; give a folder")
    if score_column is not None and all(path.is_dir() for path in inputs):
        raise WrongCall("no score file is given; name one, or leave out --score-column")
    sources = replace(read_sources(inputs, score_column or "rmd"), num_bins=bins, num_images=images)
    written = write_figures(sources, out, picture_format)
    for each in written.figures:
        console.print(f"{each.name}.{picture_format}: {each.caption}")
    for line in lines_of(written.left_out):
        console.print(f"left out of {line}")
    console.print(f"all figures with their numbers: {written.index}")
