"""`difficulty audit`: do the scores mean anything?"""

from pathlib import Path
from typing import Literal

from cyclopts.types import PositiveInt

from difficulty_service.cli.console import out
from difficulty_service.cli.wrong_call import WrongCall


def audit(
    scores: Path,
    /,
    *,
    against: str,
    column: str,
    join: str | None = None,
    kind: Literal["rank", "flag", "error-rate"] | None = None,
    bins: PositiveInt | None = None,
    score_column: str = "rmd",
) -> None:
    """Compares scores with what is known about the samples.

    rank: Spearman correlation with a number, or with the entropy of a list of votes.
    flag: how well the scores find the flagged samples (true values, 1 beside 0 with more than two
    classes, or labels other than the one that was scored). error-rate: errors of a
    classifier (its predicted label, or a list of logits) from the easiest to the hardest samples.

    Args:
        scores: Score file.
        against: Parquet or CSV file to compare with, or a glob, or test.npz of a trained run.
        column: Column to compare with: numbers, flags, labels, votes or logits; of a run loss,
            doubt, entropy, wrong or prediction.
        join: Column with the sample ids in that file; a run needs none.
        kind: Kind of comparison; default: by the type of the column.
        bins: Number of bins of an error rate; default: 20.
        score_column: Column of the score file to evaluate.
    """
    from difficulty_service.analyses.audit.audit import AuditOptions
    from difficulty_service.analyses.audit.audit import audit as compare
    from difficulty_service.analyses.audit.prediction_columns import (
        JOIN,
        is_predictions,
        read_prediction_columns,
    )
    from difficulty_service.scores.file import read_scores
    from difficulty_service.scores.joined_files import read_columns

    of_run = is_predictions(against)
    if of_run and join is not None:
        raise WrongCall("the predictions of a run are joined by their sample ids, without --join")
    if not of_run and join is None:
        raise WrongCall(f"--join has to name the column of {against} with the sample ids")
    key = join or JOIN
    options = AuditOptions(key, column, kind, bins or AuditOptions.num_bins, score_column)
    table = read_scores(scores, ["sample_id", "label", "label_name", score_column]).table
    other = (
        read_prediction_columns(Path(against))
        if of_run
        else read_columns(against, [key, column], text_columns=[key])
    )
    result = compare(table, other, options)
    if bins is not None and (chosen := result.options.kind) != "error-rate":
        raise WrongCall(f"--bins changes nothing for --kind {chosen}; leave it out")
    for line in result.lines():
        out.print(line)
