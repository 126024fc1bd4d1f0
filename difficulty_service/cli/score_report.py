"""What `difficulty score` prints: what was found, which images to look at, and what to do next."""

import math
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from difficulty_service.cli.console import (
    as_text,
    err,
    out,
    print_table,
    print_warnings,
    shorten_middle,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from difficulty_service.datasets.sample import Dataset
    from difficulty_service.scores.provenance import TagSource
    from difficulty_service.scoring.store import ScoreSummary

DOUBTFUL_SHOWN = 10
EXTREMES_SHOWN = 5
CLASS_WIDTH = 20
"""Cells for the name of a class in a table."""

LEAVE_OUT = (
    "preview the dataset without the clearest of them; drop --dry-run to write it",
    "difficulty clean {scores} --drop '{evidence} > {cut}' --out cleaned.parquet --dry-run",
)
"""The next step where images look more like another class than their own."""
FEW_SAMPLES = 10_000
"""With fewer, no condition on scores is suggested that would leave samples out."""
LOOK = ("look at the {samples} in a browser, and mark {wrong}", "difficulty report {scores}")
"""The first step, unless the report exists."""
NEXT_STEPS = (
    (
        "review all of them in a browser, by order and filters, and score again there",
        "difficulty explore {scores}",
    ),
    (
        "look at the {samples} in another tool",
        "difficulty export {scores} --to fiftyone|labelstudio|cleanlab|... --out PLACE",
    ),
    (
        "compare the scores with what is known about the {samples}",
        "difficulty audit {scores} --against FILE --join COLUMN --column COLUMN",
    ),
)
"""What to do with a score file, and the command for it; `{scores}` stands for the file."""
CLUSTERS = "make classes of similar {samples}, and look for the ones in a wrong class"
"""A step where there are no classes to compare with."""


def report_scores(summary: "ScoreSummary", scores: Path, *, verbose: bool = False) -> None:
    """Prints where the scores are, the images to look at, and the warnings."""
    if summary.round is not None:
        out.print(summary.round)
    samples = f"{summary.num_samples:,} {summary.noun}s"
    out.print(f"{summary.num_scored:,} of {samples} are scored in {scores}")
    if summary.num_duplicates:
        copies = "is an exact copy" if summary.num_duplicates == 1 else "are exact copies"
        out.print(f"{summary.num_duplicates:,} of them {copies} of others (column duplicate_of)")
    if summary.num_near_duplicates is not None:
        copies = "is a near copy" if summary.num_near_duplicates == 1 else "are near copies"
        out.print(
            f"{summary.num_near_duplicates:,} of them {copies} of others, exact copies included "
            "(column near_duplicate_of)"
        )
    if summary.image_faults:
        number = sum(summary.image_faults.values())
        kinds = ", ".join(f"{fault} {count:,}" for fault, count in summary.image_faults.items())
        verb = "has" if number == 1 else "have"
        out.print(f"{number:,} of them {verb} a fault: {kinds} (column image_fault)")
    if summary.caution is not None:
        out.print(f"\n{summary.caution}")
    if summary.num_compared:
        report_doubtful(summary)
        report_extremes(
            f"hardest {summary.noun}s, whatever their label", summary.hardest[:EXTREMES_SHOWN]
        )
        if verbose:
            report_extremes(f"easiest {summary.noun}s", summary.easiest[-EXTREMES_SHOWN:])
    elif summary.measure == "md_agnostic":
        report_unusual(summary)
    warnings = [each for each in summary.warnings if each != summary.caution]
    if warnings:
        err.print()
    print_warnings(warnings)


def report_doubtful(summary: "ScoreSummary") -> None:
    """Prints how many labels are doubtful, and the clearest of them."""
    from difficulty_service.scores.tiers import BETWEEN, PROBABLY_WRONG

    if summary.labels is not None:
        out.print(f"\n{summary.labels}")
    elif not summary.num_doubtful:
        out.print(
            f"\nnone of {summary.num_compared:,} {summary.noun}s looks more like another "
            "class than its own"
        )
    else:
        verb = "looks" if summary.num_doubtful == 1 else "look"
        own = "its" if summary.num_doubtful == 1 else "their"
        out.print(
            f"\n{summary.num_doubtful:,} of {summary.num_compared:,} {summary.noun}s {verb} "
            f"more like another class than {own} own (label_margin above 0)"
        )
    if not summary.num_doubtful:
        return
    rows = summary.doubtful[:DOUBTFUL_SHOWN].to_pylist()
    clearest = f"the {len(rows)} clearest" if len(rows) < summary.num_doubtful else ""
    if summary.labels is not None:
        tier = PROBABLY_WRONG if summary.labels.wrong else BETWEEN
        out.print(f"{', '.join(filter(None, (tier, clearest)))}:")
    elif clearest:
        out.print(f"{clearest} of them:")
    cells = [
        (
            row["sample_id"],
            f"{class_text(row['label_name'])} → {class_text(row[summary.other_class])}",
            row[summary.evidence],
        )
        for row in rows
    ]
    number = summary.evidence.removeprefix("label_")
    print_table(("sample", "given → looks like", number), cells, shorten="sample")


def report_unusual(summary: "ScoreSummary") -> None:
    """Prints the samples that are most unlike all others, of one class or without labels."""
    out.print(f"\n{summary.noun}s most unlike all others (column md_agnostic):")
    rows = summary.hardest[:EXTREMES_SHOWN].to_pylist()
    cells = [(row["sample_id"], row["md_agnostic"]) for row in rows]
    print_table(("sample", "distance"), cells, shorten="sample")


def report_extremes(title: str, rows: "pa.Table") -> None:
    """Prints samples with their class and difficulty."""
    out.print(f"\n{title}:")
    cells = [
        (row["sample_id"], class_text(row["label_name"]), row["rmd"]) for row in rows.to_pylist()
    ]
    print_table(("sample", "class", "difficulty"), cells, shorten="sample")


def class_text(name: str) -> str:
    """The name of a class, shortened for a table."""
    return shorten_middle(as_text(name), CLASS_WIDTH)


def clean_step(scores: Path, given: str = "", tags: "TagSource | None" = None) -> tuple[str, str]:
    """How the decisions come into the dataset.

    Parquet holds images of every kind of dataset; tags are written in the format of their table.
    """
    is_table = tags is not None and tags.table is not None
    ending = Path(str(tags.table)).suffix if tags is not None and is_table else ".parquet"
    return (
        "write the cleaned dataset; the original is unchanged",
        f"difficulty clean {shlex.quote(str(scores))}{given} --out cleaned{ending}",
    )


def review_steps(
    scores: Path, report: Path | None = None, tags: "TagSource | None" = None
) -> list[tuple[str, str]]:
    """What to do with marks that were downloaded from a report, and the command for it.

    The report is written again, by default in the place of one beside the scores.
    """
    from difficulty_service.marks.review_folder import ReviewFolder

    clean = clean_step(
        scores, "" if ReviewFolder(scores).file.exists() else " --marks marks.csv", tags
    )
    again = command_to_score_again(scores, report, "--marks marks.csv")
    if again is None:
        return [clean]
    return [("score again with the marks that you download there, in seconds", again), clean]


def command_to_score_again(scores: Path, report: Path | None, options: str) -> str | None:
    """The command that scores features with more options; None where there are none beside."""
    from difficulty_service.features.description import is_store

    features, page = scores.with_suffix(".features"), report or scores.with_suffix(".html")
    if not is_store(features):
        return None
    quoted = [shlex.quote(str(path)) for path in (features, scores, page)]
    return "difficulty score {} --out {} {} --report {}".format(*quoted[:2], options, quoted[2])


def print_steps(steps: Iterable[tuple[str, str]]) -> None:
    """Prints what can be done next, each with its command."""
    out.print("\nnext:")
    for purpose, command in steps:
        out.print(f"  {purpose}:\n    {command}")


def print_next_steps(summary: "ScoreSummary", scores: Path, report: Path | None = None) -> None:
    """Prints the commands that take the score file, and the report if it has been written."""
    shown = summary.doubtful[:DOUBTFUL_SHOWN][summary.evidence].to_pylist()
    # Rounded down, so that the condition holds for every image that is shown.
    cut = math.floor(shown[-1] * 10) / 10 if shown else 0.0
    # What lies between two classes is rarely wrong, and of few samples each is worth a look.
    are_wrong = summary.labels is None or summary.labels.wrong > 0
    values = {"samples": f"{summary.noun}s", "scores": shlex.quote(str(scores))}
    values |= {"wrong": "wrong labels" if summary.num_compared else "what to drop"}
    values |= {"evidence": summary.evidence, "cut": f"{cut:g}"}

    def filled(*steps: tuple[str, str]) -> list[tuple[str, str]]:
        return [(purpose.format(**values), step.format(**values)) for purpose, step in steps]

    decide = review_steps(scores, report)
    clusters = None
    if not summary.num_compared:
        clusters = command_to_score_again(scores, report, "--clusters auto")
    if are_wrong and summary.num_samples >= FEW_SAMPLES:
        decide += filled(LEAVE_OUT)
    print_steps(
        [
            *(filled(LOOK) if report is None else []),
            *(decide if shown else []),
            *([(CLUSTERS.format(**values), clusters)] if clusters else []),
            *filled(*NEXT_STEPS),
        ]
    )


def report_dataset(dataset: "Dataset") -> None:
    """Prints the numbers of images and classes, and a warning about classes that are too small."""
    import numpy as np

    from difficulty_service.base.wording import count_of, list_names
    from difficulty_service.datasets.preview import unread_by_name

    unread = [position for position, _ in unread_by_name(dataset)]
    labels = np.delete(dataset.labels, unread)
    sizes = np.bincount(labels, minlength=len(dataset.class_names))
    present = np.flatnonzero(sizes)
    what = dataset.noun
    line = f"found {count_of(len(labels), what)} "
    if dataset.has_labels:
        line += f"of {count_of(len(present), 'class', 'classes')}"
    else:
        line += "without labels"
    if len(present) > 1:
        smallest, largest = (int(pick(sizes[present])) for pick in (np.min, np.max))
        each = f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"
        line += f", {each} in each"
    if unread:
        are = "is no image by its name" if len(unread) == 1 else "are no images by their names"
        line += f", and {count_of(len(unread), 'file')} that {are}"
    err.print(line)
    single = [dataset.class_names[label] for label in np.flatnonzero(sizes == 1)]
    sentences = []
    if len(present) == 1 and dataset.has_labels:
        sentences.append(
            f"all {what}s have one class, {dataset.class_names[present[0]]!r}, so no classes can "
            "be compared: give each class a folder or a label; if it is no class, --unlabelled "
            "ignores it"
        )
    elif single:
        sentences.append(f"classes with a single {what}, which gets no score: {list_names(single)}")
    print_warnings(sentences)
