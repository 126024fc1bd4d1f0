"""What a person can choose about scoring a dataset: each option once, wherever it is given.

A field is an option of `difficulty score`, a key of a job of the service and a field of its form,
with its type, bounds, default and one sentence. What only the owner of a machine may choose
(device, memory, threads, files) is an option of the command line only, and comes last.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
)

from difficulty_service.dataset_formats import Format
from difficulty_service.gaussians.fit_options import FitOptions, ShrinkageRule
from difficulty_service.scorers.strategies import STRATEGIES, Strategy
from difficulty_service.scores.score_columns import DEFAULT_SCORERS, SCORERS
from difficulty_service.settings.option_types import (
    LARGEST_SEED,
    MOST_SAMPLES,
    ClassNames,
    Clusters,
    Column,
    Corruption,
    InPython,
    NamesInOrder,
    Scorers,
    Separator,
    Strategies,
    TagNames,
    panel,
    split_lines,
    split_names,
    strategy_shares,
)
from difficulty_service.settings.option_types import Options as Options
from difficulty_service.settings.pixel_types import Bands, Page, Range

IN_DATASET = panel("Dataset")


@IN_DATASET
class ColumnOptions(Options):
    """Where the samples of a dataset are in it."""

    format: Format | None = None
    """Format of the dataset; detected automatically if omitted."""

    split: Column | None = None
    """Subfolder or named split to use."""

    image_column: Column | None = None
    """Table column with image bytes or paths; detected automatically if omitted."""

    label_column: Column | None = None
    """Table column with the labels; detected by its name if omitted."""

    id_column: Column | None = None
    """Table column with the sample ids; by default a unique path column, or else file#row."""


@IN_DATASET
class ReadingOptions(ColumnOptions):
    """Which samples of a dataset are scored, and how its tables are read."""

    text_column: Column | None = None
    """Table column with the texts to score, instead of images."""

    class_names: Annotated[
        NamesInOrder | None,
        Parameter(metavar="NAME,..."),
        InPython(
            "Names of the classes whose labels are 0, 1, 2, ...: a list, or a text with commas "
            "between.",
            "str | Sequence[str] | None",
        ),
    ] = None
    """Names of the classes whose labels are 0, 1, 2, ...: cat,dog,bird, or one on each line."""

    unlabelled: bool = False
    """Ignore labels and class folders, or read a dataset without any; unusual samples, copies and
    image faults are still found."""

    outlines: bool = False
    """Grey out everything outside the outline of each object."""

    limit: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] | None = None
    """Use this many samples, evenly spaced."""

    @property
    def names_in_order(self) -> tuple[str, ...]:
        """The names of the classes 0, 1, 2, ...; none for those of the dataset."""
        return tuple(split_lines(self.class_names or ""))


@panel("Encoding")
class EncodingOptions(Options):
    """What is done to each sample before and while its features are extracted."""

    pixel_range: Annotated[Range | None, Parameter(metavar="LOW:HIGH")] = None
    """Values shown as black and white if images have more than 8 bits, such as 0:4095; default: one
    range for all images, found in some of them."""

    bands: Annotated[Bands | None, Parameter(metavar="N,N,N")] = None
    """Bands of a TIFF for red, green and blue, such as 4,3,2, or a single one; needed beyond three
    bands."""

    page: Annotated[Page | None, Parameter(metavar="first|middle|last|N")] = None
    """Page of a TIFF to read, such as middle for stacks of a microscope; default: the first."""

    flip: bool = False
    """Average the features of each image and its mirror image; the network takes twice as long."""

    corrupt: Annotated[Corruption | None, Parameter(metavar="NAME:LEVEL")] = None
    """Corrupt the images first: a name and a severity from 1 to 5, such as fog:3."""

    augment_runs: Annotated[int, Field(ge=0, le=100)] = 0
    """Number of random crops and flips of each image, whose scores are averaged; 0 for none."""

    augmentation: Literal["crop", "flip_crop", "random_resized_crop"] = "crop"
    """Kind of these views: crop of 35 % of the area or more, or as in training random_resized_crop
    (8 % or more) or flip_crop."""

    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] = 0
    """Random seed, used by corruption, augmentation and K-means."""

    on_error: Literal["skip", "stop"] = "skip"
    """Unreadable images: skip and list them, or stop."""

    @property
    def num_views(self) -> int:
        """Number of times that each image is encoded."""
        return max(1, self.augment_runs)

    @property
    def num_passes(self) -> int:
        """Number of times that the network sees each image."""
        return self.num_views * (1 + self.flip)


class ScorerOptions(Options):
    """What is computed of the features."""

    scorers: Annotated[
        Scorers,
        Field(description=f"Some of {', '.join(SCORERS)}; rmd is always computed."),
        Parameter(metavar="NAME,..."),
    ] = DEFAULT_SCORERS

    near_duplicates: Annotated[
        Annotated[float, Field(gt=0, le=1)] | None, Parameter(metavar="COSINE")
    ] = None
    """Also find near duplicates by this cosine similarity of features, above 0 and up to 1, such as
    0.97; takes quadratic time."""

    @property
    def scorer_of_words(self) -> str | None:
        """The scorer that compares images with names of classes; None where none does."""
        return next((name for name in self.scorers if SCORERS[name].needs_words), None)

    @property
    def names_scorers(self) -> bool:
        """Whether a person named the scorers, so that none of them may be left out."""
        return "scorers" in self.model_fields_set


@panel("Copies")
class LeakOptions(Options):
    """What counts as a copy of a sample in another set."""

    near_duplicates: Annotated[
        Literal["none"] | Annotated[float, Field(gt=0, le=1)], Parameter(metavar="COSINE|none")
    ] = 0.97
    """Smallest cosine similarity of near duplicates, above 0 and up to 1; none: exact copies only,
    which is fast."""

    search: Literal["auto", "exact", "lists"] = "auto"
    """exact: compare all pairs; lists: fast, and reports the share of near duplicates it finds;
    auto: lists beyond 5,000,000,000 pairs."""

    @property
    def cosine(self) -> float | None:
        """The cosine; None to look for exact copies only."""
        return None if self.near_duplicates == "none" else self.near_duplicates


@panel("Shift")
class DiffOptions(Options):
    """How it is found whether classes moved."""

    permutations: Annotated[int, Field(ge=0, le=10_000)] = 200
    """Number of permutations that estimate how far classes move by chance; 0 for none."""

    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] = 0
    """Random seed of the permutations and of the cross-validation that tells new samples from old
    ones."""


_STRATEGIES = "; ".join(f"{each.name}, {each.sentence}" for each in STRATEGIES.values())


@panel("Choice")
class SelectOptions(Options):
    """Which samples are chosen, and how many."""

    count: Annotated[int, Field(ge=1, le=MOST_SAMPLES)]
    """Number of samples to choose."""

    strategy: Annotated[
        Strategies,
        Field(
            description="Strategies, several mixed in equal parts or as in random:3,hard:1: "
            f"{_STRATEGIES}."
        ),
        Parameter(metavar="NAME[:SHARE],..."),
    ] = "random"

    balanced: bool = False
    """Choose equally many of each class, as far as possible."""

    by: Column | None = None
    """Score column used by hard and easy, such as suspicion; default: the first of rmd, loss and
    md_agnostic."""

    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] = 0
    """Random seed; the same seed chooses the same samples."""

    batch_size: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] | None = None
    """Batch size; a column of the table numbers the batches in the order of choice."""

    @property
    def shares(self) -> Mapping[Strategy, int]:
        """The share of each strategy."""
        return {STRATEGIES[name]: share for name, share in strategy_shares(self.strategy).items()}

    def reads(self, what: Literal["scores", "features"]) -> bool:
        """Whether one of the strategies reads scores, or features."""
        return any(each.reads == what for each in self.shares)


@panel("Statistics")
class FittingOptions(Options):
    """How Gaussians are fitted to features; these change nothing where they are fitted already."""

    shrinkage: ShrinkageRule | Annotated[float, Field(ge=0, le=1)] = "auto"
    """Covariance shrinkage: none, ledoit-wolf, oas, leave-one-out, a number from 0 to 1, or auto:
    leave-one-out with few samples, else none."""

    matmul_dtype: Literal["auto", "float32", "float64"] = "auto"
    """Data type of matrix products; auto: float64 if float32 is not precise enough."""

    @property
    def fit(self) -> FitOptions:
        """The same for `gaussians`."""
        return FitOptions(self.shrinkage, self.matmul_dtype)


class LabelOptions(Options):
    """How labels are made for samples that have none."""

    classes: Annotated[
        ClassNames | None,
        Parameter(metavar="NAME,..."),
        InPython(
            "Label each image without labels by the one of these names that fits best, by a CLIP: "
            "a list, or a text with commas between. The labels are then scored like those of "
            "people.",
            "str | Sequence[str] | None",
        ),
    ] = None
    """Label unlabelled images with CLIP, by the best fitting of these names, such as
    cat,dog,bird."""

    clusters: Annotated[Clusters | None, Parameter(metavar="NUMBER|auto")] = None
    """Label unlabelled samples by this number of K-means clusters; auto: the square root of half
    the samples, up to 100."""

    @property
    def class_list(self) -> tuple[str, ...]:
        """The names of `classes`, each once."""
        return tuple(dict.fromkeys(split_names(self.classes or "")))

    @property
    def makes_labels(self) -> Literal["classes", "clusters"] | None:
        """The option by which labels are made; None where they are not."""
        if self.classes is not None:
            return "classes"
        return None if self.clusters is None else "clusters"


class TagOptions(Options):
    """Which tags are judged, where a sample has any number of them and no label."""

    tags: Annotated[
        TagNames | None,
        Parameter(metavar="COLUMN,...|auto"),
        InPython(
            "Find wrong and missing tags, in the table that has the samples: the column of lists "
            "or of texts such as a|b, or columns of 0 and 1 for a tag each, as a list or a text "
            "such as cat,dog or has_*; auto for the column called tags or labels. A row of the "
            "scores is a decision about a tag.",
            "str | Sequence[str] | None",
        ),
    ] = None
    """Find wrong and missing tags in a table column, or several 0/1 columns such as cat,dog or
    has_*; auto: the column tags or labels."""

    tag_separator: Annotated[Separator | None, Parameter(metavar="TEXT")] = None
    """Separator between the tags of a text; default: a vertical bar."""

    @property
    def tag_columns(self) -> tuple[str, ...]:
        """The columns of `tags`, each once; none for the usual one."""
        return () if self.tags == "auto" else tuple(dict.fromkeys(split_names(self.tags or "")))

    @property
    def reading_for_tags(self) -> Mapping[str, bool]:
        """What tags change about how the dataset is read: their table has no labels."""
        return {} if self.tags is None else {"unlabelled": True}


@panel("Scoring")
class ScoringOptions(FittingOptions, ScorerOptions, TagOptions, LabelOptions):
    """How features become scores."""

    @property
    def needs_words(self) -> bool:
        """Whether images are compared with names, as a CLIP can."""
        return bool(self.class_list) or self.scorer_of_words is not None


class DatasetScoring(ScoringOptions, EncodingOptions, ReadingOptions):
    """All options of scoring a dataset."""

    # A job is a subclass, and FastAPI takes only models that are built.
    model_config = ConfigDict(defer_build=False)


FIT_ONLY = tuple(FittingOptions.model_fields)
"""Options that would change nothing where the Gaussians are fitted already."""

LABELS_ONLY = (
    *FIT_ONLY,
    *ScorerOptions.model_fields,
    *LabelOptions.model_fields,
    *("label_column", "class_names", "unlabelled", "augment_runs", "augmentation"),
)
"""Options that would change nothing where tags are judged, or by which they cannot be."""

IMAGES_ONLY = (
    *(
        "image_column",
        "outlines",
        "pixel_range",
        "bands",
        "page",
        "flip",
        "corrupt",
        "augment_runs",
        "augmentation",
    ),
    *("weights", "features", "image_size", "preprocess", "max_pixels"),
)
"""Options that would change nothing where the samples are texts."""


@IN_DATASET
class ListingOptions(ReadingOptions):
    """Which samples of a dataset are extracted, and in what shards."""

    modality: Annotated[
        Literal["image", "text"],
        InPython("text: score texts; not needed if `text_column` is given. Default: `image`."),
    ] = "image"
    """text: score the texts of a table; not needed if --text-column is given."""

    shard_size: Annotated[int, Field(ge=1)] = 4096
    """Samples per shard, the unit of resuming."""


@panel("Output")
class VerboseOption(Options):
    """How much is printed."""

    verbose: bool = False
    """Also print condition numbers, ranks and shrinkage, and with `score` the easiest images."""


@panel("Output")
class JsonOption(Options):
    """Whether another program reads what is printed."""

    json_: Annotated[bool, Parameter("--json")] = False
    """Print one JSON object on standard output, and nothing else there."""


class OutputOptions(JsonOption, VerboseOption):
    """What is printed of scores, for people or for another program, and what ends in an error."""

    quiet: bool = False
    """Print warnings and errors only."""

    fail_above: Annotated[Sequence[str], Parameter(metavar="'KIND: NUMBER'")] = ()
    """Exit with code 3 above a number or percentage of a kind of samples, such as probably wrong:
    10 or skipped: 1%; repeatable."""


@IN_DATASET
class ImagesOption(Options):
    """The dataset with the images of a score file."""

    images: Annotated[str | None, Parameter(metavar="DATASET")] = None
    """The dataset that was scored; default: as named by the score file."""


@IN_DATASET
class ScoredImages(ColumnOptions, ImagesOption):
    """Where the images of a score file are."""


@IN_DATASET
class JoinOption(Options):
    """Columns that people see beside the scores."""

    columns: Annotated[Sequence[str], Parameter(metavar="TABLE[:NAME,...]")] = ()
    """Columns to filter, sort and show: of a table with the sample ids, or dataset:NAME,... for the
    dataset itself; repeatable."""


def sentence_of(options: type[BaseModel], name: str) -> str:
    """The sentence of an option."""
    return options.model_fields[name].description or ""


@cache
def schemas_of(options: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON Schema of each option, made once: a command has many options, a page asks often."""
    properties: Mapping[str, Any] = options.model_json_schema()["properties"]
    return properties
