"""The options of extraction, which `extract` and `score` share."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from difficulty_service.commands.options import (
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
    Weights,
    Workers,
)


@dataclass(frozen=True)
class Extraction:
    """One field per option, in the order of `--help`."""

    split: Split = None
    image_column: ImageColumn = None
    label_column: LabelColumn = None
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
    max_pixels: MaxPixels = 50_000_000
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
