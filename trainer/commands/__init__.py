"""Commands of the trainer, one file each, and the arguments and options that they share."""

import os
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt, PositiveInt

from difficulty_service.cli.wrong_call import WrongCall

STOPPED = 143
"""Exit code of a run that was saved and stopped by a signal: 128 + SIGTERM."""

Settings = Annotated[
    list[str] | None,
    Parameter("--set", metavar="KEY=VALUE", help="Change a key, such as optimiser.momentum=0.8."),
]
Device = Annotated[str, Parameter(help="auto, cpu, cuda, cuda:1, mps.")]
Jobs = Annotated[
    PositiveInt,
    Parameter(
        help="Seeds to train at once, each in a process with its share of the cores or, where "
        "there are several, with a GPU of its own."
    ),
]
Level = Annotated[
    float,
    Parameter("--intervals", metavar="LEVEL", help="Level of the intervals, between 0 and 1."),
]
Resamples = Annotated[
    NonNegativeInt,
    Parameter(help="Resamples of the paired bootstrap; 0 computes no intervals."),
]
Scores = Annotated[
    Path | None,
    Parameter(
        help="Score file, for a recipe with regulariser.weights = 'scores', with loss.weights or "
        "loss.targets by suspicion, or with sampling.order by difficulty."
    ),
]
Recipe = Annotated[
    str, Parameter(help="TOML file, or the name of a recipe that ships with the package.")
]
OnError = Annotated[
    Literal["skip", "stop"] | None,
    Parameter(
        help="skip: check all images first, list unreadable ones and go on; default: as the recipe "
        "says, else skip."
    ),
]


def require_one_process(jobs: int) -> None:
    """Refuses several seeds at once where a launcher runs one seed in several processes.

    Raises:
        WrongCall: Both are asked for.
    """
    if jobs > 1 and os.environ.get("WORLD_SIZE", "1") != "1":
        raise WrongCall("--jobs trains several seeds, and the launcher one in several processes")
