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
        weights: Weights file (safetensors or PyTorch) instead of the hub's.
        device: auto, cpu, cuda, cuda:1, mps. Default: `auto`.
        precision: auto: bf16 on recent GPUs, else fp32; `score_dataset` also takes bf16 on CPUs
            where faster with the same ranks. Default: `auto`.
        batch_size: Images in one forward pass; default: 256 on a GPU, 64 small or 8 large on a CPU.
        workers: Threads, or for many images beside a GPU processes, that read and decode images,
            and without a GPU also run the network; default: all cores, or on a cluster without GPUs
            one per actor.
    """

    weights: str | Path | None
    device: str
    precision: Literal["auto", "fp32", "bf16"]
    batch_size: int | None
    workers: int | None


class EncoderOptions(DeviceChoices, total=False):
    """Options of a backbone and of how images are read for it.

    Attributes:
        features: Before or after CLIP's projection. Default: `penultimate`.
        image_size: Side of the network's square input in pixels, where it takes others than its
            own; default: its own. The time grows with the square.
        preprocess: exact: bit for bit like open_clip or timm, slower. Default: `fast`.
        flip: Mean features of each image and its mirror image, for twice the time of the network.
            Default: `False`.
        max_pixels: Refuse images with more pixels than this. Default: 50,000,000.
    """

    features: Literal["penultimate", "projected"]
    image_size: int | None
    preprocess: Literal["fast", "exact"]
    flip: bool
    max_pixels: int


class DatasetChoices(TypedDict, total=False):
    """Options of how a dataset is read.

    Attributes:
        format: How the dataset is read, where it may be read in several ways; recognised where none
            is named.
        split: Sub-folder or named split to use.
        image_column: Column of a table with image bytes or paths; found by its content where none
            is named.
        label_column: Column of a table with the labels; found by its name where none is named.
        id_column: Column of a table whose text is the sample id; otherwise a unique path, or
            file#row.
        text_column: Column of a table whose texts are the samples, in place of images.
        unlabelled: Ignore labels and class folders, or read what has none, such as a table without
            a column of labels: unusual samples, copies and faults of images are found all the same.
            Default: `False`.
        outlines: Of objects in boxes, show what is inside of their outlines: the rest becomes grey.
            Default: `False`.
        limit: Use this many samples, evenly spaced.
        modality: text: the samples are texts; not needed where their column is named. Default:
            `image`.
    """

    format: str | None
    split: str | None
    image_column: str | None
    label_column: str | None
    id_column: str | None
    text_column: str | None
    unlabelled: bool
    outlines: bool
    limit: int | None
    modality: Literal["image", "text"]


class ReadingChoices(EncoderOptions, DatasetChoices, total=False):
    """Options of a backbone and of a dataset.

    Attributes:
        corrupt: Corrupt images first, by a name and a level from 1 to 5: fog:3.
        augment_runs: Random crops and flips of each image: fitted on all, scores averaged; 0 for
            none. Default: 0.
        seed: Seed of all that is random, such as corruption, augmentation and K-means. Default: 0.
        on_error: What happens where an image cannot be read: it is skipped and listed, or the run
            ends. Default: `skip`.
    """

    corrupt: str | None
    augment_runs: int
    seed: int
    on_error: Literal["skip", "stop"]


class ImageOptions(ReadingChoices, total=False):
    """Options of `score_dataset`: those of a backbone, of the dataset and of the statistics.

    Attributes:
        resume: Keep features that an earlier call left beside `out`. By default they are kept for
            files and Hugging Face datasets: whether other images in memory have changed cannot be
            seen.
        shrinkage: Shrinkage of the covariance: auto (leave-one-out with few samples, otherwise
            none), none, ledoit-wolf, oas, leave-one-out (a ridge chosen by leave-one-out
            likelihood), or a number from 0 to 1. Default: `auto`.
        matmul_dtype: dtype of the matrix products; auto: float64 where float32 would not do.
            Default: `auto`.
        scorers: Some of rmd, suspicion, agree, kmeans, knn; rmd is always computed. Default:
            `rmd,suspicion`.
        near_duplicates: Also find near copies: samples whose features have at least this cosine,
            above 0 and up to 1. 0.97 is a good start. The time grows with the square of the number
            of samples.
        classes: Label each image without labels by the one of these names that fits best, by a
            CLIP: a list, or a text with commas between. The labels are then scored like those of
            people.
        clusters: Label samples without labels by clusters of their features: a number, or auto for
            the square root of half the samples, up to 100.
        tags: Find wrong and missing tags, in the table that has the samples: the column of lists or
            of texts such as a|b, or columns of 0 and 1 for a tag each, as a list or a text such as
            cat,dog or has_*; auto for the column called tags or labels. A row of the scores is a
            decision about a tag.
        tag_separator: What is between the tags of a text; default: |.
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
        split: Sub-folder or named split to use.
        image_column: Column of a table with image bytes or paths; found by its content where none
            is named.
        label_column: Column of a table with the labels; found by its name where none is named.
        id_column: Column of a table whose text is the sample id; otherwise a unique path, or
            file#row.
    """

    split: str | None
    image_column: str | None
    label_column: str | None
    id_column: str | None
