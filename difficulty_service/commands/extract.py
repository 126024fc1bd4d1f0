"""`difficulty extract`: a dataset in, a folder of features out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from difficulty_service.commands.console import err, out, watch_images
from difficulty_service.commands.options import (
    AugmentRuns,
    BackboneName,
    BatchSize,
    Device,
    FeatureKind,
    Features,
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
    Resume,
    Seed,
    ShardSize,
    Split,
    Weights,
    Workers,
    choose_device,
    choose_precision,
)

if TYPE_CHECKING:
    from difficulty_service.pipeline import Extracted, ExtractRequest


def extract(
    dataset: Annotated[str, typer.Argument(help="Folder, table, tar shards, hf:NAME, or a glob.")],
    out: Annotated[Path, typer.Option(help="Folder for the features.")],
    split: Split = None,
    image_column: ImageColumn = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    limit: Limit = None,
    shard_size: ShardSize = 4096,
    backbone: BackboneName = "clip-vit-b16",
    weights: Weights = None,
    features: Features = FeatureKind.PENULTIMATE,
    device: Device = "auto",
    precision: PrecisionName = Precision.AUTO,
    augment_runs: AugmentRuns = 0,
    seed: Seed = 0,
    batch_size: BatchSize = 256,
    preprocess: Preprocess = PreprocessMode.FAST,
    workers: Workers = None,
    on_error: OnErrorOption = OnError.SKIP,
    max_pixels: MaxPixels = 50_000_000,
    resume: Resume = True,
) -> None:
    """Turns every image of a dataset into a feature vector.

    Goes on where an earlier run of the same command was stopped. Bad images are counted and
    listed in `errors.parquet` beside the features.
    """
    run_extract(build_request(**locals()))


def build_request(
    *,
    dataset: str,
    out: Path,
    split: str | None,
    image_column: str | None,
    label_column: str | None,
    id_column: str | None,
    limit: int | None,
    shard_size: int,
    backbone: str,
    weights: str | None,
    features: FeatureKind,
    device: str,
    precision: Precision,
    augment_runs: int,
    seed: int,
    batch_size: int,
    preprocess: PreprocessMode,
    workers: int | None,
    on_error: OnError,
    max_pixels: int,
    resume: bool,
) -> "ExtractRequest":
    """The options of the command line, as the pipeline takes them."""
    from difficulty_service.backbones.backbone import BackboneOptions
    from difficulty_service.datasets.sample import DatasetOptions
    from difficulty_service.features import ExtractOptions
    from difficulty_service.parallel import num_workers
    from difficulty_service.pipeline import ExtractRequest

    chosen = choose_device(device)
    dtype = choose_precision(precision, chosen)
    return ExtractRequest(
        location=dataset,
        out=out,
        backbone=backbone,
        dataset=DatasetOptions(split, image_column, label_column, id_column, limit, shard_size),
        network=BackboneOptions(weights, features.value, chosen, dtype),
        options=ExtractOptions(
            batch_size=batch_size,
            augment_runs=augment_runs,
            seed=seed,
            mode=preprocess.value,
            max_pixels=max_pixels,
            stop_on_error=on_error is OnError.STOP,
            workers=workers or num_workers(),
            device=chosen,
            precision=dtype,
        ),
        resume=resume,
    )


def run_extract(request: "ExtractRequest") -> "Extracted":
    """Extracts with a progress bar and says what came out."""
    from difficulty_service.pipeline import extract as extract_features

    err.print(f"device {request.network.device}, backbone {request.backbone}", markup=False)
    extracted = extract_features(request, watch_images)
    total = extracted.store.description["num_samples"]
    bad = len(extracted.bad_images)
    out.print(f"{total - bad:,} of {total:,} images have features in {request.out}", markup=False)
    if bad:
        err.print(
            f"{bad:,} images could not be read; {extracted.errors_file} lists each with its reason",
            markup=False,
        )
    return extracted
