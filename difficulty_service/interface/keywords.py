"""The options that a caller may pass by name, once more for type checkers.

Written by `python docs/keywords.py` from the models, which check the values but cannot be read by
type checkers; a test holds it against them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict


class DeviceChoices(TypedDict, total=False):
    """Options of where and how a backbone runs.

    Attributes:
        weights: Local weights file (safetensors or PyTorch) instead of a download.
        device: auto, cpu, cuda, cuda:1, mps; all: every NVIDIA GPU, for features. Default: `auto`.
        precision: auto: int8 for builtin-photos on CPUs; `score_dataset` takes fp16 or bf16 if
            faster with the same ranks; else fp32. Default: `auto`.
        batch_size: Images per forward pass; default: 256 on a GPU, on a CPU 64 small or 8 large
            ones.
        workers: Threads, or with a GPU processes, that read and decode images; default: all cores,
            or one per actor of a cluster without GPUs.
    """

    weights: str | Path | None
    device: str
    precision: Literal["auto", "fp32", "bf16", "fp16", "int8"]
    batch_size: int | None
    workers: int | None


class EncoderOptions(DeviceChoices, total=False):
    """Options of a backbone and of how images are read for it.

    Attributes:
        features: CLIP features before or after the projection. Default: `penultimate`.
        image_size: Side length of the square input in pixels, if the network accepts others; takes
            time quadratic in it.
        preprocess: exact: bit for bit like open_clip or timm, but slower; gpu: an NVIDIA GPU
            decodes JPEGs. Default: `fast`.
        pixel_range: Values shown as black and white if images have more than 8 bits, such as
            0:4095; default: one range for all images, found in some of them.
        bands: Bands of a TIFF for red, green and blue, such as 4,3,2, or a single one; needed
            beyond three bands.
        page: Page of a TIFF to read, such as middle for stacks of a microscope; default: the first.
        flip: Average the features of each image and its mirror image; the network takes twice as
            long. Default: `False`.
        augmentation: Kind of these views: crop of 35 % of the area or more, or as in training
            random_resized_crop (8 % or more) or flip_crop. Default: `crop`.
        max_pixels: Refuse images with more pixels than this. Default: 50,000,000.
    """

    features: Literal["penultimate", "projected"]
    image_size: int | None
    preprocess: Literal["fast", "exact", "gpu"]
    pixel_range: str | None
    bands: str | None
    page: str | None
    flip: bool
    augmentation: Literal["crop", "flip_crop", "random_resized_crop"]
    max_pixels: int


class DatasetChoices(TypedDict, total=False):
    """Options of how a dataset is read.

    Attributes:
        format: Format of the dataset; detected automatically if omitted.
        split: Subfolder or named split to use.
        image_column: Table column with image bytes or paths; detected automatically if omitted.
        label_column: Table column with the labels; detected by its name if omitted.
        id_column: Table column with the sample ids; by default a unique path column, or else
            file#row.
        text_column: Table column with the texts to score, instead of images.
        class_names: Names of the classes whose labels are 0, 1, 2, ...: a list, or a text with
            commas between.
        unlabelled: Ignore labels and class folders, or read a dataset without any; unusual samples,
            copies and image faults are still found. Default: `False`.
        outlines: Grey out everything outside the outline of each object. Default: `False`.
        limit: Use this many samples, evenly spaced.
        modality: text: score texts; not needed if `text_column` is given. Default: `image`.
    """

    format: str | None
    split: str | None
    image_column: str | None
    label_column: str | None
    id_column: str | None
    text_column: str | None
    class_names: str | Sequence[str] | None
    unlabelled: bool
    outlines: bool
    limit: int | None
    modality: Literal["image", "text"]


class ReadingChoices(EncoderOptions, DatasetChoices, total=False):
    """Options of a backbone and of a dataset.

    Attributes:
        corrupt: Corrupt the images first: a name and a severity from 1 to 5, such as fog:3.
        augment_runs: Number of random crops and flips of each image, whose scores are averaged; 0
            for none. Default: 0.
        seed: Random seed, used by corruption, augmentation and K-means. Default: 0.
        on_error: Unreadable images: skip and list them, or stop. Default: `skip`.
    """

    corrupt: str | None
    augment_runs: int
    seed: int
    on_error: Literal["skip", "stop"]


class ImageOptions(ReadingChoices, total=False):
    """Options of `score_dataset`: those of a backbone, of the dataset and of the statistics.

    Attributes:
        resume: Reuse features that an earlier call left beside `out`. The default is True for files
            and Hugging Face datasets, and False for other images in memory, where a change would go
            unnoticed.
        shrinkage: Covariance shrinkage: none, ledoit-wolf, oas, leave-one-out, a number from 0 to
            1, or auto: leave-one-out with few samples, else none. Default: `auto`.
        matmul_dtype: Data type of matrix products; auto: float64 if float32 is not precise enough.
            Default: `auto`.
        scorers: Some of rmd, suspicion, agree, ambiguity, kmeans, knn, name_margin; rmd is always
            computed. Default: `rmd,suspicion`.
        near_duplicates: Also find near duplicates by this cosine similarity of features, above 0
            and up to 1, such as 0.97; takes quadratic time.
        classes: Label each image without labels by the one of these names that fits best, by a
            CLIP: a list, or a text with commas between. The labels are then scored like those of
            people.
        clusters: Label unlabelled samples by this number of K-means clusters; auto: the square root
            of half the samples, up to 100.
        tags: Find wrong and missing tags, in the table that has the samples: the column of lists or
            of texts such as a|b, or columns of 0 and 1 for a tag each, as a list or a text such as
            cat,dog or has_*; auto for the column called tags or labels. A row of the scores is a
            decision about a tag.
        tag_separator: Separator between the tags of a text; default: a vertical bar.
    """

    resume: bool
    shrinkage: Literal["auto", "none", "ledoit-wolf", "oas", "leave-one-out"] | float
    matmul_dtype: Literal["auto", "float32", "float64"]
    scorers: Sequence[str]
    near_duplicates: float | None
    classes: str | Sequence[str] | None
    clusters: Literal["auto"] | int | None
    tags: str | Sequence[str] | None
    tag_separator: str | None


class ExplainOptions(EncoderOptions, total=False):
    """Options of `explain`: those of a backbone, and of the dataset as for `score_dataset`.

    Attributes:
        split: Subfolder or named split to use.
        image_column: Table column with image bytes or paths; detected automatically if omitted.
        label_column: Table column with the labels; detected by its name if omitted.
        id_column: Table column with the sample ids; by default a unique path column, or else
            file#row.
    """

    split: str | None
    image_column: str | None
    label_column: str | None
    id_column: str | None
