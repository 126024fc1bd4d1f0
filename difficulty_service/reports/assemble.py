"""From a score file and the names of things to a report: finds images, columns and features."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from difficulty_service.base.errors import DifficultyError, ReportError, Setting, Spell, as_keyword
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.features.description import is_store
from difficulty_service.features.store import open_store
from difficulty_service.pages.stored_images import ImageSource, match_images, open_images
from difficulty_service.reports.compared import ComparedColumn, compare
from difficulty_service.reports.joined_tables import (
    NOTHING_JOINED,
    JoinedColumns,
    JoinedDataset,
    TableSource,
    join_tables,
    read_dataset_columns,
)
from difficulty_service.reports.map import ImageMap, draw_map
from difficulty_service.reports.sample_columns import SampleColumns, fault_columns, with_values
from difficulty_service.reports.sections import Order
from difficulty_service.reports.tsne import has_tsne
from difficulty_service.reports.writing import (
    DEFAULT_MAX_MB,
    RenderedPage,
    ReportParts,
    WrittenReport,
    find_explanation,
    render_report,
    require_report_file,
    require_size,
    write_report,
)
from difficulty_service.scores.file import ScoreFile, read_score_schema, read_scores
from difficulty_service.scores.samples import columns_to_read, to_samples
from difficulty_service.scores.score_columns import COMPUTED_BY, absent_column


@dataclass(frozen=True)
class ReportOptions:
    """What a report shows besides the scores.

    Attributes:
        images: The dataset or its location; None for the one that the scores name, without
            pictures where that is gone.
        compare: Column of the score file, or of a dataset that is a table; None for none.
        max_mb: Largest size of the file in millions of bytes; pictures are left out beyond it.
        features: Folder of the features for a map; None for no map.
        order: Order of the samples to check.
        explanation: File of `difficulty explain`, which may be missing; None for none.
        columns: Tables with columns to filter by, as `TableSource.parse` reads them.
        spell: Writes an option as the caller does.
    """

    images: str | Dataset | None = None
    reading: DatasetOptions = field(default_factory=DatasetOptions)
    compare: str | None = None
    max_mb: float = DEFAULT_MAX_MB
    features: Path | None = None
    explanation: Path | None = None
    order: Order = "doubtful"
    columns: Sequence[str] = ()
    spell: Spell = as_keyword


def read_reported(path: Path, compared: str | None = None) -> ScoreFile:
    """Reads the columns of a score file that a report needs, and another one if the file has it."""
    others = () if compared is None else (compared,)
    return read_scores(path, columns_to_read(read_score_schema(path).names, *others))


def make_report(scores: ScoreFile, path: Path, options: ReportOptions) -> WrittenReport:
    """Writes the report of a score file; raises DifficultyError where a part is not there."""
    require_report_file(path, options.max_mb)
    parts = _parts(scores, options)
    written = write_report(path, scores, parts)
    warnings = (*parts.notes, *written.warnings)
    if parts.map is not None and not has_tsne():
        warnings += (
            "the map has two directions only; openTSNE, which the extra `map` installs, "
            "separates the classes better",
        )
    return replace(written, warnings=warnings)


def make_review(scores: ScoreFile, options: ReportOptions, columns: SampleColumns) -> RenderedPage:
    """Renders the samples to check alone, for a notebook; errors as for `make_report`.

    Args:
        columns: Columns to filter by besides those of the options.
    """
    require_size(options.max_mb)
    parts = _parts(scores, options)
    parts = replace(parts, columns={**parts.columns, **columns})
    page = render_report(scores, parts, only_review=True)
    return replace(page, warnings=(*parts.notes, *page.warnings))


def _parts(scores: ScoreFile, options: ReportOptions) -> ReportParts:
    """What the page shows besides the scores."""
    images, notes = _find_images(scores, options)
    explained = None
    if options.explanation is not None:
        explained, problems = find_explanation(options.explanation, scores.provenance)
        notes += problems
    joined = _joined(scores, images, options)
    return ReportParts(
        images=images,
        compared=_compared(scores, images, options),
        map=_map(scores, options),
        explained=explained,
        max_mb=options.max_mb,
        notes=(*notes, *joined.notes),
        order=options.order,
        spell=options.spell,
        columns={**with_values(fault_columns(scores.table)), **joined.columns},
    )


def _find_images(
    scores: ScoreFile, options: ReportOptions
) -> tuple[ImageSource | None, tuple[str, ...]]:
    """The dataset, and sentences about it; None where the scores name one that is gone."""
    ids = scores.table["sample_id"].to_pylist()
    if isinstance(options.images, Dataset):
        source = match_images(scores.provenance, ids, options.images)
        return source, source.warnings
    try:
        source = open_images(scores.provenance, ids, options.images, options.reading)
    except DifficultyError as error:
        if options.images is not None:
            raise
        note = (
            f"there are no pictures: {error.problem}; name the dataset to bring them: "
            "difficulty report … --images DATASET, in Python images=DATASET"
        )
        return None, (note,)
    return source, source.warnings


def _compared(
    scores: ScoreFile, images: ImageSource | None, options: ReportOptions
) -> ComparedColumn | None:
    name = options.compare
    if name is None:
        return None
    samples = to_samples(scores)
    if name in scores.table.column_names:
        columns = {"sample_id": scores.table["sample_id"], "value": scores.table[name]}
        return compare(samples, pa.table(columns), name)
    is_score = name in COMPUTED_BY
    if images is None and not is_score:
        raise ReportError(
            f"the score file has no column {name!r}, and the dataset is not there",
            "name the dataset as ",
            Setting("images"),
            parameter="compare",
        )
    absent = absent_column(
        name, scores.table.column_names, "the score file", ReportError, parameter="compare"
    )
    if images is None:
        raise absent
    id_column = _id_column(scores, options)
    try:
        column = read_dataset_columns(images.dataset, [name], id_column, "compare")
    except ReportError as error:
        raise (absent if is_score else error) from error
    return compare(samples, column.rename_columns(["sample_id", "value"]), name)


def _id_column(scores: ScoreFile, options: ReportOptions) -> str | None:
    recorded = scores.provenance.dataset_options
    return options.reading.id_column or (recorded.id_column if recorded else None)


def _joined(scores: ScoreFile, images: ImageSource | None, options: ReportOptions) -> JoinedColumns:
    if not options.columns:
        return NOTHING_JOINED

    def find() -> Dataset:
        if images is None:
            raise ReportError(
                "the dataset whose columns are wanted is not there",
                "name it as ",
                Setting("images"),
                parameter="columns",
            )
        return images.dataset

    dataset = JoinedDataset(find, _id_column(scores, options))
    sources = list(map(TableSource.parse, options.columns))
    return join_tables(to_samples(scores).ids, sources, dataset)


def _map(scores: ScoreFile, options: ReportOptions) -> ImageMap | None:
    folder = options.features
    if folder is None:
        return None
    if not is_store(folder):
        raise ReportError(
            f"a map needs the features of the images, and {folder} holds none",
            "`difficulty score` keeps them beside the scores when it is given a dataset",
            parameter="map",
        )
    drawn = draw_map(to_samples(scores), open_store(folder))
    if drawn is None:
        raise ReportError(
            f"no map can be drawn of the features in {folder}: it needs ten samples of the "
            "score file",
            parameter="map",
        )
    return drawn
