"""`difficulty diff`: two versions of a dataset in, what differs between them out."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from difficulty_service.analyses.versions.comparison import CHANGE_KINDS, DiffResult
from difficulty_service.cli.console import out as console
from difficulty_service.cli.console import (
    print_json,
    print_page,
    print_table,
    print_warnings,
    without,
)
from difficulty_service.cli.progress import exit_when_interrupted
from difficulty_service.cli.score_result import Limit, require_below
from difficulty_service.cli.written_files import require_writable
from difficulty_service.cli.wrong_call import WrongCall, as_option, options
from difficulty_service.settings.options import DiffOptions, JsonOption

if TYPE_CHECKING:
    from difficulty_service.analyses.versions.changes import ChangeReport
    from difficulty_service.scoring.splits import Split

SHOWN = 10
"""Number of changes and of classes that are listed."""

RELABELLED = "relabelled"


def diff(
    old: Annotated[Path, Parameter("OLD")],
    new: Annotated[Path, Parameter("NEW")],
    /,
    *,
    out: Path | None = None,
    report: Path | None = None,
    fail_above: Annotated[Sequence[str], Parameter(metavar="'KIND: NUMBER'")] = (),
    images: Annotated[str | None, Parameter(metavar="DATASET")] = None,
    shift: DiffOptions = DiffOptions(),
    output: JsonOption = JsonOption(),
) -> None:
    """Finds what differs between two versions of a dataset.

    Samples are matched by their contents and ids: added, removed, moved to another id, changed
    under the same id, and relabelled ones. It tells how far classes moved, and how far they would
    by chance.

    Args:
        old: Old version: features, a score file (its samples and labels) with its features beside
            it, or Gaussians (.safetensors).
        new: New version, of the same kind and backbone; a score file also tells which new samples
            are hard.
        out: Table of all changes to write, ending in .parquet, .csv or .jsonl.
        report: Page to write: new and hard samples, relabelled ones, and where classes moved.
        fail_above: Exit with code 3 above a number or percentage of samples added, removed,
            changed, moved or relabelled; repeatable.
        images: Dataset with the images of the new version, for the page; default: as named by the
            features.
    """
    limits = [Limit.parse(text, CHANGE_KINDS) for text in fail_above]
    if old.resolve() == new.resolve():
        raise WrongCall("the same version is given twice")
    require_writable([old, new], tables=[out], pages=[report])
    if images is not None and report is None:
        raise WrongCall("--images needs a page: --report NAME.html")
    if is_gaussians(old) != is_gaussians(new):
        raise WrongCall("name features of both versions, or Gaussians of both")
    if is_gaussians(old):
        useless = shift.model_fields_set & {"permutations", "seed"}
        given = [("--out", out), ("--report", report), ("--fail-above", limits or None)]
        named = [name for name, value in given if value is not None]
        named += [options(useless)] if useless else []
        if named:
            raise WrongCall(f"{', '.join(named)} needs features, and Gaussians are given")
        found, splits = compare_gaussians(old, new), None
    else:
        splits = open_versions(old, new)
        with exit_when_interrupted("stopped; nothing is written"):
            found = compare_versions(splits, new, shift)
    print_warnings(found.warnings)
    with without(*([console] if output.json_ else [])):
        report_changes(found)
        if out is not None:
            found.save(out)
            console.print(f"the changes are in {out}")
        if report is not None and splits is not None:
            from difficulty_service.analyses.versions.page import write_change_page

            print_warnings(write_change_page(report, found, splits, images, as_option))
            print_page(report)
    result = DiffResult.of(found)
    if output.json_:
        print_json(result)
    require_below(limits, {f"{found.new}: ": result})


def is_gaussians(path: Path) -> bool:
    """Whether a path is named like a file of Gaussians."""
    return path.suffix == ".safetensors"


def compare_gaussians(old: Path, new: Path) -> "ChangeReport":
    """What the moments of two files tell."""
    from difficulty_service.analyses.versions.changes import compare_moments
    from difficulty_service.scoring.fitted_gaussians import FittedGaussians

    return compare_moments(FittedGaussians.load(old), FittedGaussians.load(new), [old, new])


def open_versions(old: Path, new: Path) -> "tuple[Split, Split]":
    """Both versions."""
    from difficulty_service.scoring.splits import open_split

    first = open_split(old)
    return first, open_split(new, first)


def compare_versions(
    splits: "tuple[Split, Split]", new: Path, shift: DiffOptions
) -> "ChangeReport":
    """What differs between two versions, with the difficulty of new samples where it is known."""
    from difficulty_service.analyses.versions.changes import find_changes
    from difficulty_service.scores.measures import read_measure

    scores = None if splits[1].given is None else read_measure(new, None)
    return find_changes(*splits, shift.permutations, shift.seed, scores)


def report_changes(found: "ChangeReport") -> None:
    """Prints how many samples differ and how, the first of them, and where classes moved."""
    from difficulty_service.base.wording import count_of

    console.print(
        f"{found.old}: {count_of(found.num_old, found.noun)}; "
        f"{found.new}: {count_of(found.num_new, found.noun)}"
    )
    if found.counts is not None:
        numbers = {**found.counts, RELABELLED: found.relabelled or 0}
        console.print(", ".join(f"{numbers[kind]:,} {kind}" for kind in CHANGE_KINDS))
    if found.separability is not None:
        console.print(
            f"a classifier tells {found.separability:.0%} of all pairs of a new and an old "
            f"{found.noun} apart; 50% is chance"
        )
    report_rows(found)
    report_classes(found)


def report_rows(found: "ChangeReport") -> None:
    """Prints the first changes."""
    from difficulty_service.cli.score_report import class_text

    if found.table is None or not len(found.table):
        return
    rows = [
        (
            RELABELLED if row["kind"] == "kept" else row["kind"],
            row["old_id"] or "-",
            class_text(row["old_label"] or "-"),
            row["new_id"] or "-",
            class_text(row["new_label"] or "-"),
            as_number(row["novelty"]),
            as_number(row["score"]),
        )
        for row in found.table[:SHOWN].to_pylist()
    ]
    columns = ("change", "old", "label", "new", "label there", "novelty", "difficulty")
    print_table(columns, rows, shorten="old")
    if len(rows) < len(found.table):
        console.print(f"{len(rows)} of {len(found.table):,} changes")


def report_classes(found: "ChangeReport") -> None:
    """Prints the classes that moved most, and all samples together."""
    from difficulty_service.cli.score_report import class_text

    *classes, everyone = found.classes.to_pylist()
    moved = sorted(classes, key=lambda row: -1.0 if row["kl"] is None else row["kl"], reverse=True)
    rows = [
        (
            class_text(row["class"]) or f"all {found.noun}s",
            row["old"],
            row["new"],
            as_number(row["frechet"]),
            as_number(row["kl"]),
            as_range(row["kl_by_chance_low"], row["kl_by_chance_high"]),
            as_number(row["p_value"]),
        )
        for row in [*moved[:SHOWN], everyone]
    ]
    print_table(("class", "old", "new", "Fréchet", "KL", "by chance", "p"), rows)
    if len(moved) > SHOWN:
        console.print(f"the {SHOWN} of {len(moved):,} classes that moved most")


def as_number(value: float | None) -> str:
    """Three digits, or nothing."""
    return "" if value is None else f"{value:.3g}"


def as_range(low: float | None, high: float | None) -> str:
    """Both ends, or nothing."""
    return "" if low is None else f"{as_number(low)} to {as_number(high)}"
