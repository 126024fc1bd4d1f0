"""What a person can choose about commands of their own: each option once, with its bounds."""

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter
from pydantic import AfterValidator, Field

from difficulty_service.option_types import LARGEST_SEED, MOST_SAMPLES, Options, panel


def listed_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Names in the order they are given, each once; one text may hold several, with commas."""
    return tuple(dict.fromkeys(n.strip() for text in texts for n in text.split(",") if n.strip()))


LONGEST_WAIT = 7 * 86400.0


@panel("Watch")
class WatchOptions(Options):
    """When a dataset that is watched is looked at, and for how long."""

    every: Annotated[float, Field(gt=0, le=LONGEST_WAIT), Parameter(metavar="SECONDS")] = 60.0
    """Seconds between two looks at the dataset."""

    settle: Annotated[float, Field(ge=0, le=LONGEST_WAIT), Parameter(metavar="SECONDS")] = 5.0
    """Seconds that a changed dataset must stay as it is before it is scored, so that no file is
    read while it is copied; one that changes all the time is scored after ten of these waits."""

    rounds: Annotated[int, Field(ge=1)] | None = None
    """Number of rounds of scores after which to end, the first one included; default: never."""


NumSearched = Annotated[int, Field(ge=1, le=MOST_SAMPLES)]
"""Number of images in which missing boxes are looked for."""


@panel("Search")
class MissingOptions(Options):
    """Where missing boxes are looked for, and how many are listed."""

    sample: NumSearched = 200
    """Number of images to search, drawn at random; all where there are fewer. The time grows with
    it, and with images that are large beside the boxes."""

    count: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] = 100
    """Number of regions to list, those most like an object first."""

    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] = 0
    """Seed of the draw. With the same one the same images are searched."""


FEWEST_DRAWN = 10


@panel("Trial")
class TrialOptions(Options):
    """Backbones that are tried on a dataset, and on how much of it."""

    try_: Annotated[
        Sequence[str], AfterValidator(listed_names), Parameter("--try", metavar="NAME,...")
    ] = ()
    """Backbones to try on DATASET, of a library or a run too, separated by commas."""

    sample: Annotated[int, Field(ge=FEWEST_DRAWN, le=MOST_SAMPLES)] | None = None
    """Samples to draw at random, in proportion to the classes and with some of each; default:
    2,000, or up to 10,000 for five of each of many classes."""
