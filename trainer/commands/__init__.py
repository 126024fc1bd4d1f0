"""Commands of the trainer, one file each, and the arguments and options that they share."""

import os
from dataclasses import dataclass
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
    PositiveInt | None,
    Parameter(
        help="Seeds to train at once, each on its share of the cores or a GPU of its own; default: "
        "one, on Ray as many as fit."
    ),
]
Engine = Annotated[
    Literal["local", "ray"],
    Parameter(
        help="Where to train; ray: on a Ray cluster whose nodes share the data and the folder of "
        "the run."
    ),
]
RayAddress = Annotated[
    str | None,
    Parameter(
        metavar="HOST:PORT",
        help="Address of a running cluster, or auto; default: RAY_ADDRESS, else only this machine.",
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
        help="Score file, for a recipe whose regulariser, loss or sampling uses difficulty or "
        "suspicion."
    ),
]
Recipe = Annotated[str, Parameter(help="TOML file, or the name of a shipped recipe.")]
OnError = Annotated[
    Literal["skip", "stop"] | None,
    Parameter(
        help="skip: check all images first, list unreadable ones and go on; default: by the "
        "recipe, else skip."
    ),
]


@dataclass(frozen=True)
class SeveralSeeds:
    """Where several seeds are trained at once.

    Attributes:
        device: Device of every seed, or "auto".
        jobs: Number of seeds at once; None for one on this machine, and on a cluster for as many as
            find room.
        engine: "local" or "ray".
        ray_address: Address of the cluster, see `connected`.
    """

    device: str
    jobs: int | None
    engine: str
    ray_address: str | None


def several_seeds(
    device: str, jobs: int | None, engine: str, ray_address: str | None
) -> SeveralSeeds | None:
    """What the options say about seeds in processes of their own; None for one after the other.

    Raises:
        WrongCall: A launcher runs one seed in several processes, or an option would change nothing.
    """
    if ray_address is not None and engine == "local":
        raise WrongCall("--ray-address needs --engine ray")
    if jobs in {None, 1} and engine == "local":
        return None
    if os.environ.get("WORLD_SIZE", "1") != "1":
        option = "--jobs" if engine == "local" else f"--engine {engine}"
        raise WrongCall(f"{option} trains several seeds, and the launcher one in several processes")
    return SeveralSeeds(device, jobs, engine, ray_address)
