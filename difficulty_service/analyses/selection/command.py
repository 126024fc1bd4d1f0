"""`difficulty select`: a pool of samples in, those to label next or to keep out."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from difficulty_service.analyses.selection.comparison import SelectResult
from difficulty_service.cli.console import out as console
from difficulty_service.cli.console import print_json, print_table, print_warnings, without
from difficulty_service.cli.progress import comparison_bar, exit_when_interrupted
from difficulty_service.cli.written_files import require_writable, write_drops
from difficulty_service.cli.wrong_call import WrongCall
from difficulty_service.settings.options import JsonOption, SelectOptions

if TYPE_CHECKING:
    from difficulty_service.analyses.selection.selection import Selection

SHOWN_CLASSES = 20
"""Number of classes up to which the number of chosen samples of each is printed."""


def select(
    pool: Annotated[Path, Parameter("POOL")],
    /,
    *,
    choice: SelectOptions,
    out: Path,
    labelled: Annotated[Path | None, Parameter(metavar="FEATURES|SCORES")] = None,
    chosen: Annotated[Path | None, Parameter(metavar="TABLE")] = None,
    drop_others: Path | None = None,
    out_scores: Path | None = None,
    output: JsonOption = JsonOption(),
) -> None:
    """Chooses samples to label next, or to keep.

    `random` is hard to beat: compare a choice with it before you rely on it.

    Args:
        pool: Samples to choose from: features, or a score file (its samples and labels) with its
            features beside it.
        out: Table of the chosen samples to write, in the order of choice, ending in .parquet, .csv
            or .jsonl.
        labelled: Labelled samples, with features of the same backbone: strategies count them and
            leave out their exact copies.
        chosen: Samples chosen already: a table with a column sample_id, such as --out of an earlier
            call.
        drop_others: Also write marks (.csv) that drop all other samples, for `difficulty clean` and
            `difficulty score`.
        out_scores: Also write the score file of the chosen samples, in the order of choice, for
            `difficulty export`.
    """
    read = [pool, labelled, chosen]
    require_writable(read, tables=[out], marks=[drop_others], others=[out_scores])
    if out_scores is not None:
        from difficulty_service.scores.file import require_score_file_name

        require_score_file_name(out_scores)
        if not pool.is_file() or not pool.suffix:
            raise WrongCall(f"--out-scores needs a score file, and {pool} holds features")
    if choice.by is not None and not choice.reads("scores"):
        raise WrongCall(f"--by changes nothing for --strategy {choice.strategy}")
    from difficulty_service.analyses.selection.selection import Known, read_ids, select_samples
    from difficulty_service.scores.measures import read_measure
    from difficulty_service.scoring.splits import open_split

    split = replace(open_split(pool), ignores_labels=False)
    known = Known(
        scores=read_measure(pool, choice.by) if choice.reads("scores") else None,
        labelled=None if labelled is None else open_split(labelled, split),
        chosen=() if chosen is None else read_ids(chosen),
    )
    compared = 0
    if any(each.name == "diverse" for each in choice.shares):
        others = 0 if known.labelled is None else known.labelled.num_samples
        compared = split.num_samples * (choice.count + len(known.chosen) + others)
    with exit_when_interrupted("stopped; nothing is written"), comparison_bar(compared) as advance:
        selection = select_samples(split, choice, known, advance)
    print_warnings(selection.warnings)
    selection.save(out)
    with without(*([console] if output.json_ else [])):
        report_selection(selection, out)
        if drop_others is not None:
            purpose = "keep the chosen ones only"
            write_drops(drop_others, selection.other_marks, pool, purpose, "chosen")
        if out_scores is not None:
            write_chosen_scores(selection, pool, out_scores)
    if output.json_:
        print_json(SelectResult.of(selection))


def report_selection(selection: "Selection", out: Path) -> None:
    """Prints how many samples were chosen by each strategy and of each class."""
    from difficulty_service.base.wording import count_of, is_or_are

    number = len(selection.table)
    console.print(
        f"{count_of(number, selection.noun)} of {selection.num_samples:,} of {selection.name} "
        f"{is_or_are(number)} in {out}, in the order of choice"
    )
    by = selection.strategies
    if len(by) > 1:
        console.print(", ".join(f"{each:,} {name}" for name, each in by.items()))
    if 0 < len(selection.classes) <= SHOWN_CLASSES:
        from difficulty_service.cli.score_report import class_text

        rows = [(class_text(name), each) for name, each in selection.classes.items()]
        print_table(("class", "chosen"), rows)


def write_chosen_scores(selection: "Selection", pool: Path, path: Path) -> None:
    """Writes the score file of what was chosen."""
    from difficulty_service.analyses.selection.selection import chosen_scores
    from difficulty_service.scores.file import write_scores

    scores = chosen_scores(selection, pool)
    write_scores(path, scores.table, scores.provenance)
    console.print(f"their scores are in {path}")
