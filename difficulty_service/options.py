"""What a person can choose about scoring a dataset: each option once, wherever it is given.

A field is an option of `difficulty score`, a key of a job of the service and a field of its form,
with its type, bounds, default and one sentence. What only the owner of a machine may choose
(device, memory, threads, files) is not here.
"""

import difflib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from difficulty_service.images.corruption_strengths import STRENGTHS
from difficulty_service.score_columns import SCORERS

ShrinkageRule = Literal["auto", "none", "ledoit-wolf", "oas", "leave-one-out"]
SHRINKAGE_RULES: tuple[str, ...] = get_args(ShrinkageRule)
"""Rules of shrinkage, besides an intensity."""

MOST_SAMPLES = 10**12
LARGEST_SEED = 2**31 - 1

Column = Annotated[str, Field(min_length=1, max_length=500)]


def known_scorers(names: Sequence[str]) -> tuple[str, ...]:
    """Names of scorers, each once.

    Raises:
        ValueError: A name is unknown or there twice, or there is none.
    """
    for name in names:
        if name not in SCORERS:
            close = difflib.get_close_matches(name, SCORERS, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ValueError(f"{name!r} is no scorer; {hint}expected some of {', '.join(SCORERS)}")
    if not names or len(set(names)) < len(names):
        raise ValueError("name one scorer or more, each at most once")
    return tuple(names)


def known_corruption(text: str) -> str:
    """A name and a level, such as fog:3.

    Raises:
        ValueError: There is no such corruption.
    """
    name = text.partition(":")[0]
    if name not in STRENGTHS:
        close = difflib.get_close_matches(name, STRENGTHS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"no corruption {name!r}; {hint}choose one of {', '.join(STRENGTHS)}")
    return text


Scorers = Annotated[
    Sequence[str],
    AfterValidator(known_scorers),
    WithJsonSchema(
        {
            "type": "array",
            "items": {
                "oneOf": [
                    {"const": scorer.name, "description": scorer.sentence}
                    for scorer in SCORERS.values()
                ]
            },
            "minItems": 1,
            "uniqueItems": True,
        }
    ),
]


class Options(BaseModel):
    """Options that belong together; the docstring of a field is its sentence everywhere."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ReadingOptions(Options):
    """Which samples of a dataset are scored, and how its tables are read."""

    split: Column | None = None
    """Sub-folder or named split to use."""

    image_column: Column | None = None
    """Column of a table with image bytes or paths; found by its content where none is named."""

    text_column: Column | None = None
    """Column of a table whose texts are the samples, in place of images."""

    label_column: Column | None = None
    """Column of a table with the labels; found by its name where none is named."""

    id_column: Column | None = None
    """Column of a table whose text is the sample id; otherwise a unique path, or file#row."""

    limit: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] | None = None
    """Use this many samples, evenly spaced."""


class EncodingOptions(Options):
    """What is done to each sample before and while its features are extracted."""

    flip: bool = False
    """Mean features of each image and its mirror image, for twice the time of the network."""

    corrupt: (
        Annotated[str, Field(pattern=r"^\w{1,40}:[1-5]$"), AfterValidator(known_corruption)] | None
    ) = None
    """Corrupt images first, by a name and a level from 1 to 5: fog:3."""

    augment_runs: Annotated[int, Field(ge=0, le=100)] = 0
    """Random crops and flips of each image: fitted on all, scores averaged; 0 for none."""

    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] = 0
    """Seed of corruption, augmentation and K-means."""

    on_error: Literal["skip", "stop"] = "skip"
    """What happens where an image cannot be read: it is skipped and listed, or the run ends."""


class ScoringOptions(Options):
    """How features become scores."""

    scorers: Annotated[
        Scorers, Field(description=f"Some of {', '.join(SCORERS)}; rmd is always computed.")
    ] = ("rmd",)

    near_duplicates: Annotated[float, Field(gt=0, le=1)] | None = None
    """Also find near copies: samples whose features have at least this cosine, above 0 and up to 1.
    0.97 is a good start. The time grows with the square of the number of samples."""

    shrinkage: ShrinkageRule | Annotated[float, Field(ge=0, le=1)] = "auto"
    """Shrinkage of the covariance: auto (leave-one-out with few samples, otherwise none), none,
    ledoit-wolf, oas, leave-one-out (a ridge chosen by leave-one-out likelihood), or a number from 0
    to 1."""

    matmul_dtype: Literal["auto", "float32", "float64"] = "auto"
    """dtype of the matrix products; auto: float64 where float32 would not do."""


class DatasetScoring(ScoringOptions, EncodingOptions, ReadingOptions):
    """All options of scoring a dataset."""


FIT_ONLY = ("shrinkage", "matmul_dtype")
"""Options that would change nothing where the Gaussians are fitted already."""

IMAGES_ONLY = ("image_column", "flip", "corrupt", "augment_runs")
"""Options that would change nothing where the samples are texts."""


def sentence_of(options: type[BaseModel], name: str) -> str:
    """The sentence of an option, in one line."""
    return " ".join((options.model_fields[name].description or "").split())


@cache
def schemas_of(options: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON Schema of each option, made once: a command has many options, a page asks often."""
    properties: Mapping[str, Any] = options.model_json_schema()["properties"]
    return properties


def bounds_of(options: type[BaseModel], name: str) -> tuple[float | None, float | None]:
    """Smallest and largest whole number of an option; None where there is no such bound."""
    schema = schemas_of(options)[name]
    for kind in schema.get("anyOf", [schema]):
        if kind.get("type") == "integer":
            return kind.get("minimum"), kind.get("maximum")
    return None, None
