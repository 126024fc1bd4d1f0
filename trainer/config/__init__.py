"""The configuration of a training run, read from a recipe: validated, immutable models.

Every key of a recipe is one field, with its type, bounds, default and one sentence. Where a key
such as `data.kind` decides which others make sense, each of its values has a model of its own. What
else a key depends on is declared at its field.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, NonNegativeInt, ValidationInfo, field_validator

from difficulty_service.dataset_formats import Format
from difficulty_service.images.header import DEFAULT_MAX_PIXELS
from difficulty_service.images.pixels import Pixels
from difficulty_service.settings.pixel_types import Bands, Page, Range
from trainer.config.steps import CosineRate, Optimiser, RandomOrder, Sampling, Schedule, Sgd
from trainer.config.table import Count, Fraction, Needs, NotNegative, Positive, RecipeTable, needs
from trainer.transformers_files import encoder_of

Kind = Literal["images", "features", "text", "trees"]
Augmentation = Literal["none", "flip", "flip_crop", "random_resized_crop"]
Mixing = Literal["none", "mixup", "cutmix", "either"]
BestBy = Literal["accuracy", "nll", "ece", "adaptive_ece"]
Normalise = Literal["minmax", "per_dimension", "zscore", "none"]


class AnyData(RecipeTable):
    """Training, validation and test data of any kind."""

    train: str
    """Training dataset, as `difficulty score` takes it; for features, a folder of `difficulty
    extract`, or an `.npz`, `.npy` or Parquet file."""
    test: str | None = None
    """Test dataset, evaluated once at the end."""
    validation: Fraction | str = 0.1
    """Fraction of every class held out of `train`, drawn by the seed; or a separate dataset."""
    limit: Count | None = None
    """Number of training samples, evenly spaced; default: all."""
    label_noise: Fraction = 0.0
    """Fraction of training labels replaced by another class at random."""


VALIDATION_DATASET = Needs(
    ("data.validation",),
    lambda validation: isinstance(validation, str),
    "has no effect: it needs a dataset in data.validation, which is a fraction of data.train",
)
TEST_DATASET = Needs(
    ("data.test",), lambda test: test is not None, "has no effect: it needs a dataset in data.test"
)


class ListedData(AnyData):
    """Data in datasets that are listed, and so have splits and columns."""

    split: str | None = None
    """Sub-folder or named split of `train`."""
    validation_split: Annotated[str | None, VALIDATION_DATASET] = None
    """Split of a validation dataset."""
    test_split: Annotated[str | None, TEST_DATASET] = None
    """Split of `test`."""
    label_column: str | None = None
    """Labels of `train` and of a validation dataset; found by default."""
    test_label_column: Annotated[str | None, TEST_DATASET] = None
    """Labels of `test`, where the name differs from `label_column`."""
    id_column: str | None = None
    """Sample ids; found by default."""


NOT_IN_MEMORY = Needs(
    ("data.in_memory",),
    lambda in_memory: in_memory is not True,
    "has no effect with data.in_memory = true: images in memory are decoded once; remove one of "
    "the two",
)


class ImageData(ListedData):
    """Images, for networks of images."""

    kind: Literal["images"] = "images"
    format: Format | None = None
    """How the datasets are read, such as "coco" or "image-folder"; recognised by default."""
    distribution_column: str | None = None
    """Column of a table with a list per sample: how many votes, or what share, each class has."""
    image_column: str | None = None
    """Image bytes or paths; found by default."""
    image_size: Count | None = None
    """Height and width in pixels; default: the size of the images, which must be equal."""
    max_pixels: Count = DEFAULT_MAX_PIXELS
    """Maximum number of pixels; larger files are refused."""
    pixel_range: Range | None = None
    """Values shown as black and white if images have more than 8 bits, such as "0:4095"; default:
    the upper 8 of 16 bits. Scores, if there are some, must have the same range."""
    bands: Bands | None = None
    """Bands of a TIFF for red, green and blue, such as "4,3,2", or a single one; as in the
    scores."""
    page: Page | None = None
    """Page of a TIFF: "first", "middle", "last" or its number; as in the scores."""
    on_error: Literal["skip", "stop"] = "skip"
    """Unreadable images: "skip" finds them before the run starts, lists them and goes on without
    them; "stop" ends the run."""
    augmentation: Augmentation = "none"
    """Random augmentation of training images."""
    crop_padding: Annotated[int, Field(ge=0), needs("data.augmentation", "flip_crop")] = 4
    """Black border in pixels before a "flip_crop"."""
    in_memory: bool | None = None
    """Keep all images decoded on the device; default: if they take up to 4 GiB."""
    workers: Annotated[Count | None, NOT_IN_MEMORY] = None
    """Processes that decode images not kept in memory; default: one per core."""

    @property
    def pixels(self) -> Pixels | None:
        """What is seen of more than eight bits, many bands and pages; None for the usual."""
        return Pixels.chosen(self.pixel_range, self.bands, self.page)


LABELS = Needs(
    ("data.labels",),
    lambda labels: labels is not None,
    "has no effect: features are read as they are; it needs a dataset in data.labels",
)


class FeatureData(AnyData):
    """Features that `difficulty extract` wrote, for a probe."""

    hints: ClassVar[Mapping[str, str]] = {
        "validation_split": "remove it, as feature stores have no splits",
        "test_split": "remove it, as feature stores have no splits",
        "test_label_column": "remove it, as feature stores hold their labels",
    }
    kind: Literal["features"] = "features"
    distribution_column: Annotated[str | None, LABELS] = None
    """Column of a table with a list per sample: how many votes, or what share, each class has."""
    labels: str | None = None
    """Dataset whose labels, joined by id, replace the labels of the training features."""
    split: Annotated[str | None, LABELS] = None
    """Split of `labels`."""
    image_column: Annotated[str | None, LABELS] = None
    """Images of `labels`; found by default."""
    label_column: Annotated[str | None, LABELS] = None
    """Label column of `labels`; found by default."""
    id_column: Annotated[str | None, LABELS] = None
    """Ids of `labels`; found by default."""


OWN_WORDS = Needs(
    ("model.name",),
    lambda name: encoder_of(name) is None,
    'has no effect with model.name = "{}", which has its own vocabulary; remove it',
)


class WordData(ListedData):
    """Tables of words in some form."""

    hints: ClassVar[Mapping[str, str]] = {"image_column": "name the column with data.text_column"}
    text_column: str | None = None
    """Texts or trees; found by name by default."""
    vocabulary_size: Annotated[Count, OWN_WORDS] = 30_000
    """Maximum number of words with their own token, the most frequent in training."""


class TextData(WordData):
    """Texts, for `text_cnn` and `transformers:NAME`."""

    kind: Literal["text"] = "text"
    distribution_column: str | None = None
    """Column of a table with a list per sample: how many votes, or what share, each class has."""
    text_length: Count = 1000
    """Maximum number of words, or tokens of a pretrained network; the rest is cut off."""


class TreeData(WordData):
    """Parse trees of sentences, for `tree_lstm`."""

    kind: Literal["trees"] = "trees"
    phrases: bool = True
    """Train on every labelled phrase of a tree, not only on the sentence; `training.batch_size`
    then counts sentences."""


Data = Annotated[ImageData | FeatureData | TextData | TreeData, Field(discriminator="kind")]


class ModelConfig(RecipeTable):
    """The classifier."""

    name: str
    """Name of the network, whose options are further keys."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Options of its builder that differ from their defaults."""


DOUBTS = Needs(
    ("loss.weights", "loss.targets"),
    lambda weights, targets: weights != "constant" or targets != "labels",
    'has no effect with loss.weights = "{}" and loss.targets = "{}"; set loss.weights = '
    '"label_probability" or loss.targets = "posterior"',
)


class LossConfig(RecipeTable):
    """The loss."""

    name: str = "cross_entropy"
    """Name of the loss, whose constants are further keys."""
    constants: Mapping[str, Any] = Field(default_factory=dict)
    """Constants of the loss that differ from their defaults."""
    weights: Literal["constant", "label_probability"] = "constant"
    """Weight of a sample: 1, or the probability that its label is right."""
    targets: Literal["labels", "posterior"] = "labels"
    """The given labels, or these and the likeliest other class by their probabilities."""
    scores: Annotated[str | None, DOUBTS] = None
    """Score file with both; `--scores` overrides it."""
    missing: Annotated[Literal["error", "keep"], DOUBTS] = "error"
    """Training samples about whose labels nothing is known: refused, or trained on as given."""

    @property
    def doubts_labels(self) -> bool:
        """Whether the loss depends on how likely labels are to be right."""
        return DOUBTS.holds(self.weights, self.targets)

    @field_validator("targets")
    @classmethod
    def _doubt_once(cls, targets: str, info: ValidationInfo) -> str:
        if targets != "labels" and info.data.get("weights") == "label_probability":
            raise ValueError(
                'loss.weights = "label_probability" acts on the same doubt a second time; choose '
                "one of the two"
            )
        return targets


class AnyRegulariser(RecipeTable):
    """The entropy term."""

    alpha: NotNegative = 0.0
    """Strength of the entropy term; 0 disables it."""


class ScoreWeights(AnyRegulariser):
    """The difficulty of each sample is the weight of its entropy."""

    weights: Literal["scores"] = "scores"
    scores: str | None = None
    """Score file; `--scores` overrides it."""
    column: str = "rmd"
    """Column of the score file; larger is harder."""
    normalise: Normalise = "minmax"
    """Normalisation of the scores before the exponential."""
    winsorise: Annotated[
        float, Field(ge=0, lt=0.5), needs("regulariser.normalise", "minmax", "zscore")
    ] = 0.001
    """Fraction of scores clipped at either end by "minmax" and "zscore"."""
    score_temperature: Positive = 0.7
    """T of equation 10; smaller makes weights more peaked."""
    c: NotNegative = 1e-3
    """c of equation 10; keeps the largest weight below 1."""
    missing: Literal["error", "mean"] = "error"
    """Training samples without a score: refused, or given the mean weight."""
    unreliable: Literal["error", "allow"] = "error"
    """Scores that are marked as unreliable: refused, or used."""


class EqualWeights(AnyRegulariser):
    """The entropy of every sample has the weight 1."""

    hints: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ScoreWeights.model_fields,
        'set regulariser.weights = "scores" and regulariser.alpha above 0, such as 0.3',
    )
    weights: Literal["constant"] = "constant"


Regulariser = Annotated[EqualWeights | ScoreWeights, Field(discriminator="weights")]


class TrainingConfig(RecipeTable):
    """The training loop."""

    epochs: Count
    """Number of passes over the training samples."""
    batch_size: Count = 128
    """Samples per step, over all processes together; batches are nearly equal in size."""
    seeds: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)] = (0,)
    """One run for each; a seed decides split, order, augmentation and initial parameters."""
    reduction: Literal["mean", "sum"] = "mean"
    """Reduction of a batch's losses; the papers of the focal family use the sum."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """"auto" is bf16 where the device supports it."""
    mixing: Annotated[Mixing, needs("data.kind", "images")] = "none"
    """Mixes each image of a batch and its label with another one: "mixup" adds them up (Zhang et
    al. 2018), "cutmix" pastes a part (Yun et al. 2019), "either" draws one of both per batch."""
    mixing_alpha: Annotated[Positive, needs("training.mixing", "mixup", "cutmix", "either")] = 1.0
    """Both parameters of the beta distribution of the share; smaller mixes less."""
    gradient_accumulation: Annotated[Count, needs("data.kind", "images", "features", "text")] = 1
    """Parts of each batch that are computed one after another before its step, to save memory."""
    channels_last: Annotated[bool, needs("data.kind", "images")] = True
    """Channels last in memory; faster for convolutions."""
    compile: bool = False
    """Compile the model; faster on a GPU in long runs."""
    dynamics: Annotated[bool | None, needs("training.mixing", "none")] = None
    """Record how each sample is learned; `difficulty train --write-dynamics` sets it."""
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay per step of a moving average of the parameters, which is evaluated and saved."""
    sync_batchnorm: bool = False
    """Batch statistics over all processes together, instead of the share of each process."""
    fsdp: bool = False
    """Each of several processes keeps a part of parameters, gradients and optimiser state."""
    trackers: tuple[str, ...] = ("tensorboard",)
    """Trackers of Accelerate that get the records of the epochs, such as "wandb" or "mlflow"."""
    checkpoint_every: Count = 1
    """Epochs between checkpoints."""
    evaluation_batch_size: Count = 512
    """Samples per step of evaluation."""
    final: Literal["last", "best"] = "last"
    """Epoch to evaluate and save: the last, or the best by `best_by` of the validation samples."""
    best_by: Annotated[BestBy, needs("training.final", "best")] = "accuracy"
    """Metric of "best"; the first epoch wins a tie."""

    @field_validator("seeds")
    @classmethod
    def _each_once(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("names a seed twice; name each seed once")
        return seeds

    @field_validator("trackers")
    @classmethod
    def _each_tracker_once(cls, trackers: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(trackers)) < len(trackers):
            raise ValueError("names a tracker twice; name each tracker once")
        return trackers


HEAD = Needs(
    ("uncertainty.epochs",),
    lambda epochs: epochs > 0,
    "has no effect with uncertainty.epochs = {}, which trains no head; raise it, such as to 30",
)


class AnyHead(RecipeTable):
    """The uncertainty head, which is trained once the classifier is."""

    epochs: Annotated[int, Field(ge=0), needs("data.kind", "features")] = 0
    """Number of passes over the training samples; 0 trains no head."""
    hidden: Annotated[tuple[Count, ...], HEAD] = (512, 512)
    """Width of each hidden layer; none for a linear head."""
    batch_size: Annotated[int, Field(ge=2), HEAD] = 256
    """Number of samples per step."""
    learning_rate: Annotated[Positive, HEAD] = 1e-3
    """Highest learning rate of AdamW, which falls by a cosine."""
    weight_decay: Annotated[NotNegative, HEAD] = 1e-4
    """Weight decay of AdamW."""
    warmup: Annotated[Fraction, HEAD] = 0.05
    """Fraction of all steps during which the rate rises from zero."""


class RankingHead(AnyHead):
    """The head orders samples by their loss."""

    objective: Annotated[Literal["ranking"], HEAD] = "ranking"
    margin: Annotated[Positive, HEAD] = 0.1
    """Difference of uncertainties from which a pair counts as right."""
    leeway: Annotated[NotNegative, HEAD] = 0.0
    """Difference of losses, in nats, below which a pair has no order."""


class SquaredHead(AnyHead):
    """The head predicts the loss of a sample."""

    objective: Annotated[Literal["squared"], HEAD] = "squared"


Head = Annotated[RankingHead | SquaredHead, Field(discriminator="objective")]


class Recipe(BaseModel):
    """One experiment: everything that a run depends on except its seed."""

    model_config = RecipeTable.model_config
    name: str
    """Name in tables and plots."""
    data: Data
    """Training, validation and test data."""
    model: ModelConfig
    """Classifier."""
    loss: LossConfig = LossConfig()
    """Loss."""
    regulariser: Regulariser = EqualWeights()
    """Entropy term and its weight for each sample."""
    sampling: Sampling = RandomOrder()
    """Order of the training samples."""
    optimiser: Optimiser = Sgd()
    """Optimiser."""
    schedule: Schedule = CosineRate()
    """Schedule of the learning rate."""
    training: TrainingConfig
    """Training loop."""
    uncertainty: Head = RankingHead()
    """Uncertainty head."""

    @property
    def distribution_column(self) -> str | None:
        """Column of the distributions that the samples are trained on; None for labels."""
        return None if isinstance(self.data, TreeData) else self.data.distribution_column

    @property
    def soft_keys(self) -> dict[str, str]:
        """Keys that make the targets distributions, each with its value."""
        keys = {"data.distribution_column": self.distribution_column}
        if self.training.mixing != "none":
            keys["training.mixing"] = self.training.mixing
        return {key: value for key, value in keys.items() if value is not None}


FREE_TO_CHANGE = (
    *("name", "loss.scores", "regulariser.scores", "regulariser.unreliable", "sampling.scores"),
    *(
        "data.in_memory",
        "data.max_pixels",
        "data.on_error",
        "data.workers",
        "training.checkpoint_every",
    ),
    *("training.evaluation_batch_size", "training.fsdp", "training.seeds", "training.trackers"),
)
"""Keys of a recipe that may change when a run resumes; weights are compared by their values."""
