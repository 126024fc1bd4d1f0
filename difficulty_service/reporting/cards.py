"""One sample as the templates show it."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from difficulty_service.reporting.pictures import Pictures
from difficulty_service.reporting.samples import ScoredSamples


@dataclass(frozen=True)
class Card:
    """A sample with its picture.

    Attributes:
        row: Row in the score file.
        sample_id: Id of the sample.
        label: Class index.
        name: Name of its class.
        nearest: Index of the class that fits best.
        nearest_name: Name of that class; None if it is the label or unknown.
        margin: Label margin; NaN where there is none.
        doubt: What speaks against the label, as `ScoredSamples.doubts`; NaN where nothing is known.
        rmd: Relative Mahalanobis distance; NaN where there is none.
        percentile: Percentile of `rmd`; NaN where there is none.
        picture: Data URI of its picture; None where there is none.
        problem: Reason why there is no picture; empty where none was read.
        excerpt: Beginning of the sample where it is a text; None for an image.
    """

    row: int
    sample_id: str
    label: int
    name: str
    nearest: int
    nearest_name: str | None
    margin: float
    doubt: float
    rmd: float
    percentile: float
    picture: str | None
    problem: str
    excerpt: str | None = None

    @property
    def is_doubtful(self) -> bool:
        """Whether another class fits better than the label."""
        return self.doubt > 0

    @property
    def text(self) -> str:
        """The sample in words, in place of its picture."""
        looks = f", looks like {self.nearest_name}" if self.nearest_name is not None else ""
        score = "" if math.isnan(self.rmd) else f", difficulty {self.rmd:.1f}"
        return f"{self.name}{looks}{score}, {self.sample_id}"


def make_cards(
    samples: ScoredSamples, pictures: Pictures
) -> Callable[[Iterable[int]], Sequence[Card]]:
    """A function that makes the cards of some rows."""

    def card(row: int) -> Card:
        sample_id = samples.ids[row].as_py()
        picture, problem = pictures.uris.get(sample_id), pictures.problems.get(sample_id, "")
        card = make_card(samples, row, picture, problem)
        return replace(card, excerpt=pictures.excerpts.get(sample_id))

    return lambda rows: [card(row) for row in rows]


def make_card(samples: ScoredSamples, row: int, picture: str | None, problem: str = "") -> Card:
    """The card of one sample.

    Args:
        samples: The scores.
        row: Row of the sample.
        picture: Address of its picture; None where there is none.
        problem: Reason why there is none.
    """
    label, nearest = int(samples.labels[row]), int(samples.nearest[row])
    return Card(
        row=row,
        sample_id=samples.ids[row].as_py(),
        label=label,
        name=samples.name_of(label),
        nearest=nearest,
        nearest_name=None if nearest in (-1, label) else samples.name_of(nearest),
        margin=float(samples.margins[row]),
        doubt=float(samples.doubts[row]),
        rmd=float(samples.rmd[row]),
        percentile=float(samples.percentiles[row]),
        picture=picture,
        problem=problem,
    )
