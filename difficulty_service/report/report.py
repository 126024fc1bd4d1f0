"""From a score file to a report: facts, pictures and the page."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from difficulty_service.cleaning.stored_images import ImageSource
from difficulty_service.errors import ReportError
from difficulty_service.files.atomic_file import replacing
from difficulty_service.files.output_path import require_output_file
from difficulty_service.files.wording import count_of
from difficulty_service.report.cards import make_cards
from difficulty_service.report.classes import ClassFacts, rank_classes
from difficulty_service.report.compared import ComparedColumn, bar_heights
from difficulty_service.report.map import ImageMap
from difficulty_service.report.page import render_page
from difficulty_service.report.pictures import Pictures, dataset_name, read_pictures
from difficulty_service.report.provenance import describe_provenance
from difficulty_service.report.samples import ScoredSamples, to_samples
from difficulty_service.report.sections import (
    LISTED_CLASSES,
    class_rows,
    cuts_of,
    matrix_of,
    review_data,
    summarise,
)
from difficulty_service.report.selection import SHOWN_CLASSES, Limits, Selection, select
from difficulty_service.score_file import ScoreFile

MEGABYTE = 1_000_000
DEFAULT_MAX_MB = 15.0

PAGE_SHARE = 0.9
"""Share of the largest file that pictures may take; the rest is for text."""

SMALLEST_FACTOR = 0.02
"""Share of the usual number of pictures below which there are none."""

NO_PICTURES = Pictures({}, {})


@dataclass(frozen=True)
class ReportParts:
    """What a report shows besides the scores.

    Attributes:
        images: The dataset; None for a report without pictures.
        compared: A column to set beside the difficulty, or None.
        map: Positions of the samples by their features, or None.
        max_mb: Largest size of the file in millions of bytes; pictures are left out beyond it.
        notes: Sentences that the page shows, such as why there are no pictures.
    """

    images: ImageSource | None = None
    compared: ComparedColumn | None = None
    map: ImageMap | None = None
    max_mb: float = DEFAULT_MAX_MB
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class WrittenReport:
    """A report on disk.

    Attributes:
        path: The file.
        num_bytes: Its size.
        num_pictures: Number of pictures in it.
        warnings: Warnings, one sentence each.
    """

    path: Path
    num_bytes: int
    num_pictures: int
    warnings: Sequence[str]


def require_report_file(path: Path, max_mb: float = DEFAULT_MAX_MB) -> None:
    """Raises ReportError where `write_report` could not write to a path."""
    require_output_file(path, (".html", ".htm"), ReportError)
    if not max_mb > 0:
        raise ReportError(
            f"a report of {max_mb:g} MB would hold nothing",
            "name a size above 0, such as 15",
            parameter="max_mb",
        )


def write_report(path: Path, scores: ScoreFile, parts: ReportParts) -> WrittenReport:
    """Writes a report; the file appears whole or not at all.

    Args:
        path: File to write, which ends in .html; an existing one is replaced.
        scores: A score file with the columns of SCHEMA.
        parts: What it shows besides the scores.

    Raises:
        ReportError: The name has another ending or is that of a folder, or no sample has a score.
    """
    require_report_file(path, parts.max_mb)
    samples = to_samples(scores)
    ranked = rank_classes(samples)
    if not ranked:
        raise ReportError(
            "none of the samples has a score, so there is nothing to report",
            "score the dataset again; the warnings say why there are no scores",
        )
    selection, pictures, notes = _choose(samples, ranked, parts)
    parts = replace(parts, notes=(*parts.notes, *notes))
    html = render_page(_values(scores, samples, ranked, selection, pictures, parts))
    with replacing(path) as temporary:
        temporary.write_text(html, "utf-8", errors="replace")
    shown = sum(samples.ids[row].as_py() in pictures.uris for row in selection.rows())
    return WrittenReport(path, len(html.encode("utf-8", "replace")), shown, notes)


def _choose(
    samples: ScoredSamples, ranked: Sequence[ClassFacts], parts: ReportParts
) -> tuple[Selection, Pictures, Sequence[str]]:
    """Samples, their pictures as far as they fit, and sentences about pictures left out."""
    limits = Limits()
    selection = select(samples, ranked, limits)
    if parts.images is None:
        return selection, NO_PICTURES, ()
    ids = {row: samples.ids[row].as_py() for row in dict.fromkeys(selection.rows())}
    large = {ids[row] for row in selection.doubtful}
    pictures = read_pictures(parts.images, list(ids.values()), large)
    notes = []
    if pictures.problems:
        first = next(iter(pictures.problems.items()))
        notes.append(
            f"{count_of(len(pictures.problems), 'picture')} cannot be shown, the first is "
            f"{first[0]}: {first[1]}"
        )
    needed = _size(selection, ids, pictures)
    room = PAGE_SHARE * parts.max_mb * MEGABYTE
    if needed <= room:
        return selection, pictures, notes
    wanted = sum(1 for _ in selection.rows())
    factor = room / needed
    while factor > SMALLEST_FACTOR:
        selection = select(samples, ranked, limits.scaled(factor))
        if _size(selection, ids, pictures) <= room:
            break
        factor *= 0.8
    else:
        pictures = NO_PICTURES
    shown = sum(1 for _ in selection.rows()) if pictures.uris else 0
    notes.append(
        f"{shown:,} of {wanted:,} pictures are shown, so that the file stays below "
        f"{parts.max_mb:g} MB (--max-mb)"
    )
    return selection, pictures, notes


def _size(selection: Selection, ids: dict[int, str], pictures: Pictures) -> int:
    return sum(len(pictures.uris.get(ids[row], "")) for row in selection.rows())


def _values(
    scores: ScoreFile,
    samples: ScoredSamples,
    ranked: Sequence[ClassFacts],
    selection: Selection,
    pictures: Pictures,
    parts: ReportParts,
) -> dict[str, Any]:
    """Variables of the template."""
    cards = make_cards(samples, pictures)
    summary = summarise(samples, ranked, selection)
    doubtful = cards(selection.doubtful)
    provenance = scores.provenance
    shown = ranked[:SHOWN_CLASSES]
    labels = Counter(card.label for card in doubtful)
    nearest = Counter(card.nearest for card in doubtful)
    return {
        "name": dataset_name(str(provenance.get("dataset") or "these images")),
        "backbone": provenance.get("backbone"),
        "num_classes": len(ranked),
        "summary": summary,
        "kinds": {
            "doubtful": doubtful[:5],
            "unusual": cards(selection.unusual[:5]),
            "typical": cards(_typical(selection, shown[::-1])),
        },
        "has_pictures": bool(pictures.uris),
        "doubtful": doubtful,
        "cuts": cuts_of(samples),
        "label_options": [(label, samples.name_of(label)) for label in sorted(labels)],
        "nearest_options": [(label, samples.name_of(label)) for label in sorted(nearest)],
        "unusual": cards(selection.unusual),
        "class_rows": class_rows(samples, ranked, summary.scale),
        "num_listed_classes": LISTED_CLASSES,
        "strips": [
            (facts, cards(selection.hardest[facts.label]), cards(selection.easiest[facts.label]))
            for facts in shown
        ],
        "matrix": matrix_of(samples),
        "pairs": selection.pairs,
        "pictured_pairs": [cards(rows) for rows in selection.pictured_pairs],
        "class_name": samples.name_of,
        "map": parts.map,
        "map_data": parts.map.data(samples) if parts.map else None,
        "compared": parts.compared,
        "compared_heights": bar_heights(parts.compared) if parts.compared else [],
        "copies": [cards(copies) for copies in selection.copies],
        "num_copies": len(samples.copy_of) - samples.copy_of.null_count,
        "near": provenance.get("near_duplicates"),
        "facts": describe_provenance(provenance),
        "warnings": provenance.get("warnings", ()),
        "notes": parts.notes,
        "elsewhere": cards(dict.fromkeys(selection.typical_elsewhere())),
        "data": review_data(samples, doubtful, selection, _key(scores, samples)),
    }


def _typical(selection: Selection, ranked: Sequence[ClassFacts]) -> Sequence[int]:
    """The easiest sample of each of the easiest classes."""
    rows = [selection.easiest[each.label][:1] for each in ranked if each.label in selection.easiest]
    return [row for first in rows for row in first][:5]


def _key(scores: ScoreFile, samples: ScoredSamples) -> str:
    """The fingerprint of the dataset, or that of the sample ids where it is unknown."""
    fingerprint = scores.provenance.get("fingerprint")
    if fingerprint:
        return str(fingerprint)
    digest = hashlib.sha256()
    for sample_id in samples.ids.to_pylist():
        digest.update(f"{sample_id}\n".encode())
    return digest.hexdigest()
