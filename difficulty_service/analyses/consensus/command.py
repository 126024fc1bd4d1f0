"""`difficulty consensus`: several backbones' scores or features in, one score file out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from difficulty_service.cli.console import out as console
from difficulty_service.cli.console import print_warnings
from difficulty_service.cli.written_files import require_writable
from difficulty_service.cli.wrong_call import WrongCall

if TYPE_CHECKING:
    from difficulty_service.scores.file import ScoreFile

FEWEST = 2


def consensus(
    inputs: Annotated[list[Path], Parameter("FEATURES...|SCORES...")], /, *, out: Path
) -> None:
    """Combines what several backbones say about the same samples into one score file.

    Averages log-densities of the classes for features, ranks for score files. Samples that an input
    lacks are left out with a warning; different labels are an error.

    Args:
        inputs: Features of the same samples by several backbones, or their score files.
        out: File to write, ending in .parquet, .csv or .jsonl.
    """
    from difficulty_service.analyses.consensus.consensus import consensus_of
    from difficulty_service.scores.file import require_score_file_name, write_scores

    require_score_file_name(out)
    if len({path.resolve() for path in inputs}) < max(FEWEST, len(inputs)):
        raise WrongCall("give at least two different inputs, each once")
    require_writable(inputs, others=[out])
    result = consensus_of(inputs)
    write_scores(out, result.table, result.provenance)
    report_consensus(result, out)


def report_consensus(result: "ScoreFile", out: Path) -> None:
    """Prints what a consensus was made of and how many labels it doubts."""
    from difficulty_service.base.tables import count_positive
    from difficulty_service.base.wording import count_of
    from difficulty_service.scores.tiers import PROBABLY_WRONG

    table, made = result.table, result.provenance.consensus
    assert made is not None  # noqa: S101 - it is one
    console.print(
        f"{count_of(len(table), 'sample')} in {out}, by the mean {made.mean_of} of "
        f"{len(made.inputs)} inputs:"
    )
    for each in made.inputs:
        console.print(f"  {each.name} ({each.backbone or 'unknown backbone'})")
    for column, meaning in (
        ("label_margin", "look more like another class than their own"),
        ("suspicion", f"have a label that is {PROBABLY_WRONG}"),
    ):
        if column in made.columns:
            above = count_positive(table[column])
            console.print(f"{above:,} {meaning} ({column} above 0)")
    print_warnings(result.provenance.warnings)
