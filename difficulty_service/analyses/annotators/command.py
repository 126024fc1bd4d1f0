"""`difficulty annotators`: features or scores and labels of several people in, a consensus out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from difficulty_service.cli.console import out as console
from difficulty_service.cli.console import print_table, print_warnings
from difficulty_service.cli.written_files import clean_command, require_writable
from difficulty_service.settings.command_options import listed_names

if TYPE_CHECKING:
    from difficulty_service.analyses.annotators.scores import AnnotatorReport

SHOWN = 10
"""Number of samples that are listed, and twice as many annotators."""


def annotators(
    source: Annotated[Path, Parameter("FEATURES|SCORES")],
    labels: Annotated[str, Parameter("LABELS")],
    /,
    *,
    out: Path,
    columns: Annotated[list[str] | None, Parameter(metavar="COLUMN,...")] = None,
    annotator_column: str = "annotator",
    label_column: str = "label",
    id_column: str | None = None,
    sure: Annotated[float, Parameter(validator=Number(gt=0, lte=1))] = 0.95,
    count_given: bool = False,
    marks: Path | None = None,
) -> None:
    """Finds a consensus of several labels per sample, and how often each annotator errs.

    The features are one more witness. The output is also a file of marks: `difficulty clean`
    relabels where the consensus is sure and differs from the given label. A file of the annotators
    is written beside it.

    Args:
        source: Features, which tell a little more, or a score file.
        labels: Table with a column for each annotator, or a row for each label: .parquet, .csv or
            .jsonl, or a glob of such files.
        out: List of samples to write, ending in .csv, .parquet or .jsonl.
        columns: Columns of one annotator each, such as rand1,rand2 or rand*; default: all but
            sample_id, unless each row is one label.
        annotator_column: Column that says who gave the label of a row.
        label_column: Column with the label of a row.
        id_column: Column with the sample ids; default: sample_id, or else detected.
        sure: Probability from which a consensus relabels a sample; below it, another label helps.
        count_given: Count the label of the dataset as one more annotator.
        marks: Marks of people, which show who errs and calibrate the probabilities.
    """
    from difficulty_service.analyses.annotators.scores import (
        ConsensusOptions,
        judge_annotators,
        open_source,
    )
    from difficulty_service.datasets.label_tables import LabelColumns, open_label_table
    from difficulty_service.marks.files import read_marks

    require_writable([source, Path(labels), marks], tables=[out])
    named = LabelColumns(listed_names(columns or ()), annotator_column, label_column, id_column)
    report = judge_annotators(
        open_source(source),
        open_label_table(labels),
        named,
        ConsensusOptions(sure, count_given, None if marks is None else read_marks(marks, ())),
        out.parent,
    )
    beside = report.save(out)
    report_annotators(report)
    print_warnings(report.warnings)
    console.print(f"\nthe consensus is in {out}, the annotators are in {beside}")
    if len(report.marks):
        console.print(f"to relabel: {clean_command(source, out)} --dry-run")


def report_annotators(report: "AnnotatorReport") -> None:
    """Prints the annotators, how far they agree, and which samples are worth another label."""
    from difficulty_service.base.tables import to_numpy
    from difficulty_service.base.wording import count_of

    console.print("share of labels that agree with the others, the consensus and the features:")
    rows = sorted(report.annotators.to_pylist(), key=lambda row: -row["error_rate"])
    print_table(
        ("annotator", "labels", "others", "consensus", "features", "wrong", "95 %"),
        [
            (
                row["annotator"],
                row["labels"],
                *(
                    "-" if row[f"agreement_with_{name}"] is None else row[f"agreement_with_{name}"]
                    for name in ("others", "consensus", "features")
                ),
                f"{row['error_rate']:.1%}",
                f"{row['error_low']:.1%} to {row['error_high']:.1%}",
            )
            for row in rows[: 2 * SHOWN]
        ],
        shorten="annotator",
    )
    if len(rows) > 2 * SHOWN:
        console.print(f"{2 * SHOWN} of {len(rows):,} annotators, those who err most first")
    if report.alpha is not None:
        console.print(
            f"\nKrippendorff's alpha of all labels {report.alpha:.3f} (1 is agreement, 0 chance)"
        )
    samples = report.samples
    another = samples.filter(samples["another_label"])
    console.print(
        f"{count_of(len(report.marks), 'sample')} of {len(samples):,} to relabel, "
        f"{len(another):,} worth another label"
    )
    if report.num_verified:
        console.print(
            f"by {count_of(report.num_verified, 'verified sample')}, probabilities are taken to "
            f"the power {report.model.sharpness:.2f}"
        )
    shown = another.sort_by([("gain", "descending"), ("sample_id", "ascending")])[:SHOWN]
    if len(shown) and to_numpy(shown["gain"].combine_chunks()).max() > 0:
        console.print("\nworth another label, the most that it may change first:")
        print_table(
            ("sample", "given", "consensus", "probability", "labels", "gain"),
            [
                (
                    row["sample_id"],
                    row["given_label"],
                    row["consensus_label"] or "-",
                    "-" if row["p_consensus"] is None else row["p_consensus"],
                    row["labels"],
                    row["gain"],
                )
                for row in shown.to_pylist()
            ],
            shorten="sample",
        )
