"""The options that a caller may pass by name: those of `difficulty_service.settings.options`.

They stand here once more for type checkers, which cannot read models; the values are checked by the
models. The progress bar of an extraction, in a terminal or a notebook.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, get_type_hints

import numpy as np
from pydantic import ValidationError

from difficulty_service.base.errors import ConfigError
from difficulty_service.base.wording import did_you_mean, explain_invalid
from difficulty_service.gaussians.fit_options import Shrinkage
from difficulty_service.images.preparation import Mode
from difficulty_service.scoring.pipeline import ExtractProgress
from difficulty_service.settings.option_rules import chosen_for_features, require_compatible
from difficulty_service.settings.options import (
    EncodingOptions,
    ExtractionOptions,
    ListingOptions,
    NetworkOptions,
    Options,
    RunOptions,
    ScoringOptions,
)

Model = TypeVar("Model", bound=Options)


class DeviceChoices(TypedDict, total=False):
    """Options of where and how a backbone runs.

    Attributes:
        weights: Weights file instead of those of the hub.
        device: `auto` (default), `cpu`, `cuda`, `cuda:1` or `mps`.
        precision: `auto` (default), `fp32` or `bf16`. `auto` is bf16 on recent GPUs, otherwise
            fp32; `score_dataset` also takes bf16 on CPUs where that is faster and ranks alike.
        batch_size: Images in one forward pass; by default what suits the device.
        workers: Threads that read and decode; by default all cores.
    """

    weights: str | Path | None
    device: str
    precision: str
    batch_size: int | None
    workers: int | None


class EncoderOptions(DeviceChoices, total=False):
    """Options of a backbone and of how images are read for it.

    Attributes:
        features: `penultimate` (default), or `projected` for CLIP's shared space.
        flip: Whether features are the mean of those of the image and of its mirror image, for twice
            the time of the network; False by default.
        image_size: Side of the network's square input in pixels, where it takes others than its
            own; by default its own.
        preprocess: `fast` (default), or `exact` for bit for bit what open_clip does.
        max_pixels: Largest number of pixels of an image.
    """

    features: str
    flip: bool
    image_size: int | None
    preprocess: Mode
    max_pixels: int


class DatasetChoices(TypedDict, total=False):
    """Options of how a dataset is read.

    Attributes:
        modality: `image` (default), or `text` for texts.
        text_column: Column of a table with texts; `text` by default.
        format: How the dataset is read, such as `coco` or `image-folder`, where it may be read in
            several ways; recognised by default.
        split: Sub-folder or named split to use.
        image_column: Column of a table with image bytes or paths.
        label_column: Column of a table with the labels.
        id_column: Column of a table whose text is the sample id.
        unlabelled: Whether labels are ignored, or absent; False by default.
        outlines: Whether what is outside of the outlines of objects in boxes becomes grey.
        limit: Number of samples to use, evenly spaced.
    """

    modality: Literal["image", "text"]
    text_column: str | None
    format: str | None
    split: str | None
    image_column: str | None
    label_column: str | None
    id_column: str | None
    unlabelled: bool
    outlines: bool
    limit: int | None


class ReadingChoices(EncoderOptions, DatasetChoices, total=False):
    """Options of a backbone and of a dataset.

    Attributes:
        corrupt: Corruption of every image before anything else, such as "fog:3"; none by default.
        augment_runs: Random crops and flips of each image; 0 (default) for none.
        seed: Seed of augmentation, K-means and samples that are drawn.
        on_error: `skip` (default) lists images that cannot be read, `stop` ends at the first.
    """

    corrupt: str | None
    augment_runs: int
    seed: int
    on_error: Literal["skip", "stop"]


class ImageOptions(ReadingChoices, total=False):
    """Options of `score_dataset`: those of a backbone, of the dataset and of the statistics.

    Attributes:
        resume: Whether to keep features that an earlier call left beside `out`. By default they
            are kept for files and Hugging Face datasets; whether other images in memory have
            changed cannot be seen.
        shrinkage: As for `score`.
        matmul_dtype: As for `score`.
        scorers: As for `score`.
        near_duplicates: As for `score`.
        classes: Names of classes, as a list or separated by commas, by the best of which images
            without labels are labelled.
        clusters: Number of clusters, or `auto`, by which samples without labels are labelled.
        tags: Column with any number of tags of each sample, or columns of 0 and 1 for a tag each,
            as a list or separated by commas; `auto` for the usual one. Wrong and missing tags are
            found in place of wrong labels, and a row of the scores is a decision about one.
        tag_separator: What is between the tags of a text; by default `|`.
    """

    resume: bool
    shrinkage: Shrinkage
    matmul_dtype: str
    scorers: Sequence[str]
    near_duplicates: float | None
    classes: str | Sequence[str] | None
    clusters: int | Literal["auto"] | None
    tags: str | Sequence[str] | None
    tag_separator: str | None


def require_names(options: Mapping[str, Any], kind: type, function: str) -> None:
    """Raises TypeError, as Python does, where an option is unknown."""
    known = get_type_hints(kind)
    for name in options:
        if name not in known:
            said = f"{function}() got an unexpected keyword argument {name!r}"
            raise TypeError("; ".join(filter(None, [said, did_you_mean(name, known).strip()])))


def read_options(model: type[Model], given: Mapping[str, Any]) -> Model:
    """Those of some options that a model has, checked."""
    values = {name: _plain(given[name]) for name in model.model_fields if name in given}
    try:
        return model(**values)
    except ValidationError as error:
        sentence = explain_invalid(error, lambda name, value: f"{name}={value!r}")
        raise ConfigError(sentence, parameter=str(error.errors()[0]["loc"][0])) from None


def _plain(value: object) -> object:
    """A value as JSON has it: a number of NumPy is one of Python, and a path a text."""
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, Path) else value


def scoring_options(given: Mapping[str, Any]) -> ScoringOptions:
    """How features become scores; a scorer may be given as it is, classes and tags as a list."""
    names = given.get("scorers", ())
    if isinstance(names, str):
        given = {**given, "scorers": [names]}
    for name in ("classes", "tags"):
        listed = given.get(name)
        if listed is not None and not isinstance(listed, str):
            given = {**given, name: ",".join(listed)}
    return read_options(ScoringOptions, given)


def extraction_options(given: Mapping[str, Any]) -> ExtractionOptions:
    """How a dataset becomes features."""
    chosen = ExtractionOptions(
        read_options(ListingOptions, given),
        read_options(EncodingOptions, given),
        read_options(NetworkOptions, given),
        read_options(RunOptions, given),
    )
    require_compatible(chosen_for_features(chosen))
    return chosen


@contextmanager
def progress_bar(*, shown: bool) -> Iterator[Callable[[ExtractProgress], None]]:
    """Gives a function that shows the progress of an extraction, on a bar if there is to be one."""
    from tqdm.auto import tqdm

    with tqdm(unit="", disable=not shown) as bar:

        def update(progress: ExtractProgress) -> None:
            if bar.total != progress.total:  # the first call; what is done was done by another run
                bar.unit = progress.noun
                bar.reset(total=progress.total)
                bar.initial = progress.done
            if progress.bad:
                bar.set_postfix(bad=progress.bad, refresh=False)
            bar.update(progress.done - bar.n)

        yield update
