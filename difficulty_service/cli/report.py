"""`difficulty report`: scores in, a page for people out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from difficulty_service.base.wording import count_of
from difficulty_service.cli.console import out as console
from difficulty_service.cli.console import print_warnings
from difficulty_service.cli.score_report import print_steps, review_steps
from difficulty_service.cli.scored_images import reading_of
from difficulty_service.cli.wrong_call import as_option
from difficulty_service.settings.options import JoinOption, ScoredImages

if TYPE_CHECKING:
    from difficulty_service.reports.writing import WrittenReport

DEFAULT_MAX_MB = 15.0


def report(
    scores: Path,
    /,
    *,
    out: Path | None = None,
    compare: Annotated[str | None, Parameter(metavar="COLUMN")] = None,
    order: Literal["doubtful", "hardest", "random"] = "doubtful",
    max_mb: float = DEFAULT_MAX_MB,
    draw_map: Annotated[bool, Parameter("--map")] = False,
    images: ScoredImages = ScoredImages(),
    joined: JoinOption = JoinOption(),
) -> None:
    """Writes one page to look at the images and mark wrong labels: a file for any browser.

    The marks are downloaded from the page; `difficulty score --marks` remembers them and scores
    again, `difficulty clean` applies them.

    Args:
        scores: Score file.
        out: File to write, ending in .html; default: beside the scores.
        compare: Also show a column of the score file, or of a table dataset, from the easiest
            images to the hardest.
        order: Labels to check: the most doubtful, the hardest, or a random choice that estimates
            how many labels are wrong.
        max_mb: Largest size of the pictures in megabytes; others are left out.
        draw_map: Also draw a map of the images, from the features beside the scores.
    """
    from difficulty_service.reports.assemble import ReportOptions, make_report, read_reported
    from difficulty_service.reports.writing import require_report_file
    from difficulty_service.scores.explanation import explanation_file

    path = out or scores.with_suffix(".html")
    require_report_file(path, max_mb)
    features = scores.with_suffix(".features") if draw_map else None
    explanation = explanation_file(scores)
    options = ReportOptions(
        images=images.images,
        reading=reading_of(images),
        compare=compare,
        max_mb=max_mb,
        features=features,
        explanation=explanation,
        order=order,
        columns=joined.columns,
        spell=as_option,
    )
    content = read_reported(scores, compare)
    print_report(make_report(content, path, options))
    print_steps(review_steps(scores, path, content.provenance.tags))


def write_score_report(scores: Path, path: Path) -> None:
    """Writes the report of a score file with the images that it names, and prints where it is."""
    from difficulty_service.reports.assemble import ReportOptions, make_report, read_reported

    print_report(make_report(read_reported(scores), path, ReportOptions(spell=as_option)))


def print_report(written: "WrittenReport") -> None:
    """Prints where a report is."""
    print_warnings(written.warnings)
    console.print(
        f"the report is in {written.path} ({written.num_bytes / 1e6:.1f} MB, "
        f"{count_of(written.num_pictures, 'picture')}); open it in a browser"
    )
