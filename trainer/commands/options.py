"""The arguments and options that commands of the trainer share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

STOPPED = 143
"""Exit code of a run that was saved and stopped by a signal: 128 + SIGTERM."""

RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="TOML file, or the name of a recipe that ships with the package."
    ),
]
ScoresOption = Annotated[
    Path | None,
    typer.Option(
        "--scores",
        help="Score file, for a recipe with regulariser.weights = 'scores', or with loss.weights "
        "or loss.targets by suspicion.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a key, such as optimiser.momentum=0.8."
    ),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, mps.")]
Level = Annotated[
    float,
    typer.Option("--intervals", metavar="LEVEL", help="Level of the intervals, between 0 and 1."),
]
Resamples = Annotated[
    int,
    typer.Option(
        "--resamples", min=0, help="Resamples of the paired bootstrap; 0 computes no intervals."
    ),
]
OnErrorOption = Annotated[
    Literal["skip", "stop"] | None,
    typer.Option(
        "--on-error",
        help="skip: check all images first, list unreadable ones and go on; default: as the recipe "
        "says, else skip.",
    ),
]
