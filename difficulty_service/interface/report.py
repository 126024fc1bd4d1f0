"""`report`: scores in, a page for people out."""

from collections.abc import Sequence
from pathlib import Path

from difficulty_service.interface.image_sources import LabelledImages, images_of
from difficulty_service.interface.scores import Scores, warn
from difficulty_service.reports.assemble import ReportOptions, make_report, read_reported
from difficulty_service.reports.sections import Order
from difficulty_service.reports.writing import DEFAULT_MAX_MB
from difficulty_service.scores.explanation import explanation_file
from difficulty_service.scores.file import ScoreFile


def report(  # noqa: PLR0913 - one parameter for each option
    scores: Scores | str | Path,
    out: str | Path,
    *,
    images: LabelledImages | None = None,
    compare: str | None = None,
    order: Order = "doubtful",
    max_mb: float = DEFAULT_MAX_MB,
    features: str | Path | None = None,
    columns: str | Path | Sequence[str | Path] = (),
) -> Path:
    """Writes one page to look at the images and mark wrong labels: a file for any browser.

    Args:
        scores: Scores, or the path of a score file; the page also shows what `difficulty explain`
            wrote beside that file.
        out: File to write, which ends in .html; an existing one is replaced.
        images: The images, as for `score_dataset`; by default the dataset that the scores name,
            without pictures where that is gone.
        compare: Column of the scores, or of a dataset that is a table, to show from the easiest
            images to the hardest.
        order: Which labels to check: the most `doubtful`, those of the `hardest` images, or a
            `random` choice, which tells how many labels are wrong.
        max_mb: Largest size of the file in megabytes; pictures are left out beyond it.
        features: Folder of the features, which `out` of `score_dataset` keeps beside the scores;
            with it the page has a map of the images.
        columns: Columns to filter and caption the images to check by, as `TABLE` or
            `TABLE:name,name`, one or several; a table is a file with the ids of the samples, or
            `dataset` for the dataset's own.

    Returns:
        The path of the page.

    Raises:
        DifficultyError: `ReportError` where the page cannot be written, `ScoreFileError` or
            `DatasetError` where the scores or the given images cannot be read.
    """
    contents = (
        ScoreFile(scores.table, scores.provenance)
        if isinstance(scores, Scores)
        else read_reported(Path(scores), compare)
    )
    tables = [columns] if isinstance(columns, str | Path) else columns
    options = ReportOptions(
        images=images_of(images),
        compare=compare,
        order=order,
        max_mb=max_mb,
        features=None if features is None else Path(features),
        explanation=None if isinstance(scores, Scores) else explanation_file(Path(scores)),
        columns=[str(each) for each in tables],
    )
    written = make_report(contents, Path(out), options)
    warn(written.warnings)
    return written.path
