"""One sample as the templates show it.

Small pictures of samples as data URIs, which a page holds in itself.
"""

import base64
import io
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from PIL import Image

from difficulty_service.base.errors import ImageError
from difficulty_service.base.threads import map_in_order, num_workers
from difficulty_service.images.header import decode_to_pil, open_header
from difficulty_service.images.pixels import Pixels
from difficulty_service.pages.stored_images import ImageSource, StoredImage
from difficulty_service.scores.samples import ScoredSamples

LARGE, SMALL = 224, 128
"""Pixels of the longer side: of pictures to look at closely, and of those in strips. Smaller
images keep their size."""

EXCERPT = 400
"""Characters of a text that are shown."""

QUALITY = 82
SLOWEST_METHOD = 6


@dataclass(frozen=True)
class Pictures:
    """Encoded pictures, or the beginnings of texts, and reasons for having none, by sample id."""

    uris: Mapping[str, str]
    problems: Mapping[str, str]
    excerpts: Mapping[str, str] = field(default_factory=dict)


def read_pictures(
    source: ImageSource, sample_ids: Collection[str], large: Collection[str]
) -> Pictures:
    """Reads and shrinks the images of some samples, without metadata, or the beginnings of texts.

    People look closely at the `large` ones.
    """
    uris: dict[str, str] = {}
    problems: dict[str, str] = {}
    found = source.images(sample_ids, problems.__setitem__)
    if source.is_text:
        excerpts = {key: shorten(text.read().decode()) for key, text in found}
        return Pictures({}, problems, excerpts)

    def encode(item: tuple[str, StoredImage]) -> tuple[str, str, str]:
        sample_id, image = item
        try:
            size = LARGE if sample_id in large else SMALL
            return sample_id, to_data_uri(image.read(), size, image.pixels), ""
        except (ImageError, OSError) as error:
            return sample_id, "", str(error)

    for sample_id, uri, problem in map_in_order(encode, found, num_workers()):
        if problem:
            problems[sample_id] = problem
        else:
            uris[sample_id] = uri
    return Pictures(uris, problems)


def shorten(text: str) -> str:
    """The beginning of a text on one line, with an ellipsis where it goes on."""
    line = " ".join(text[: 8 * EXCERPT].split())
    if len(line) <= EXCERPT and len(text) <= 8 * EXCERPT:
        return line
    return line[:EXCERPT].rstrip() + "…"


def to_data_uri(data: bytes, size: int, pixels: Pixels | None = None) -> str:
    """A small picture of an image, as `to_webp` makes it."""
    picture = to_webp(data, size, pixels)
    return "data:image/webp;base64," + base64.b64encode(picture).decode()


def to_webp(data: bytes, size: int, pixels: Pixels | None = None) -> bytes:
    """A WebP picture of an image, upright and without metadata, its longer side up to `size`."""
    header = open_header(data)
    header.draft("RGB", (size, size))  # decodes a JPEG at a fraction of its size
    picture = decode_to_pil(header, pixels)
    picture.thumbnail((size, size), Image.Resampling.BICUBIC)
    encoded = io.BytesIO()
    # A fresh image leaves the metadata behind.
    plain = Image.new("RGB", picture.size)
    plain.paste(picture)
    plain.save(encoded, "WEBP", quality=QUALITY, method=SLOWEST_METHOD)
    return encoded.getvalue()


def dataset_name(location: str) -> str:
    """The last part of a location, without what may be private in the others."""
    return Path(location.rstrip("/")).name or location


@dataclass(frozen=True)
class Card:
    """A sample with its picture, as a data URI. Scores that are unknown are NaN.

    Attributes:
        title: What its caption calls it: the class, or without labels the id.
        nearest_name: Name of that class; None if it is the label or unknown.
        doubt: What speaks against the label, as `ScoredSamples.doubts`; NaN where nothing is known.
        problem: Reason why there is no picture; empty where none was read.
        likely: Names of the classes that fit best and their shares in percent, the likeliest first;
            empty where they are unknown.
        excerpt: Beginning of the sample where it is a text; None for an image.
    """

    row: int
    sample_id: str
    label: int
    name: str
    title: str
    nearest: int
    nearest_name: str | None
    margin: float
    doubt: float
    rmd: float
    percentile: float
    picture: str | None
    problem: str
    likely: Sequence[tuple[str, int]] = ()
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
        return ", ".join(dict.fromkeys((f"{self.title}{looks}{score}", self.sample_id)))


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


def with_suggestion(card: Card, samples: ScoredSamples) -> Card:
    """The card of a sample that may fit its label, with the likeliest other class."""
    other = int(samples.others[card.row])
    return card if other < 0 else replace(card, nearest=other, nearest_name=samples.name_of(other))


def make_card(samples: ScoredSamples, row: int, picture: str | None, problem: str = "") -> Card:
    """The card of one sample."""
    label, nearest = int(samples.labels[row]), int(samples.nearest[row])
    sample_id = samples.ids[row].as_py()
    return Card(
        row=row,
        sample_id=sample_id,
        label=label,
        name=samples.name_of(label),
        title=samples.name_of(label) if samples.has_labels else sample_id,
        nearest=nearest,
        nearest_name=None if nearest in (-1, label) else samples.name_of(nearest),
        margin=float(samples.margins[row]),
        doubt=float(samples.doubts[row]),
        rmd=float(samples.rmd[row]),
        percentile=float(samples.percentiles[row]),
        picture=picture,
        problem=problem,
        likely=[
            (samples.name_of(label), round(100 * share)) for label, share in samples.shares(row)
        ],
    )
