"""What a person can choose about commands of their own: each option once, with its bounds."""

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter
from pydantic import AfterValidator, Field

from difficulty_service.settings.option_types import LARGEST_SEED, MOST_SAMPLES, Options, panel


def listed_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Names in the order they are given, each once; one text may hold several, with commas."""
    return tuple(dict.fromkeys(n.strip() for text in texts for n in text.split(",") if n.strip()))


NumSearched = Annotated[int, Field(ge=1, le=MOST_SAMPLES)]
"""Number of images in which missing boxes are looked for."""


@panel("Search")
class MissingOptions(Options):
    """Where missing boxes are looked for, and how many are listed."""

    sample: NumSearched = 200
    """Number of randomly drawn images to search; more images, or small boxes in
    large ones, take longer."""

    count: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] = 100
    """Number of regions to list, the most object-like first."""

    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] = 0
    """Random seed; the same seed searches the same images."""


FEWEST_DRAWN = 10


@panel("Trial")
class TrialOptions(Options):
    """Backbones that are tried on a dataset, and on how much of it."""

    try_: Annotated[
        Sequence[str], AfterValidator(listed_names), Parameter("--try", metavar="NAME,...")
    ] = ()
    """Backbones to try on DATASET, separated by commas; names of libraries and runs work, too."""

    sample: Annotated[int, Field(ge=FEWEST_DRAWN, le=MOST_SAMPLES)] | None = None
    """Number of randomly drawn samples, in proportion to the classes; default: 2,000, or up to
    10,000 for five of each of many classes."""
