"""The comparison of two score files as a page of the same kind as the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from difficulty_service.analyses.audit.score_comparison import ScoreComparison
from difficulty_service.pages.cards import Pictures, read_pictures
from difficulty_service.pages.charts import shade_of
from difficulty_service.pages.html_page import write_page
from difficulty_service.pages.origin import describe_provenance
from difficulty_service.pages.stored_images import ImageSource
from difficulty_service.scores.file import ScoreFile

STYLES = ("base.css", "report.css", "comparison.css")

LISTED_CLASSES = 50
"""Number of classes in the table."""

LISTED_IDS = 20
"""Number of ids that are listed of samples in one file only."""


@dataclass(frozen=True)
class ComparedFile:
    """A score file and the name that the page gives it."""

    name: str
    scores: ScoreFile


def write_comparison(
    path: Path,
    comparison: ScoreComparison,
    compared: Sequence[ComparedFile],
    images: ImageSource | None = None,
) -> Sequence[str]:
    """Writes a comparison as one page; the file appears whole or not at all.

    Gives warnings about pictures.
    """
    ids = [move.sample_id for move in comparison.moves]
    pictures = Pictures({}, {}) if images is None else read_pictures(images, ids, ())
    values = {
        "comparison": comparison,
        "noun": compared[0].scores.provenance.noun,
        "names": [each.name for each in compared],
        "facts": [describe_provenance(each.scores.provenance) for each in compared],
        "pictures": pictures,
        "shades": shades_of(comparison.tenths),
        "classes": comparison.classes[:LISTED_CLASSES],
        "only": [ids[:LISTED_IDS] for ids in (comparison.only_first, comparison.only_second)],
    }
    write_page(path, "comparison.html.j2", values, styles=STYLES, package=__package__)
    return [f"{sample_id} is not shown: {why}" for sample_id, why in pictures.problems.items()]


def shades_of(tenths: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    """A shade from 0 to 9 for each cell."""
    largest = max(map(max, tenths))
    return [[shade_of(count, largest) for count in row] for row in tenths]
