"""From a score file to a report: facts, pictures and the page."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from difficulty_service.base.errors import AuditError, ReportError, Setting, Spell, as_keyword
from difficulty_service.base.files import replacing
from difficulty_service.base.wording import count_of
from difficulty_service.pages.cards import (
    Pictures,
    dataset_name,
    make_cards,
    read_pictures,
    with_suggestion,
)
from difficulty_service.pages.html_page import render_template, require_page_file
from difficulty_service.pages.origin import describe_provenance
from difficulty_service.pages.stored_images import ImageSource
from difficulty_service.reports.card_columns import card_columns
from difficulty_service.reports.compared import ComparedColumn, bar_heights
from difficulty_service.reports.copies import copies_data
from difficulty_service.reports.map import ImageMap
from difficulty_service.reports.map_columns import colours_by, packed_column
from difficulty_service.reports.map_points import MapPoints
from difficulty_service.reports.sample_columns import SampleColumn, SampleColumns
from difficulty_service.reports.sections import (
    LISTED_CLASSES,
    SHOWN_CLASSES,
    ClassFacts,
    Order,
    ReportLimits,
    ShownSamples,
    class_rows,
    cuts_of,
    faulty_rows,
    matrix_of,
    order_for,
    rank_classes,
    review_data,
    select,
    summarise,
)
from difficulty_service.scores.explanation import (
    HARD_SHARE,
    MIN_HARD,
    Explanation,
    Finding,
    GroupFindings,
    read_explanation,
    scored_by,
)
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.samples import ScoredSamples, to_samples
from difficulty_service.scores.score_columns import FAULT_COLUMN
from difficulty_service.scoring.image_faults import count_faults

LISTED_GROUPS, LISTED_FINDINGS = 20, 5
"""Number of classes in the table besides all together, and of phrases of each."""

SMALLEST_CLASS = round(MIN_HARD / HARD_SHARE)
"""Number of samples of a class that is examined on its own."""


@dataclass(frozen=True)
class ShownExplanation:
    """The findings that the page shows.

    Attributes:
        groups: What the table lists: all classes together and then the classes with the largest
            effects, each where something stands out.
    """

    backbone: str
    num_attributes: int
    together: GroupFindings
    groups: list[GroupFindings]
    num_classes: int
    num_silent: int
    num_unlisted: int
    num_small: int


def find_explanation(
    path: Path, provenance: Provenance
) -> tuple[ShownExplanation | None, tuple[str, ...]]:
    """The explanation of a score file, if there is one; a warning where it cannot be shown."""
    try:
        values = read_explanation(path)
        if values is None:
            return None, ()
        if values["fingerprint"] != provenance.fingerprint:
            return None, (
                f"{path.name} is not shown: it explains the scores of a dataset with another "
                "fingerprint; run `difficulty explain` again",
            )
        if values["scores"] != (scored := scored_by(provenance)):
            named = values["scores"]["backbone"], scored["backbone"]
            network = "other weights" if named[0] == named[1] else f"the backbone {named[0]}"
            return None, (
                f"{path.name} is not shown: it explains scores of {network}, and these are those "
                f"of {named[1]}; run `difficulty explain` again",
            )
        return _to_shown(str(values["backbone"]), _to_explanation(values)), ()
    except AuditError as error:
        return None, (f"there is no explanation in words: {error}",)
    except (AttributeError, IndexError, KeyError, TypeError):
        return None, (
            f"{path.name} is not shown: it lacks values of an explanation; run `difficulty "
            "explain` again",
        )


def _to_explanation(values: Mapping[str, Any]) -> Explanation:
    groups = [
        GroupFindings(**{**group, "findings": [Finding(**each) for each in group["findings"]]})
        for group in values["groups"]
    ]
    return Explanation(
        values["num_attributes"], values["num_tests"], groups, values["small_classes"]
    )


def _to_shown(backbone: str, explanation: Explanation) -> ShownExplanation:
    together, classes = explanation.groups[0], explanation.groups[1:]
    found = [group for group in classes if group.findings]
    found.sort(key=lambda group: -abs(group.findings[0].effect))
    return ShownExplanation(
        backbone=backbone,
        num_attributes=explanation.num_attributes,
        together=together,
        groups=[*([together] if together.findings else []), *found[:LISTED_GROUPS]],
        num_classes=len(classes),
        num_silent=len(classes) - len(found),
        num_unlisted=max(0, len(found) - LISTED_GROUPS),
        num_small=explanation.small_classes,
    )


STYLES = ("base.css", "report.css", "review.css")
SCRIPTS = ("theme.js", "report.js", "map.js")
REVIEW_SCRIPTS = ("theme.js", "parent_storage.js", "report.js")
"""Scripts of the page that has the samples to check alone."""

NO_OTHER_SECTIONS: Mapping[str, Any] = {
    **dict.fromkeys(("doubtful", "unusual", "pairs", "pictured_pairs", "copies", "faulty"), ()),
    "hardest": {},
    "easiest": {},
}
"""What a selection has in place of the sections that this page lacks."""


MEGABYTE = 1_000_000
DEFAULT_MAX_MB = 15.0

SMALLEST_FACTOR = 0.002
SHRINKING = 0.8
"""Factors of the number of pictures: the smallest, and the steps towards it."""

LENGTH_OF_NOTE = 300
"""Bytes for the sentence about pictures that were left out."""


@dataclass(frozen=True)
class ReportParts:
    """What a report shows besides the scores.

    Attributes:
        max_mb: Largest size of the file in millions of bytes; pictures are left out beyond it.
        order: Order of the samples to check.
        columns: Columns beside the scores, by which the samples to check are filtered.
        notes: Sentences that the page shows, such as why there are no pictures.
        spell: Writes an option as its caller does.
    """

    images: ImageSource | None = None
    compared: ComparedColumn | None = None
    map: ImageMap | None = None
    explained: ShownExplanation | None = None
    max_mb: float = DEFAULT_MAX_MB
    notes: Sequence[str] = ()
    order: Order = "doubtful"
    columns: SampleColumns = field(default_factory=dict)
    spell: Spell = as_keyword


@dataclass(frozen=True)
class RenderedPage:
    """A page that is on no disk."""

    html: bytes
    num_pictures: int
    warnings: Sequence[str]


@dataclass(frozen=True)
class WrittenReport:
    """A report on disk."""

    path: Path
    num_bytes: int
    num_pictures: int
    warnings: Sequence[str]


def require_report_file(path: Path, max_mb: float = DEFAULT_MAX_MB) -> None:
    """Raises ReportError where `write_report` could not write to a path."""
    require_page_file(path)
    require_size(max_mb)


def require_size(max_mb: float) -> None:
    """Raises ReportError for a size that no page fits into."""
    if not max_mb > 0:
        raise ReportError(
            f"a report of {max_mb:g} MB would hold nothing",
            "name a size above 0, such as 15",
            parameter="max_mb",
        )


def write_report(path: Path, scores: ScoreFile, parts: ReportParts) -> WrittenReport:
    """Writes a report; the file appears whole or not at all."""
    require_report_file(path, parts.max_mb)
    page = render_report(scores, parts)
    with replacing(path) as temporary:
        temporary.write_bytes(page.html)
    return WrittenReport(path, len(page.html), page.num_pictures, page.warnings)


def render_report(
    scores: ScoreFile, parts: ReportParts, *, only_review: bool = False
) -> RenderedPage:
    """Renders a report, or a page with the samples to check alone, whose parent keeps the marks."""
    samples = to_samples(scores)
    parts = replace(parts, order=order_for(samples, parts.order))
    ranked = rank_classes(samples)
    if not ranked:
        raise ReportError(
            "none of the samples has a score, so there is nothing to report",
            "score the dataset again; the warnings say why there are no scores",
        )

    def choose(limits: ReportLimits) -> ShownSamples:
        selection = _select(scores, samples, ranked, limits, parts.order)
        return replace(selection, **NO_OTHER_SECTIONS) if only_review else selection

    template = "review_page.html.j2" if only_review else "report.html.j2"
    scripts = REVIEW_SCRIPTS if only_review else SCRIPTS
    selection = choose(ReportLimits())
    pictures = _read(samples, selection, parts.images)
    notes = _problems(pictures)

    def render() -> bytes:
        shown = replace(parts, notes=(*parts.notes, *notes))
        values = _values(scores, samples, ranked, selection, pictures, shown)
        page = render_template(template, values, styles=STYLES, scripts=scripts)
        return page.encode("utf-8", "replace")

    page = render()
    largest = int(parts.max_mb * MEGABYTE)
    if len(page) > largest and pictures.uris:
        wanted = _num_shown(samples, selection, pictures)
        room = largest - (len(page) - _size(samples, selection, pictures)) - LENGTH_OF_NOTE
        selection = _fewer(samples, selection, pictures, room, choose)
        if _size(samples, selection, pictures) > room:
            pictures = replace(pictures, uris={})
        shown = _num_shown(samples, selection, pictures)
        notes = (
            *notes,
            f"{shown:,} of {wanted:,} pictures are shown, so that the file stays below "
            f"{parts.max_mb:g} MB ({parts.spell(Setting('max_mb'))})",
        )
        page = render()
    return RenderedPage(page, _num_shown(samples, selection, pictures), notes)


def _read(samples: ScoredSamples, selection: ShownSamples, source: ImageSource | None) -> Pictures:
    if source is None:
        return Pictures({}, {})
    ids = {row: samples.ids[row].as_py() for row in dict.fromkeys(selection.rows())}
    return read_pictures(source, list(ids.values()), {ids[row] for row in selection.to_check})


def _problems(pictures: Pictures) -> tuple[str, ...]:
    """A sentence about the images that cannot be read, if there are any."""
    if not pictures.problems:
        return ()
    sample_id, reason = next(iter(pictures.problems.items()))
    number = count_of(len(pictures.problems), "picture")
    return (f"{number} cannot be shown, the first is {sample_id}: {reason}",)


def _select(
    scores: ScoreFile,
    samples: ScoredSamples,
    ranked: Sequence[ClassFacts],
    limits: ReportLimits,
    order: Order,
) -> ShownSamples:
    chosen = select(samples, ranked, limits, order)
    return replace(chosen, faulty=faulty_rows(scores.table)[: limits.faulty])


def _fewer(
    samples: ScoredSamples,
    selection: ShownSamples,
    pictures: Pictures,
    room: int,
    smaller: Callable[[ReportLimits], ShownSamples],
) -> ShownSamples:
    """A selection with fewer samples of every kind, whose pictures take at most `room` bytes.

    Where even the smallest selection takes more, it is returned.
    """
    factor = max(0.0, room / _size(samples, selection, pictures))
    while factor > SMALLEST_FACTOR:
        selection = smaller(ReportLimits().scaled(factor))
        if _size(samples, selection, pictures) <= room:
            break
        factor *= SHRINKING
    return selection


def _uris(samples: ScoredSamples, selection: ShownSamples, pictures: Pictures) -> Iterator[str]:
    """The data URI of every picture on the page, as often as it occurs."""
    for row in selection.rows():
        uri = pictures.uris.get(samples.ids[row].as_py())
        if uri is not None:
            yield uri


def _size(samples: ScoredSamples, selection: ShownSamples, pictures: Pictures) -> int:
    return sum(map(len, _uris(samples, selection, pictures)))


def _num_shown(samples: ScoredSamples, selection: ShownSamples, pictures: Pictures) -> int:
    return sum(1 for _ in _uris(samples, selection, pictures))


def _values(
    scores: ScoreFile,
    samples: ScoredSamples,
    ranked: Sequence[ClassFacts],
    selection: ShownSamples,
    pictures: Pictures,
    parts: ReportParts,
) -> dict[str, Any]:
    """Variables of the template."""
    cards = make_cards(samples, pictures)
    summary = summarise(samples, ranked, selection)
    to_check = [with_suggestion(card, samples) for card in cards(selection.to_check)]
    provenance = scores.provenance
    coloured = [column for column in parts.columns.values() if colours_by(column)]
    beside = card_columns(parts.columns, selection.to_check)
    shown = ranked[:SHOWN_CLASSES]
    on_page = Counter((card.label, card.nearest) for card in to_check if card.is_doubtful)
    labels = Counter(card.label for card in to_check)
    nearest = Counter(card.nearest for card in to_check)
    return {
        "name": dataset_name(provenance.dataset or f"these {provenance.noun}s"),
        "backbone": provenance.backbone,
        "num_classes": len(ranked),
        "summary": summary,
        "num_unread": provenance.num_bad_images or 0,
        "faults": count_faults(scores),
        "measure": samples.measure,
        "new_classes": samples.takes_new_classes,
        "mark_kinds": samples.mark_kinds,
        "kinds": [cards(rows) for rows in selection.kinds],
        "has_pictures": bool(pictures.uris),
        "to_check": to_check,
        "order": parts.order,
        "cuts": cuts_of(samples),
        "label_options": [(label, samples.name_of(label)) for label in sorted(labels)],
        "nearest_options": [(label, samples.name_of(label)) for label in sorted(nearest)],
        "columns": beside,
        # Without classes, the samples to check are these.
        "unusual": cards(selection.unusual) if samples.compares_classes else [],
        "faulty": [
            (card, scores.table[FAULT_COLUMN][card.row].as_py()) for card in cards(selection.faulty)
        ],
        "class_rows": class_rows(samples, ranked, summary.scale),
        "num_listed_classes": LISTED_CLASSES,
        "strips": [
            (facts, cards(selection.hardest[facts.label]), cards(selection.easiest[facts.label]))
            for facts in shown
            if facts.label in selection.hardest
        ],
        "matrix": matrix_of(samples),
        "on_page": on_page,
        "pairs": selection.pairs,
        "pictured_pairs": [cards(rows) for rows in selection.pictured_pairs],
        "class_name": samples.name_of,
        "map": parts.map,
        "map_data": _packed(parts.map, samples, coloured) if parts.map else None,
        "coloured": [column.name for column in coloured],
        "explained": parts.explained,
        "num_listed_findings": LISTED_FINDINGS,
        "smallest_explained_class": SMALLEST_CLASS,
        "compared": parts.compared,
        "compared_heights": bar_heights(parts.compared) if parts.compared else [],
        "copies": [(group, cards(group.rows)) for group in selection.copies],
        "num_copy_groups": len(samples.copies),
        "num_copied": sum(map(len, samples.copies)),
        "num_conflicting": samples.num_conflicting,
        "near": provenance.near_duplicates,
        "facts": describe_provenance(provenance),
        "noun": provenance.noun,
        "warnings": provenance.warnings,
        "notes": parts.notes,
        "elsewhere": cards(dict.fromkeys(selection.typical_elsewhere())),
        "data": review_data(
            samples, to_check, selection, _key(scores, samples, parts.order), parts.order
        )
        | {
            "noun": provenance.noun,
            "columns": [column.data for column in beside],
            "copies": copies_data(samples, selection.copies),
        },
    }


def _key(scores: ScoreFile, samples: ScoredSamples, order: Order) -> str:
    """Where a browser keeps the marks: by the dataset, what was decided about it, and the order.

    A dataset without a fingerprint is known by its sample ids. The first round in the usual order
    has the fingerprint alone.
    """
    known = scores.provenance
    key = known.fingerprint
    if key is None:
        digest = hashlib.sha256()
        for sample_id in samples.ids.to_pylist():
            digest.update(f"{sample_id}\n".encode())
        key = digest.hexdigest()
    rounds = [f"{mark}-{number}" for mark, number in sorted((known.marks or {}).items())]
    if known.made_labels is not None:  # other labels of the same samples
        rounds.append(hashlib.sha256(known.made_labels.model_dump_json().encode()).hexdigest()[:8])
    return "-".join([key, *rounds, *([] if order == "doubtful" else [order])])


def _packed(
    drawn: ImageMap, samples: ScoredSamples, columns: Iterable[SampleColumn]
) -> dict[str, Any]:
    """The points of the map as the page's script reads them, with columns that colour them."""
    points = MapPoints.of(drawn, samples).packed_json(samples, drawn)
    return points | {"beside": [packed_column(column.take(drawn.rows)) for column in columns]}
