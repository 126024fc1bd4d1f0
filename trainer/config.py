"""What a training run does, as read from a recipe: checked on construction, never changed."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from difficulty_service.images.header import DEFAULT_MAX_PIXELS

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]

Kind = Literal["images", "features", "text"]
Augmentation = Literal["none", "flip", "flip_crop", "random_resized_crop"]
Normalise = Literal["minmax", "per_dimension", "zscore", "none"]


@dataclass(frozen=True, config=STRICT)
class DataConfig:
    """What is learned from, and what it is judged on.

    Attributes:
        train: Dataset to learn from; any location that `difficulty score` takes, or a folder of
            features made by `difficulty extract`.
        kind: What the dataset holds; "features" is such a folder.
        test: Dataset to judge on, once, at the end.
        validation: Share of every class held out of `train`, or a dataset of its own.
        split: Sub-folder or named split of `train`.
        validation_split: The same of a validation dataset.
        test_split: The same of `test`.
        image_column: Column of a table with image bytes or paths.
        text_column: Column of a table with texts.
        label_column: Column with the labels of `train` and of a validation dataset.
        test_label_column: Column with the labels of `test`; None is `label_column`.
        id_column: Column whose text is the sample id.
        labels: Dataset whose labels, joined by sample id, replace those of a folder of features.
        limit: Use this many training samples, evenly spaced.
        image_size: Height and width in pixels; None is that of the images, which then must agree.
        max_pixels: Maximum number of pixels of an image file; larger ones are refused.
        augmentation: Random changes to training images.
        crop_padding: Black pixels on each side before a "flip_crop".
        label_noise: Share of training labels replaced by another class at random.
        text_length: Words of a text that are used, from its start.
        vocabulary_size: Words that have a token of their own: those most frequent in the training
            texts.
        in_memory: Keep all images decoded on the device; None decides by their size.
        workers: Processes that decode images which are not kept in memory; None is all cores.
    """

    train: str
    kind: Kind = "images"
    test: str | None = None
    validation: Share | str = 0.1
    split: str | None = None
    validation_split: str | None = None
    test_split: str | None = None
    image_column: str | None = None
    text_column: str | None = None
    label_column: str | None = None
    test_label_column: str | None = None
    id_column: str | None = None
    labels: str | None = None
    limit: Count | None = None
    image_size: Count | None = None
    max_pixels: Count = DEFAULT_MAX_PIXELS
    augmentation: Augmentation = "none"
    crop_padding: Annotated[int, Field(ge=0)] = 4
    label_noise: Share = 0.0
    text_length: Count = 1000
    vocabulary_size: Count = 30_000
    in_memory: bool | None = None
    workers: Count | None = None


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """The classifier.

    Attributes:
        name: A key of `trainer.models.MODELS`, or `timm:NAME`.
        options: Those of its builder that differ from their defaults.
    """

    name: str
    options: Mapping[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, config=STRICT)
class LossConfig:
    """The loss.

    Attributes:
        name: A key of `trainer.losses.LOSSES` or `LOSSES_WITH_MEMORY`.
        constants: Those of the loss that differ from their defaults.
    """

    name: str = "cross_entropy"
    constants: Mapping[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, config=STRICT)
class RegulariserConfig:
    """The entropy term and how each sample's difficulty weighs it.

    Attributes:
        alpha: Strength of the entropy term; 0 is none.
        weights: "constant" weighs all samples 1, "scores" by their difficulty.
        scores: Score file; the command line's `--scores` goes before it.
        column: Column of the score file; larger is harder.
        normalise: What is done to scores before the exponential.
        winsorise: Share of scores at either end that "minmax" and "zscore" pull in to the next.
        score_temperature: Divisor of the normalised scores; smaller makes weights more peaked.
        c: Keeps the largest weight below 1.
        missing: A training sample without a score is an "error", or takes the "mean" weight.
    """

    alpha: NotNegative = 0.0
    weights: Literal["constant", "scores"] = "constant"
    scores: str | None = None
    column: str = "rmd"
    normalise: Normalise = "minmax"
    winsorise: Annotated[float, Field(ge=0, lt=0.5)] = 0.001
    score_temperature: Positive = 0.7
    c: NotNegative = 1e-3
    missing: Literal["error", "mean"] = "error"


@dataclass(frozen=True, config=STRICT)
class OptimiserConfig:
    """How gradients change parameters.

    Attributes:
        name: Stochastic gradient descent with momentum, or AdamW.
        learning_rate: At its highest.
        momentum: Of "sgd".
        nesterov: Whether "sgd" looks ahead.
        weight_decay: As the optimiser of that name in PyTorch means it.
        gradient_clip: Longest gradient over all parameters; None for no limit.
    """

    name: Literal["sgd", "adamw"] = "sgd"
    learning_rate: Positive = 0.1
    momentum: Share = 0.9
    nesterov: bool = False
    weight_decay: NotNegative = 0.0
    gradient_clip: Positive | None = None


@dataclass(frozen=True, config=STRICT)
class ScheduleConfig:
    """How the learning rate changes.

    Attributes:
        name: "steps" multiplies by `factor` at each milestone; "cosine" falls to zero;
            "one_cycle" rises in a straight line over `warmup` and falls in one to zero.
        milestones: Epochs, or shares of all epochs where below 1; of "steps".
        factor: Of "steps".
        warmup: Share of all steps over which the rate first rises from zero; any schedule.
    """

    name: Literal["constant", "steps", "cosine", "one_cycle"] = "cosine"
    milestones: tuple[Positive, ...] = ()
    factor: Positive = 0.1
    warmup: Share = 0.0


@dataclass(frozen=True, config=STRICT)
class TrainingConfig:
    """The loop.

    Attributes:
        epochs: Passes over the training samples.
        batch_size: Samples per step, over all processes together.
        seeds: One run each: the split, the order, augmentation and first parameters follow it.
        reduction: Of the losses of a batch; the focal family's papers sum.
        precision: Of forward and backward; "auto" is bf16 where the device computes in it.
        channels_last: Memory format of images; faster for convolutions.
        compile: Compile the model first; pays on a GPU in long runs.
        ema_decay: Judge and keep a moving average of the parameters with this decay per step.
        checkpoint_every: Epochs between checkpoints.
        evaluation_batch_size: Samples per step where nothing is learned.
    """

    epochs: Count
    batch_size: Count = 128
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    reduction: Literal["mean", "sum"] = "mean"
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    channels_last: bool = True
    compile: bool = False
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    checkpoint_every: Count = 1
    evaluation_batch_size: Count = 512


@dataclass(frozen=True, config=STRICT)
class Recipe:
    """One experiment: everything that a run depends on besides its seed.

    Attributes:
        name: What tables and plots call it.
    """

    name: str
    data: DataConfig
    model: ModelConfig
    training: TrainingConfig
    loss: LossConfig = Field(default_factory=LossConfig)
    regulariser: RegulariserConfig = Field(default_factory=RegulariserConfig)
    optimiser: OptimiserConfig = Field(default_factory=OptimiserConfig)
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig)
