"""`difficulty extract`: a dataset in, a folder of features out."""

import dataclasses
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from difficulty_service.commands.console import err, out, watch_images
from difficulty_service.commands.extraction import Extraction, takes_extraction
from difficulty_service.commands.options import OnError, choose_precision

if TYPE_CHECKING:
    from difficulty_service.pipeline import Extracted, ExtractRequest, Share

INTERRUPTED = 130
"""The exit code shells give to a program stopped from the keyboard."""


@takes_extraction
def extract(
    dataset: Annotated[
        str,
        typer.Argument(metavar="DATASET", help="Folder, table, tar shards, hf:NAME, or a glob."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the features.")],
    extraction: Extraction,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Only the I-th of N shares, from 0, into a folder of its own; `difficulty merge` "
            "joins them. Under Slurm: $SLURM_PROCID/$SLURM_NTASKS.",
        ),
    ] = None,
) -> None:
    """Turns every image of a dataset into a feature vector.

    Goes on where an earlier run of the same command was stopped. Bad images are counted and
    listed in `errors.parquet` beside the features.
    """
    request = build_request(dataset, out, extraction)
    if shard is not None:
        request = dataclasses.replace(request, share=parse_share(shard))
    run_extract(request)


def parse_share(text: str) -> "Share":
    """Which share of how many.

    Raises:
        BadParameter: It is not of the form I/N with I from 0 and below N.
    """
    from difficulty_service.pipeline import Share

    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise typer.BadParameter(
            f"{text!r} is not of the form I/N with I from 0 to N-1, such as 0/4",
            param_hint="--shard",
        )
    return Share(int(match[1]), int(match[2]))


def build_request(dataset: str, out: Path, extraction: Extraction) -> "ExtractRequest":
    """The options of the command line, as the pipeline takes them."""
    from difficulty_service.backbones.backbone import BackboneOptions, choose_device
    from difficulty_service.datasets.sample import DatasetOptions
    from difficulty_service.features import ExtractOptions
    from difficulty_service.parallel import num_workers
    from difficulty_service.pipeline import ExtractRequest

    device = choose_device(extraction.device)
    precision = choose_precision(extraction.precision, device)
    return ExtractRequest(
        location=dataset,
        out=out,
        backbone=extraction.backbone,
        dataset=DatasetOptions(
            split=extraction.split,
            image_column=extraction.image_column,
            label_column=extraction.label_column,
            id_column=extraction.id_column,
            limit=extraction.limit,
            shard_size=extraction.shard_size,
        ),
        network=BackboneOptions(
            weights=extraction.weights,
            features=extraction.features.value,
            device=device,
            precision=precision,
        ),
        options=ExtractOptions(
            batch_size=extraction.batch_size,
            augment_runs=extraction.augment_runs,
            seed=extraction.seed,
            mode=extraction.preprocess.value,
            max_pixels=extraction.max_pixels,
            stop_on_error=extraction.on_error is OnError.STOP,
            workers=extraction.workers or num_workers(),
            device=device,
            precision=precision,
        ),
        resume=extraction.resume,
    )


def run_extract(request: "ExtractRequest") -> "Extracted":
    """Extracts with a progress bar and says what came out."""
    from difficulty_service.pipeline import extract as extract_features

    err.print(
        f"listing {request.location}; backbone {request.backbone} on {request.network.device}",
        markup=False,
    )
    try:
        extracted = extract_features(request, watch_images)
    except KeyboardInterrupt:
        err.print("stopped; the same command goes on where it stopped")
        # A key press while a thread is joined makes Python take it for finished. The thread would
        # still be inside torch when the interpreter is taken down, and torch aborts on that.
        sys.stdout.flush()
        os._exit(INTERRUPTED)
    total = extracted.num_samples
    bad = len(extracted.bad_images)
    out.print(f"{total - bad:,} of {total:,} images have features in {request.out}", markup=False)
    if request.share.of > 1:
        share = request.share
        out.print(
            f"that is share {share.index} of {share.of}; join all with `difficulty merge`",
            markup=False,
        )
    if bad:
        err.print(
            f"{bad:,} images could not be read; {extracted.errors_file} lists each with its reason",
            markup=False,
        )
    return extracted
