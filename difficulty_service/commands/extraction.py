"""The options of extraction, which `extract` and `score` share."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from difficulty_service.commands.options import (
    DATA,
    AugmentRuns,
    BackboneName,
    BatchSize,
    Corrupt,
    Device,
    Engine,
    EngineName,
    FeatureKind,
    Features,
    Flip,
    IdColumn,
    ImageColumn,
    LabelColumn,
    Limit,
    MaxPixels,
    OnError,
    OnErrorOption,
    Precision,
    PrecisionName,
    Preprocess,
    PreprocessMode,
    RayActors,
    RayAddress,
    Resume,
    Seed,
    ShardSize,
    Split,
    TextColumn,
    Weights,
    Workers,
)

if TYPE_CHECKING:
    from difficulty_service.images.corruptions import Corruption


DEFAULT_MAX_PIXELS = 50_000_000
"""Default of the largest number of pixels of an image, known without importing a decoder."""


class Modality(StrEnum):
    """What the samples of a dataset are."""

    IMAGE = "image"
    TEXT = "text"


ModalityName = Annotated[
    Modality,
    typer.Option("--modality", help="text: the texts of a table.", rich_help_panel=DATA),
]


@dataclass(frozen=True)
class Extraction:
    """One field per option, in the order of `--help`."""

    modality: ModalityName = Modality.IMAGE
    split: Split = None
    image_column: ImageColumn = None
    label_column: LabelColumn = None
    text_column: TextColumn = None
    id_column: IdColumn = None
    limit: Limit = None
    shard_size: ShardSize = 4096
    backbone: BackboneName = None
    weights: Weights = None
    features: Features = FeatureKind.PENULTIMATE
    device: Device = "auto"
    precision: PrecisionName = Precision.AUTO
    flip: Flip = False
    corrupt: Corrupt = None
    augment_runs: AugmentRuns = 0
    seed: Seed = 0
    batch_size: BatchSize = None
    preprocess: Preprocess = PreprocessMode.FAST
    workers: Workers = None
    on_error: OnErrorOption = OnError.SKIP
    max_pixels: MaxPixels = DEFAULT_MAX_PIXELS
    resume: Resume = True
    engine: EngineName = Engine.LOCAL
    ray_address: RayAddress = None
    ray_actors: RayActors = None


OPTION_NAMES = tuple(field.name for field in fields(Extraction))


def takes_extraction(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces the parameter `extraction` of a command by the options of extraction.

    typer reads options from a function's signature, so the signature is what changes.
    """

    @functools.wraps(command)
    def with_options(**arguments: Any) -> None:  # noqa: ANN401 - whatever the options are
        extraction = Extraction(**{name: arguments.pop(name) for name in OPTION_NAMES})
        command(**arguments, extraction=extraction)

    hints = get_type_hints(Extraction, include_extras=True)
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command).parameters.values()
        if parameter.name != "extraction"
    ]
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(Extraction)
    ]
    with_options.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in [*own, *options]}
    return with_options


IMAGE_OPTIONS = {
    "image_column": None,
    "weights": None,
    "features": FeatureKind.PENULTIMATE,
    "flip": False,
    "corrupt": None,
    "augment_runs": 0,
    "preprocess": PreprocessMode.FAST,
    "max_pixels": DEFAULT_MAX_PIXELS,
}
"""Options that mean something for images only, with their defaults."""


def refuse_other_modality(extraction: Extraction) -> None:
    """Raises BadParameter where an option is given that samples of this kind have no use for."""
    if extraction.modality is Modality.IMAGE:
        if extraction.text_column is not None:
            raise typer.BadParameter("--text-column needs --modality text")
        return
    changed = [name for name, usual in IMAGE_OPTIONS.items() if getattr(extraction, name) != usual]
    if changed:
        useless = ", ".join(f"--{name.replace('_', '-')}" for name in changed)
        raise typer.BadParameter(f"{useless} would change nothing with --modality text")


def text_column(extraction: Extraction) -> str | None:
    """The column with the texts; None where the samples are images."""
    return (extraction.text_column or "text") if extraction.modality is Modality.TEXT else None


def read_corruption(extraction: Extraction) -> "Corruption | None":
    """The corruption that is named.

    Raises:
        ConfigError: There is no such corruption or severity.
    """
    if extraction.corrupt is None:
        return None
    # Imported here, because SciPy takes time that other commands need not spend.
    from difficulty_service.images.corruptions import parse_corruption

    return parse_corruption(extraction.corrupt, extraction.seed)
