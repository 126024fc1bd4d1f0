"""The options of images, networks and statistics that a caller may pass by name.

The progress bar of an extraction, in a terminal or a notebook.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypedDict, get_type_hints

from pydantic import ValidationError

from difficulty_service.backbones.backbone import (
    PRECISIONS,
    BackboneOptions,
    choose_device,
    choose_precision,
)
from difficulty_service.base.errors import (
    BackboneError,
    ConfigError,
    DatasetError,
    ImageError,
    Setting,
)
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.gaussians.fit_options import Shrinkage
from difficulty_service.images.preparation import DEFAULT_MAX_PIXELS, Mode
from difficulty_service.interface.options import require_known
from difficulty_service.options import DatasetScoring, ReadingOptions
from difficulty_service.pipeline import ExtractProgress


class EncoderOptions(TypedDict, total=False):
    """Options of a backbone and of how images are read for it.

    Attributes:
        weights: Weights file instead of those of the hub.
        features: `penultimate` (default), or `projected` for CLIP's shared space.
        device: `auto` (default), `cpu`, `cuda`, `cuda:1` or `mps`.
        precision: `auto` (default), `fp32` or `bf16`. `auto` is bf16 on recent GPUs, otherwise
            fp32; `score_dataset` also takes bf16 on CPUs where that is faster and ranks alike.
        flip: Whether features are the mean of those of the image and of its mirror image, for twice
            the time of the network; False by default.
        batch_size: Images in one forward pass; by default what suits the device.
        mode: `fast` (default), or `exact` for bit for bit what open_clip does.
        max_pixels: Largest number of pixels of an image.
        workers: Threads that read and decode; by default all cores.
    """

    weights: str | Path | None
    features: str
    device: str
    precision: str
    flip: bool
    batch_size: int | None
    mode: Mode
    max_pixels: int
    workers: int | None


class ImageOptions(EncoderOptions, total=False):
    """Options of `score_dataset`: those of a backbone, of the dataset and of the statistics.

    Attributes:
        modality: `image` (default), or `text` for texts.
        text_column: Column of a table with texts; `text` by default.
        split: Sub-folder or named split to use.
        image_column: Column of a table with image bytes or paths.
        label_column: Column of a table with the labels.
        id_column: Column of a table whose text is the sample id.
        limit: Number of samples to use, evenly spaced.
        corrupt: Corruption of every image before anything else, such as "fog:3"; none by default.
        augment_runs: Random crops and flips of each image; 0 (default) for none.
        seed: Seed of augmentation and K-means.
        on_error: `skip` (default) lists images that cannot be read, `stop` ends at the first.
        resume: Whether to keep features that an earlier call left beside `out`. By default they
            are kept for files and Hugging Face datasets; whether other images in memory have
            changed cannot be seen.
        shrinkage: As for `score`.
        matmul_dtype: As for `score`.
        scorers: As for `score`.
        near_duplicates: As for `score`.
    """

    modality: Literal["image", "text"]
    text_column: str | None
    split: str | None
    image_column: str | None
    label_column: str | None
    id_column: str | None
    limit: int | None
    corrupt: str | None
    augment_runs: int
    seed: int
    on_error: Literal["skip", "stop"]
    resume: bool
    shrinkage: Shrinkage
    matmul_dtype: str
    scorers: Sequence[str]
    near_duplicates: float | None


def require_names(options: Mapping[str, Any], kind: type, function: str) -> None:
    """Raises TypeError, as Python does, where an option is unknown."""
    known = get_type_hints(kind)
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            suggestion = f"; did you mean {close[0]!r}?" if close else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{suggestion}")


def require_bounds(options: Mapping[str, Any]) -> None:
    """Raises ConfigError where a number or a name is outside of what the option takes anywhere.

    Options with a choice of words are checked where they are used, by errors that suggest one.
    """
    checked = {*ReadingOptions.model_fields, "augment_runs", "seed"}
    given = {name: value for name, value in options.items() if name in checked}
    try:
        DatasetScoring(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        reason = first["msg"].removeprefix("Input ")
        raise ConfigError(f"{name}={given[name]!r} {reason}", parameter=name) from None


def network_options(options: Mapping[str, Any]) -> BackboneOptions:
    """Device, precision and weights of a backbone.

    Raises:
        BackboneError: This machine has no such device, or the precision is unknown.
    """
    device = choose_device(options.get("device", "auto"))
    precision = options.get("precision", "auto")
    if precision == "auto" and options.get("modality") == "text":
        precision = "fp32"  # which encoders of texts compute in
    require_known(precision, ("auto", *PRECISIONS), "precision", BackboneError)
    weights = options.get("weights")
    return BackboneOptions(
        weights=None if weights is None else str(weights),
        features=options.get("features", "penultimate"),
        device=device,
        precision=choose_precision(precision, device),
        flip=options.get("flip", False),
    )


def extract_options(options: Mapping[str, Any]) -> ExtractOptions:
    """How images become features.

    Raises:
        ImageError: A value is unknown.
    """
    require_known(options.get("on_error", "skip"), ("skip", "stop"), "on_error", ImageError)
    require_known(options.get("mode", "fast"), ("fast", "exact"), "mode", ImageError)
    corruption = None
    if options.get("corrupt") is not None:
        # Imported here, because SciPy takes time that other calls need not spend.
        from difficulty_service.images.corruptions import parse_corruption

        corruption = parse_corruption(options["corrupt"], options.get("seed", 0))
    return ExtractOptions(
        batch_size=options.get("batch_size"),
        corruption=corruption,
        augment_runs=options.get("augment_runs", 0),
        seed=options.get("seed", 0),
        mode=options.get("mode", "fast"),
        max_pixels=options.get("max_pixels", DEFAULT_MAX_PIXELS),
        stop_on_error=options.get("on_error", "skip") == "stop",
        workers=options.get("workers"),
        open_precision=options.get("precision", "auto") == "auto",
    )


def dataset_options(options: Mapping[str, Any]) -> DatasetOptions:
    """How a dataset is read.

    Raises:
        DatasetError: The modality is unknown, or there is a column of texts without that modality.
    """
    modality, text_column = options.get("modality", "image"), options.get("text_column")
    require_known(modality, ("image", "text"), "modality", DatasetError)
    if modality == "text":
        text_column = text_column or "text"
    elif text_column is not None:
        raise DatasetError(
            "text_column does not apply to images",
            "set ",
            Setting("modality", "text"),
            parameter="text_column",
        )
    return DatasetOptions(
        text_column=text_column,
        split=options.get("split"),
        image_column=options.get("image_column"),
        label_column=options.get("label_column"),
        id_column=options.get("id_column"),
        limit=options.get("limit"),
    )


@contextmanager
def progress_bar(
    unit: str = "image", *, shown: bool
) -> Iterator[Callable[[ExtractProgress], None]]:
    """Gives a function that shows the progress of an extraction.

    Args:
        unit: What the samples are in a word.
        shown: Whether there is a bar at all.
    """
    from tqdm.auto import tqdm

    with tqdm(unit=unit, disable=not shown) as bar:

        def update(progress: ExtractProgress) -> None:
            if bar.total != progress.total:  # the first call; what is done was done by another run
                bar.reset(total=progress.total)
                bar.initial = progress.done
            if progress.bad:
                bar.set_postfix(bad=progress.bad, refresh=False)
            bar.update(progress.done - bar.n)

        yield update
