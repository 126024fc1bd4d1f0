"""The configuration of a training run, read from a recipe: validated, immutable dataclasses."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from difficulty_service.images.header import DEFAULT_MAX_PIXELS

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]

Kind = Literal["images", "features", "text", "trees"]
Augmentation = Literal["none", "flip", "flip_crop", "random_resized_crop"]
BestBy = Literal["accuracy", "nll", "ece", "adaptive_ece"]
Normalise = Literal["minmax", "per_dimension", "zscore", "none"]


@dataclass(frozen=True, config=STRICT)
class DataConfig:
    """Training, validation and test data.

    Attributes:
        train: Training dataset: any location that `difficulty score` takes, or a feature store
            written by `difficulty extract`.
        kind: Kind of the samples; "features" is a feature store.
        test: Test dataset, evaluated once, at the end.
        validation: Fraction of every class held out of `train`, or a separate dataset.
        split: Sub-folder or named split of `train`.
        validation_split: Sub-folder or named split of a validation dataset.
        test_split: Sub-folder or named split of `test`.
        image_column: Column of a table with image bytes or paths.
        text_column: Column of a table with texts or trees.
        label_column: Column with the labels of `train` and of a validation dataset.
        test_label_column: Column with the labels of `test`; None is `label_column`.
        id_column: Column with the sample ids.
        labels: Dataset whose labels, joined by sample id, replace those of a feature store.
        limit: Number of training samples to use, evenly spaced; None is all.
        image_size: Height and width in pixels; None is the size of the images, which must then be
            equal.
        max_pixels: Maximum number of pixels of an image file; larger ones are refused.
        on_error: What to do with images that cannot be read: "skip" checks all images before the
            run starts, lists those and goes on without them; "stop" ends the run.
        augmentation: Random augmentation of training images.
        crop_padding: Width in pixels of the black border added before a "flip_crop".
        label_noise: Fraction of training labels replaced by another class at random.
        text_length: Maximum number of words of a text, or of tokens of a pretrained network; the
            rest is cut off.
        vocabulary_size: Maximum number of words with their own token: the most frequent ones of
            the training texts.
        phrases: Whether every labelled phrase of a tree is a training sample, not only the whole
            sentence; a batch then has `training.batch_size` sentences with all their phrases.
        in_memory: Whether to keep all images decoded on the device; None decides by their size.
        workers: Number of processes that decode images not kept in memory; None is all cores.
    """

    train: str
    kind: Kind = "images"
    test: str | None = None
    validation: Fraction | str = 0.1
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
    on_error: Literal["skip", "stop"] = "skip"
    augmentation: Augmentation = "none"
    crop_padding: Annotated[int, Field(ge=0)] = 4
    label_noise: Fraction = 0.0
    text_length: Count = 1000
    vocabulary_size: Count = 30_000
    phrases: bool = True
    in_memory: bool | None = None
    workers: Count | None = None


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """The classifier.

    Attributes:
        name: A key of `trainer.models.MODELS`, `timm:NAME` or `transformers:NAME`.
        options: Options of its builder that differ from their defaults.
    """

    name: str
    options: Mapping[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, config=STRICT)
class LossConfig:
    """The loss.

    Attributes:
        name: A key of `trainer.losses.LOSSES` or `LOSSES_WITH_MEMORY`.
        constants: Constants of the loss that differ from their defaults.
        weights: "constant" counts all samples alike, "label_probability" by the probability that
            their label is right.
        targets: "labels" are the labels as given, "posterior" the given label and the likeliest
            other class, by their probabilities.
        scores: Score file with both; the argument of the command line takes precedence.
        missing: What to do with a training sample whose label nothing is known about: "error"
            refuses it, "keep" trains on its label as given.
    """

    name: str = "cross_entropy"
    constants: Mapping[str, Any] = Field(default_factory=dict)
    weights: Literal["constant", "label_probability"] = "constant"
    targets: Literal["labels", "posterior"] = "labels"
    scores: str | None = None
    missing: Literal["error", "keep"] = "error"

    @property
    def doubts_labels(self) -> bool:
        """Whether the loss depends on how likely labels are to be right."""
        return self.weights != "constant" or self.targets != "labels"


@dataclass(frozen=True, config=STRICT)
class RegulariserConfig:
    """The entropy term and its weight for each sample.

    Attributes:
        alpha: Strength of the entropy term; 0 disables it.
        weights: "constant" weighs all samples by 1, "scores" by their difficulty.
        scores: Score file; the argument of the command line takes precedence.
        column: Column of the score file; larger is harder.
        normalise: Normalisation of the scores before the exponential.
        winsorise: Fraction of scores clipped at either end by "minmax" and "zscore".
        score_temperature: Divisor of the normalised scores; smaller makes weights more peaked.
        c: Constant of equation 10 that keeps the largest weight below 1.
        missing: What to do with a training sample without a score: "error" refuses it, "mean"
            gives it the mean weight.
        unreliable: What to do with scores that are marked as unreliable: "error" refuses them,
            "allow" uses them.
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
    unreliable: Literal["error", "allow"] = "error"


@dataclass(frozen=True, config=STRICT)
class OptimiserConfig:
    """The optimiser.

    Attributes:
        name: Stochastic gradient descent with momentum, AdamW, or AdaGrad.
        learning_rate: Highest learning rate of the schedule.
        momentum: Momentum of "sgd".
        nesterov: Whether "sgd" uses Nesterov momentum.
        weight_decay: Weight decay, as defined by PyTorch's optimiser of that name.
        gradient_clip: Maximum norm of the gradient over all parameters; None for no limit.
    """

    name: Literal["sgd", "adamw", "adagrad"] = "sgd"
    learning_rate: Positive = 0.1
    momentum: Fraction = 0.9
    nesterov: bool = False
    weight_decay: NotNegative = 0.0
    gradient_clip: Positive | None = None


@dataclass(frozen=True, config=STRICT)
class ScheduleConfig:
    """The schedule of the learning rate.

    Attributes:
        name: "steps" multiplies by `factor` at each milestone; "cosine" falls to zero;
            "one_cycle" rises linearly over `warmup` and falls linearly to zero.
        milestones: Milestones of "steps": epochs, or fractions of all epochs where below 1.
        factor: Factor of "steps".
        warmup: Fraction of all steps during which the rate rises from zero, for any schedule.
    """

    name: Literal["constant", "steps", "cosine", "one_cycle"] = "cosine"
    milestones: tuple[Positive, ...] = ()
    factor: Positive = 0.1
    warmup: Fraction = 0.0


@dataclass(frozen=True, config=STRICT)
class TrainingConfig:
    """The training loop.

    Attributes:
        epochs: Number of passes over the training samples.
        batch_size: Number of samples per step, over all processes together.
        seeds: Seeds of the runs; a seed decides the split, the order, augmentation and the initial
            parameters.
        reduction: Reduction of the losses of a batch; the focal family's papers use the sum.
        precision: Precision of forward and backward; "auto" is bf16 where the device supports it.
        channels_last: Whether images have their channels last in memory, which is faster for
            convolutions.
        compile: Whether to compile the model, which is faster on a GPU in long runs.
        ema_decay: Decay per step of a moving average of the parameters, which is then evaluated
            and saved; None keeps no average.
        checkpoint_every: Number of epochs between checkpoints.
        evaluation_batch_size: Number of samples per step of evaluation.
        final: Epoch whose model is evaluated and saved: the "last", or the "best" by `best_by` on
            the validation samples.
        best_by: Validation metric of "best"; the first epoch wins a tie.
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
    final: Literal["last", "best"] = "last"
    best_by: BestBy = "accuracy"


@dataclass(frozen=True, config=STRICT)
class UncertaintyConfig:
    """The uncertainty head, which is trained once the classifier is.

    Attributes:
        epochs: Number of passes over the training samples; 0 trains no head.
        objective: "ranking" orders samples by their loss, "squared" predicts its value.
        margin: Difference of uncertainties from which a pair of "ranking" counts as right.
        leeway: Difference of losses, in nats, below which a pair of "ranking" has no order.
        hidden: Width of each hidden layer; none for a linear head.
        batch_size: Number of samples per step.
        learning_rate: Highest learning rate of AdamW, which falls by a cosine.
        weight_decay: Weight decay of AdamW.
        warmup: Fraction of all steps during which the rate rises from zero.
    """

    epochs: Annotated[int, Field(ge=0)] = 0
    objective: Literal["ranking", "squared"] = "ranking"
    margin: Positive = 0.1
    leeway: NotNegative = 0.0
    hidden: tuple[Count, ...] = (512, 512)
    batch_size: Annotated[int, Field(ge=2)] = 256
    learning_rate: Positive = 1e-3
    weight_decay: NotNegative = 1e-4
    warmup: Fraction = 0.05


@dataclass(frozen=True, config=STRICT)
class Recipe:
    """One experiment: everything that a run depends on except its seed.

    Attributes:
        name: Name in tables and plots.
        data: Training, validation and test data.
        model: Classifier.
        training: Training loop.
        loss: Loss.
        regulariser: Entropy term.
        optimiser: Optimiser.
        schedule: Schedule of the learning rate.
        uncertainty: Uncertainty head.
    """

    name: str
    data: DataConfig
    model: ModelConfig
    training: TrainingConfig
    loss: LossConfig = Field(default_factory=LossConfig)
    regulariser: RegulariserConfig = Field(default_factory=RegulariserConfig)
    optimiser: OptimiserConfig = Field(default_factory=OptimiserConfig)
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig)
    uncertainty: UncertaintyConfig = Field(default_factory=UncertaintyConfig)
