"""`difficulty tags`: features and the tags of their samples in, a score for each tag out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from difficulty_service.cli.console import out as console
from difficulty_service.cli.console import print_table, print_warnings
from difficulty_service.cli.written_files import require_writable
from difficulty_service.settings.command_options import listed_names

if TYPE_CHECKING:
    from difficulty_service.scoring.judged_tags import TagReport

SHOWN = 20
"""Number of tags that are listed."""


def tags(
    features: Annotated[Path, Parameter("FEATURES")],
    table: Annotated[str, Parameter("TABLE")],
    /,
    *,
    out: Path,
    columns: Annotated[list[str] | None, Parameter(metavar="COLUMN,...")] = None,
    separator: str | None = None,
    id_column: str | None = None,
    least: Annotated[float, Parameter(validator=Number(gt=0, lte=1))] = 0.05,
) -> None:
    """Finds wrong and missing tags of samples with several tags.

    Each tag is judged by the features and the other tags of its sample. The score file has a row
    for each given tag, and for each that may be missing, to report, explore and clean. A table of
    all tags is written beside it.

    Args:
        features: Features of `difficulty extract`, with or without labels.
        table: Table with the tags of each sample, such as the dataset itself (.parquet, .csv, .tsv,
            .jsonl), or COCO without boxes (.json).
        out: Score file to write, ending in .parquet, .csv or .jsonl.
        columns: Column of tags, as lists or texts, or several 0/1 columns such as cat,dog or has_*;
            default: tags, or else labels.
        separator: Separator between the tags of a text; default: a vertical bar.
        id_column: Column with the sample ids; default: sample_id, or else detected.
        least: Smallest probability with which a missing tag gets a row.
    """
    from difficulty_service.analyses.tags.scores import score_tags, tags_of_samples
    from difficulty_service.datasets.tags import TagColumns, open_tags
    from difficulty_service.features.array_files import open_features
    from difficulty_service.scoring.class_evidence import samples_of_features

    require_writable([features, Path(table)], others=[out])
    store = open_features(features)
    named = TagColumns(listed_names(columns or ()), separator, id_column)
    given = tags_of_samples(open_tags(table, named), samples_of_features(store).sample_ids)
    report = score_tags(store, given, out, least=least)
    report_tags(report, out)


def report_tags(report: "TagReport", out: Path, page: Path | None = None) -> None:
    """Prints how many tags are wrong and missing, which are so most often, and where it all is.

    Args:
        page: The page with the images; None where there is none yet.
    """
    from difficulty_service.analyses.tags.scores import by_tag_file
    from difficulty_service.base.wording import count_of
    from difficulty_service.scores.tiers import ALMOST_CERTAIN

    given = int(report.total("given"))
    for kind, of in (("wrong", f"{given:,} given tags"), ("missing", "all other tags")):
        number, certain = (
            int(report.total(f"{tier}_{kind}")) for tier in ("probably", "almost_certainly")
        )
        console.print(
            f"{number:,} of {of} {'is' if number == 1 else 'are'} probably {kind} (p_wrong above "
            f"1/2), {certain:,} almost certainly (above {ALMOST_CERTAIN:g}); "
            f"about {report.total(kind):,.0f} are expected to be"
        )
    console.print(
        f"{count_of(len(report.tags), 'tag')} of {count_of(report.num_samples, 'sample')}, the "
        "largest numbers of expected errors first:"
    )
    rows = [row for row in report.tags.to_pylist() if row["wrong"] is not None]
    rows.sort(key=lambda row: -(row["wrong"] + row["missing"]))
    print_table(
        ("tag", "given", "wrong", "probably", "missing", "probably"),
        [
            (
                row["tag"],
                row["given"],
                f"{row['wrong']:.1f}",
                row["probably_wrong"],
                f"{row['missing']:.1f}",
                row["probably_missing"],
            )
            for row in rows[:SHOWN]
        ],
        shorten="tag",
    )
    print_warnings(report.warnings)
    look = f"to look at them: difficulty report {out} --out tags.html"
    console.print(
        f"\nthe decisions are in {out}, all tags in {by_tag_file(out)}"
        + ("" if page else f"\n{look}"),
    )
