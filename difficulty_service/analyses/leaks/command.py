"""`difficulty leaks`: a training set and test sets in, the samples that they share out."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from difficulty_service.analyses.leaks.comparison import COPY_KINDS, LeakResult
from difficulty_service.cli.console import out as console
from difficulty_service.cli.console import (
    print_json,
    print_page,
    print_table,
    print_warnings,
    without,
)
from difficulty_service.cli.progress import comparison_bar, exit_when_interrupted
from difficulty_service.cli.score_result import Limit, require_below
from difficulty_service.cli.written_files import require_writable, write_drops
from difficulty_service.cli.wrong_call import WrongCall, as_option
from difficulty_service.settings.options import JsonOption, LeakOptions

if TYPE_CHECKING:
    from difficulty_service.analyses.leaks.leaks import LeakReport, SetLeaks

SHOWN = 10
"""Number of pairs of a test set that are listed."""


def leaks(
    train: Annotated[Path, Parameter("TRAIN")],
    tests: Annotated[list[Path], Parameter("TEST...")],
    /,
    *,
    out: Path | None = None,
    report: Path | None = None,
    drop_train: Path | None = None,
    drop_test: Path | None = None,
    fail_above: Annotated[Sequence[str], Parameter(metavar="'KIND: NUMBER'")] = (),
    train_images: Annotated[str | None, Parameter(metavar="DATASET")] = None,
    test_images: Annotated[str | None, Parameter(metavar="DATASET")] = None,
    device: str = "auto",
    copies: LeakOptions = LeakOptions(),
    output: JsonOption = JsonOption(),
) -> None:
    """Finds samples of test sets that are in the training set, too.

    Exact copies have the same bytes or exactly the same features, near copies features with a large
    cosine similarity. Copies with different labels come first; classes are compared by name.

    Args:
        train: Training set: features, or a score file (its samples and labels) with its features
            beside it.
        tests: Test sets, with features of the same backbone.
        out: Table of all pairs to write, ending in .parquet, .csv or .jsonl.
        report: Page to write, with the pairs side by side.
        drop_train: Also write marks (.csv) that drop the copied training samples, for `difficulty
            clean` and `difficulty score`.
        drop_test: Also write marks (.csv) that drop the copied samples of the single test set.
        fail_above: Exit with code 3 above a number or percentage of copies, exact copies or
            conflicting copies, such as copies: 0; repeatable.
        train_images: Dataset with the images of the training set, for the page; default: as named
            by the features.
        test_images: Dataset with the images of the single test set, for the page; default: as named
            by the features.
        device: Device that compares all pairs: auto, cpu, cuda, cuda:1.
    """
    limits = [Limit.parse(text, COPY_KINDS) for text in fail_above]
    read = [train, *tests]
    if len({path.resolve() for path in read}) < len(read):
        raise WrongCall("a set is given twice")
    require_writable(read, tables=[out], marks=[drop_train, drop_test], pages=[report])
    if len(tests) > 1 and (drop_test or test_images):
        given = "--drop-test" if drop_test else "--test-images"
        raise WrongCall(f"{given} needs a single test set, but {len(tests)} are given")
    if report is None and (train_images or test_images):
        raise WrongCall("--train-images and --test-images need a page: --report NAME.html")
    from difficulty_service.analyses.leaks.leaks import find_leaks
    from difficulty_service.analyses.leaks.near_search import search_device
    from difficulty_service.analyses.leaks.page import write_leak_page
    from difficulty_service.scoring.splits import open_split

    splits = [open_split(train)]
    splits += [open_split(path, splits[0]) for path in tests]
    total = splits[0].num_samples * sum(test.num_samples for test in splits[1:])
    with exit_when_interrupted("stopped; nothing is written"), comparison_bar(total) as advance:
        found = find_leaks(
            splits[0], splits[1:], copies.cosine, advance, copies.search, search_device(device)
        )
    print_warnings(found.warnings)
    with without(*([console] if output.json_ else [])):
        report_leaks(found)
        if out is not None:
            found.save(out)
            console.print(f"the pairs are in {out}")
        if drop_train is not None:
            write_drops(drop_train, found.train_marks, train, "drop them", "cleaned")
        if drop_test is not None:
            write_drops(drop_test, found.tests[0].marks, tests[0], "drop them", "cleaned")
        if report is not None:
            print_warnings(
                write_leak_page(report, found, splits, (train_images, test_images), as_option)
            )
            print_page(report)
    result = LeakResult.of(found)
    if output.json_:
        print_json(result)
    require_below(limits, {f"{each.name}: ": each for each in result.tests})


def report_leaks(found: "LeakReport") -> None:
    """Prints what each test set shares with the training set, and the first pairs."""
    from difficulty_service.base.wording import count_of, is_or_are

    for test in found.tests:
        of = count_of(test.num_samples, test.noun)
        have = "has" if test.copies == 1 else "have"
        if test.conflicting:
            has = "has" if test.conflicting == 1 else "have"
            console.print(
                f"{test.conflicting:,} of {of} of {test.name} {has} a copy in {found.train} with "
                "another label: both cannot be right"
            )
        kinds = f"{test.exact:,} exact"
        if found.near_duplicates is not None:
            kinds += (
                f", {test.copies - test.exact:,} near (cosine of at least {found.near_duplicates})"
            )
        console.print(
            f"{test.copies:,} of {of} of {test.name} ({test.share:.1%}) {have} a copy among the "
            f"{found.num_train:,} of {found.train}: {kinds}; {test.train_copies:,} "
            f"{is_or_are(test.train_copies)} copied there"
        )
        report_pairs(test)


def report_pairs(test: "SetLeaks") -> None:
    """Prints the first pairs of a test set."""
    from difficulty_service.cli.score_report import class_text

    shown = test.pairs[:SHOWN].to_pylist()
    if not shown:
        return
    rows = [
        (
            row["test_id"],
            class_text(row["test_label"] or "-"),
            row["train_id"],
            class_text(row["train_label"] or "-"),
            f"{row['similarity']:.4f}",
            row["kind"],
        )
        for row in shown
    ]
    columns = ("test", "label", "training", "label there", "cosine", "kind")
    print_table(columns, rows, shorten="training")
    if len(shown) < test.num_pairs:
        console.print(f"{len(shown)} of {test.num_pairs:,} pairs, different labels first")
