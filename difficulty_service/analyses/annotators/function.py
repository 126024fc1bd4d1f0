"""`annotators`: features or scores and several labels per sample in, a consensus out."""

from collections.abc import Sequence
from pathlib import Path

from difficulty_service.analyses.annotators.scores import (
    SURE,
    AnnotatorReport,
    ConsensusOptions,
    judge_annotators,
    open_source,
    require_report_file,
)
from difficulty_service.base.errors import ConfigError
from difficulty_service.datasets.label_tables import (
    ANNOTATOR_COLUMN,
    LABEL_COLUMN,
    LabelColumns,
    open_label_table,
)
from difficulty_service.interface.score import MarksOf, marks_of
from difficulty_service.interface.scores import Scores, warn
from difficulty_service.interface.tables import Frame, to_table
from difficulty_service.scores.file import ScoreFile


def annotators(
    source: Scores | str | Path,
    labels: str | Path | Frame,
    *,
    columns: Sequence[str] = (),
    annotator_column: str = ANNOTATOR_COLUMN,
    label_column: str = LABEL_COLUMN,
    id_column: str | None = None,
    sure: float = SURE,
    count_given: bool = False,
    marks: MarksOf | None = None,
    out: str | Path | None = None,
) -> AnnotatorReport:
    """Says what several annotators and the features together think of each sample.

    Args:
        source: Features, which tell a little more, or scores: a folder or file of features, scores
            in memory, or the path of a score file.
        labels: Labels of annotators, in a file, the files of a glob, or a table as `join` takes it.
        columns: Columns of one annotator each; wildcards such as `rand*` are allowed. Without
            any, the table has a row for each label, or all columns but `sample_id` are used.
        annotator_column: Column that says who gave the label of a row.
        label_column: Column with that label.
        id_column: Column with the ids of the samples; None for `sample_id`, or else what has them.
        sure: Probability from which a consensus relabels a sample; below it, another label helps.
        count_given: Whether the label of the dataset counts as that of one more annotator.
        marks: What people decided about some samples: it tells who errs, and how far to trust the
            probabilities.
        out: File to write, which ends in .parquet, .csv or .jsonl, and beside it one of the
            annotators; None for none.

    Returns:
        `samples`, `annotators` and `marks` as Arrow tables, and `alpha`. `ds.score` and `difficulty
        clean` take the marks.

    Raises:
        ConfigError: `sure` is not a probability.
        DatasetError: The labels cannot be read, or none is of a sample and a class.
        DifficultyError: As for `score`, where features or marks cannot be used.
    """
    if not 0 < sure <= 1:
        raise ConfigError(f"sure is {sure}", "expected above 0 and at most 1", parameter="sure")
    if out is not None:
        require_report_file(Path(out))
    named = LabelColumns(tuple(columns), annotator_column, label_column, id_column)
    given = labels
    if not isinstance(labels, str | Path):
        given = to_table(labels, "the table of labels", "labels")
    report = judge_annotators(
        ScoreFile(source.table, source.provenance)
        if isinstance(source, Scores)
        else open_source(Path(source)),
        open_label_table(given),
        named,
        ConsensusOptions(sure, count_given, None if marks is None else marks_of(marks)),
        None if out is None else Path(out).parent,
    )
    warn(report.warnings)
    if out is not None:
        report.save(Path(out))
    return report
