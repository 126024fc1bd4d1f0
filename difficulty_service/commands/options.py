"""The options that commands share, and how their values are read."""

import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from difficulty_service.errors import Setting
from difficulty_service.options import SHRINKAGE_RULES, DatasetScoring, bounds_of, sentence_of

if TYPE_CHECKING:
    from difficulty_service.statistics.fit_options import Shrinkage

OPTIONS = {
    "min_actors": "--ray-actors",
    "max_actors": "--ray-actors",
    "mode": "--preprocess",
    "subset": "--shard",
}
"""Options that have another name than the parameter they set."""


class OnError(StrEnum):
    """What to do with an image that cannot be read."""

    SKIP = "skip"
    STOP = "stop"


class Engine(StrEnum):
    """Where the shards of a dataset are extracted."""

    LOCAL = "local"
    RAY = "ray"


class FeatureKind(StrEnum):
    """The output of a backbone that is used as features."""

    PENULTIMATE = "penultimate"
    PROJECTED = "projected"


class Precision(StrEnum):
    """dtype of the backbone."""

    AUTO = "auto"
    FP32 = "fp32"
    BF16 = "bf16"


class PreprocessMode(StrEnum):
    """How images are decoded and resized."""

    FAST = "fast"
    EXACT = "exact"


class MatmulDtype(StrEnum):
    """dtype of the matrix products of the statistics."""

    AUTO = "auto"
    FLOAT32 = "float32"
    FLOAT64 = "float64"


class AuditKind(StrEnum):
    """How to compare scores with a column."""

    RANK = "rank"
    FLAG = "flag"
    ERROR_RATE = "error-rate"


DATA = "Dataset"
NETWORK = "Backbone"
RUN = "Run"
CLUSTER = "Cluster"
STATISTICS = "Statistics"


def option_of(
    name: str,
    panel: str | None = None,
    *,
    metavar: str | None = None,
    is_flag: bool = False,
    callback: Callable[..., object] | None = None,
) -> Any:  # noqa: ANN401 - typer's own type
    """An option of `difficulty_service.options`, with its bounds and its sentence.

    Args:
        name: Name of the field.
        panel: Title under which `--help` shows it.
        metavar: What its value is, where the type does not say it.
        is_flag: Whether it has no opposite: `--flip` without `--no-flip`.
        callback: Checks what bounds cannot say.
    """
    least, most = bounds_of(DatasetScoring, name)
    return typer.Option(
        *([f"--{name.replace('_', '-')}"] if is_flag else []),
        help=sentence_of(DatasetScoring, name),
        rich_help_panel=panel,
        metavar=metavar,
        min=least,
        max=most,
        callback=callback,
    )


def check_near_duplicates(cosine: float | None) -> float | None:
    """The smallest cosine of near copies as it was given.

    Raises:
        BadParameter: It is not above 0 and up to 1.
    """
    if cosine is not None and not 0 < cosine <= 1:
        raise typer.BadParameter(f"{cosine} is not a cosine above 0 and up to 1, such as 0.97")
    return cosine


Split = Annotated[str | None, option_of("split", DATA)]
ImageColumn = Annotated[str | None, option_of("image_column", DATA)]
TextColumn = Annotated[str | None, option_of("text_column", DATA)]
LabelColumn = Annotated[str | None, option_of("label_column", DATA)]
IdColumn = Annotated[str | None, option_of("id_column", DATA)]
Limit = Annotated[int | None, option_of("limit", DATA)]
ShardSize = Annotated[
    int,
    typer.Option(min=1, help="Samples per part, the unit of resuming.", rich_help_panel=DATA),
]
BackboneName = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        help="See `difficulty backbones`; default: that of --gaussians, else clip-vit-b16, or "
        "builtin where its weights cannot be had; for texts builtin-text.",
        rich_help_panel=NETWORK,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="Weights file (safetensors or PyTorch) instead of the hub's.", rich_help_panel=NETWORK
    ),
]
Features = Annotated[
    FeatureKind,
    typer.Option(help="Before or after CLIP's projection.", rich_help_panel=NETWORK),
]
Device = Annotated[
    str,
    typer.Option(help="auto, cpu, cuda, cuda:1, mps.", rich_help_panel=NETWORK),
]
PrecisionName = Annotated[
    Precision,
    typer.Option(
        "--precision",
        help="auto: bf16 on recent GPUs, and on CPUs where faster with the same ranks; else fp32.",
        rich_help_panel=NETWORK,
    ),
]
Flip = Annotated[bool, option_of("flip", NETWORK, is_flag=True)]
Corrupt = Annotated[str | None, option_of("corrupt", RUN, metavar="NAME:LEVEL")]
AugmentRuns = Annotated[int, option_of("augment_runs", RUN)]
Seed = Annotated[int, option_of("seed", RUN)]
BatchSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Images in one forward pass; default: 256 on a GPU, 64 small or 8 large on a CPU.",
        rich_help_panel=RUN,
    ),
]
Preprocess = Annotated[
    PreprocessMode,
    typer.Option(help="exact: bit for bit like open_clip, slower.", rich_help_panel=RUN),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Threads that read and decode images, and without a GPU also run the network; "
        "default: all cores, or on a cluster without GPUs one per actor.",
        rich_help_panel=RUN,
    ),
]
EngineName = Annotated[
    Engine,
    typer.Option(
        "--engine", help="ray: on a Ray cluster, with the same result.", rich_help_panel=CLUSTER
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address of a running cluster, or auto; default: RAY_ADDRESS, else only this machine.",
        rich_help_panel=CLUSTER,
    ),
]
RayActors = Annotated[
    str | None,
    typer.Option(
        metavar="MIN:MAX",
        help="Start up to MAX actors, of which MIN must find room; default: as many as fit.",
        rich_help_panel=CLUSTER,
    ),
]
OnErrorOption = Annotated[OnError, option_of("on_error", RUN)]
MaxPixels = Annotated[
    int,
    typer.Option(min=1, help="Refuse images with more pixels than this.", rich_help_panel=RUN),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume/--no-resume", help="Keep what an earlier run extracted.", rich_help_panel=RUN
    ),
]
ShrinkageName = Annotated[str, option_of("shrinkage", STATISTICS)]
MatmulDtypeName = Annotated[MatmulDtype, option_of("matmul_dtype", STATISTICS)]
ScorerNames = Annotated[str, option_of("scorers", metavar="NAME,...")]
NearDuplicates = Annotated[
    float | None, option_of("near_duplicates", metavar="COSINE", callback=check_near_duplicates)
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        help="Also print condition numbers, ranks and shrinkage, and `score` the easiest images.",
        rich_help_panel=STATISTICS,
    ),
]
StorePath = Annotated[
    Path,
    typer.Argument(help="What `difficulty extract` wrote, or features in .npz, .npy or Parquet."),
]


def parse_actors(text: str | None) -> tuple[int, int | None]:
    """Minimum and maximum number of actors; a maximum of None means as many as fit.

    Raises:
        BadParameter: The text is neither N nor MIN:MAX.
    """
    if text is None:
        return 1, None
    match = re.fullmatch(r"(\d{1,5})(?::(\d{1,5}))?", text)
    min_actors = int(match[1]) if match else 0
    max_actors = int(match[2]) if match and match[2] else min_actors
    if not 1 <= min_actors <= max_actors:
        raise typer.BadParameter(
            f"{text!r} is neither a number of actors, such as 8, nor MIN:MAX, such as 2:8",
            param_hint="--ray-actors",
        )
    return min_actors, max_actors


def parse_shrinkage(text: str) -> "Shrinkage":
    """Reads the name of a rule, or an intensity.

    Raises:
        BadParameter: The text is neither.
    """
    if text in SHRINKAGE_RULES:
        return text  # type: ignore[return-value]
    try:
        intensity = float(text)
    except ValueError:
        intensity = -1.0
    if not 0 <= intensity <= 1:
        raise typer.BadParameter(
            f"{text!r} is none of {', '.join(SHRINKAGE_RULES)}, nor a number in [0, 1]",
            param_hint="--shrinkage",
        )
    return intensity


def as_option(setting: Setting) -> str:
    """A setting as the command line writes it: `--shrinkage auto`, `--no-resume`."""
    option = OPTIONS.get(setting.parameter, "--" + setting.parameter.replace("_", "-"))
    if setting.value is None or setting.value is True:
        return option
    if setting.value is False:
        return option.replace("--", "--no-", 1)
    return f"{option} {setting.value}"
