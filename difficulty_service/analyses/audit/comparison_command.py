"""`difficulty compare-scores`: do two score files find the same samples hard?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from difficulty_service.cli.console import out as console
from difficulty_service.cli.console import print_table, print_warnings
from difficulty_service.cli.scored_images import find_images_or_warn
from difficulty_service.cli.written_files import require_writable
from difficulty_service.cli.wrong_call import WrongCall
from difficulty_service.settings.options import ImagesOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from difficulty_service.analyses.audit.score_comparison import ScoreComparison
    from difficulty_service.scores.file import ScoreFile

PAGE = ".html"
IDS_SHOWN = 5
CLASSES_SHOWN = 20
"""Number of classes in the table; the file has them all."""


def compare_scores(
    first: Annotated[Path, Parameter("A")],
    second: Annotated[Path, Parameter("B")],
    /,
    *,
    out: Path | None = None,
    score_column: str = "rmd",
    top: PositiveInt = 20,
    images: ImagesOption = ImagesOption(),
) -> None:
    """Compares two score files of the same samples.

    Shows how far they agree in order, how many of the hardest samples and of the doubtful labels
    they share, where chance would stand, the classes, and the samples that moved most.

    Args:
        first: Score file.
        second: Score file of another backbone, version or setting.
        out: File to write: a page (.html), or everything as data (.json).
        score_column: Column to compare.
        top: Number of samples to list that moved most.
    """
    from difficulty_service.analyses.audit.score_comparison import columns_of
    from difficulty_service.analyses.audit.score_comparison import compare_scores as compare
    from difficulty_service.base.errors import AuditError
    from difficulty_service.base.files import require_output_file
    from difficulty_service.scores.file import read_scores

    is_page = out is not None and out.suffix.lower() == PAGE
    if images.images is not None and not is_page:
        raise WrongCall(f"--images needs a page: --out NAME{PAGE}")
    if out is not None:
        require_output_file(out, (PAGE, ".json"), AuditError)
        require_writable([first, second], others=[out])
    columns = columns_of(score_column)
    files = read_scores(first, columns), read_scores(second, columns)
    comparison = compare(files[0], files[1], score_column, top)
    report_comparison(comparison, first, second)
    print_warnings(comparison.warnings)
    if out is not None:
        write_result(out, comparison, [(first, files[0]), (second, files[1])], images)
        console.print(f"\nthe comparison is in {out}")


def write_result(
    out: Path,
    comparison: "ScoreComparison",
    files: "Sequence[tuple[Path, ScoreFile]]",
    images: ImagesOption,
) -> None:
    """Writes the comparison as a page with the images of the first file, or as JSON."""
    from difficulty_service.base.checksums import write_json

    if out.suffix.lower() != PAGE:
        write_json(out, {"files": [str(path) for path, _ in files], **comparison.to_json()})
        return
    from difficulty_service.analyses.audit.comparison_page import ComparedFile, write_comparison

    compared = [ComparedFile(path.name, scores) for path, scores in files]
    source = find_images_or_warn(compared[0].scores, images)
    print_warnings(write_comparison(out, comparison, compared, source))


def report_comparison(comparison: "ScoreComparison", first: Path, second: Path) -> None:
    """Prints a comparison as sentences and tables."""
    for letter, path, backbone in zip("AB", (first, second), comparison.backbones, strict=True):
        console.print(f"{letter}: {path} ({backbone or 'unknown backbone'})")
    report_samples(comparison)
    console.print(
        f"Spearman's rank correlation of {comparison.score_column} {comparison.spearman:.3f}, "
        f"95 % interval {comparison.low:.3f} to {comparison.high:.3f} (1 is the same order, 0 none "
        "in common)\n"
    )
    rows = [
        (f"{each.share:.0%}", each.count, each.shared, f"{each.by_chance:,.1f}")
        for each in comparison.hardest
    ]
    print_table(("hardest", "samples", "shared", "by chance"), rows)
    report_doubts(comparison)
    report_classes(comparison)
    report_moves(comparison)


def report_samples(comparison: "ScoreComparison") -> None:
    """Prints how many samples are compared, and those that are in one file only."""
    from difficulty_service.base.wording import count_of, is_or_are, list_names

    compared = comparison.num_compared
    console.print(f"{count_of(compared, 'sample')} {is_or_are(compared)} compared")
    for letter, ids in (("A", comparison.only_first), ("B", comparison.only_second)):
        if ids:
            only = f"{count_of(len(ids), 'sample')} {is_or_are(len(ids))}"
            console.print(f"{only} only in {letter}: {list_names(ids, IDS_SHOWN)}")
    if number := comparison.num_without_score:
        console.print(f"{count_of(number, 'sample')} in both lack a score in one")


def report_doubts(comparison: "ScoreComparison") -> None:
    """Prints how many doubtful labels the files share."""
    doubts = comparison.doubts
    if doubts is None:
        return
    console.print(
        f"\nlabels that look doubtful (label_margin above 0): {doubts.in_first:,} in A, "
        f"{doubts.in_second:,} in B, {doubts.shared:,} in both, {doubts.by_chance:,.1f} by chance; "
        f"{doubts.same_class:,} of those in both look like the same other class"
    )


def report_classes(comparison: "ScoreComparison") -> None:
    """Prints the classes whose order differs most."""
    from difficulty_service.cli.score_report import class_text

    number, shown = len(comparison.classes), comparison.classes[:CLASSES_SHOWN]
    if number == 1:
        return
    of_all = f" ({len(shown)} of {number:,})" if len(shown) < number else ""
    console.print(f"\nclasses{of_all}, the least agreement first; percentile 1 is the hardest:")
    rows = [
        (
            class_text(each.name),
            each.num_samples,
            "-" if each.spearman is None else f"{each.spearman:.3f}",
            each.mean_first,
            each.mean_second,
        )
        for each in shown
    ]
    print_table(("class", "samples", "rank correlation", "mean percentile in A", "in B"), rows)


def report_moves(comparison: "ScoreComparison") -> None:
    """Prints the samples whose percentiles differ most."""
    from difficulty_service.cli.score_report import class_text

    console.print("\nsamples that moved most:")
    rows = [
        (each.sample_id, class_text(each.class_name), each.first, each.second)
        for each in comparison.moves
    ]
    print_table(("sample", "class", "percentile in A", "in B"), rows, shorten="sample")
