"""`difficulty audit`: do the scores mean anything?"""

from pathlib import Path
from typing import Annotated

import typer

from difficulty_service.commands.console import out
from difficulty_service.commands.options import AuditKind


def audit(
    scores: Annotated[Path, typer.Argument(help="Score file.")],
    against: Annotated[
        str,
        typer.Option(
            help="Parquet or CSV file to compare with, or a glob, or test.npz of a trained run."
        ),
    ],
    column: Annotated[
        str,
        typer.Option(
            help="Column of that file to compare with: numbers, flags, labels, votes or logits; of "
            "a run loss, doubt, entropy, wrong or prediction."
        ),
    ],
    join: Annotated[
        str | None, typer.Option(help="Column of that file with the sample ids; a run needs none.")
    ] = None,
    kind: Annotated[
        AuditKind | None,
        typer.Option(help="Kind of comparison; default: by the type of the column."),
    ] = None,
    bins: Annotated[int, typer.Option(min=1, help="Number of bins of an error rate.")] = 20,
    score_column: Annotated[
        str, typer.Option(help="Column of the score file to evaluate.")
    ] = "rmd",
) -> None:
    """Compares scores with what is known about the samples.

    **rank**: Spearman correlation with a number, or with the entropy of a list of votes.
    **flag**: how well the scores find the flagged samples (true values, or labels other than the
    one that was scored). **error-rate**: errors of a classifier (its predicted label, or a list of
    logits) from the easiest to the hardest samples.
    """
    from difficulty_service.audit.audit import AuditOptions
    from difficulty_service.audit.audit import audit as compare
    from difficulty_service.audit.files import read_columns
    from difficulty_service.audit.prediction_columns import (
        JOIN,
        is_predictions,
        read_prediction_columns,
    )
    from difficulty_service.score_file import read_scores

    of_run = is_predictions(against)
    if of_run and join is not None:
        raise typer.BadParameter(
            "the predictions of a run are joined by their sample ids; leave it out",
            param_hint="--join",
        )
    if not of_run and join is None:
        raise typer.BadParameter(
            f"name the column of {against} with the sample ids", param_hint="--join"
        )
    key = join or JOIN
    options = AuditOptions(key, column, kind.value if kind else None, bins, score_column)
    table = read_scores(scores, ["sample_id", "label", "label_name", score_column]).table
    other = (
        read_prediction_columns(Path(against))
        if of_run
        else read_columns(against, [key, column], text_columns=[key])
    )
    result = compare(table, other, options)
    for line in result.lines():
        out.print(line, markup=False)
