"""The points of a map as the script of its page reads them."""

import gzip
import hashlib
import json
from dataclasses import dataclass
from typing import Self

import numpy as np

from difficulty_service.reporting.map import ImageMap
from difficulty_service.reporting.samples import ScoredSamples

LEVEL = 5
"""Level of compression; a higher one makes less than a hundredth of difference."""


@dataclass(frozen=True)
class MapPoints:
    """The points of a map, encoded once.

    Attributes:
        compressed: JSON, compressed by gzip.
        etag: Their entity tag, which other points do not have.
    """

    compressed: bytes
    etag: str

    @classmethod
    def encode(cls, drawn: ImageMap, samples: ScoredSamples, address: str) -> Self:
        """The points of a map.

        Args:
            drawn: The map.
            samples: The scores.
            address: Path below which each image has a page, by its row.
        """
        nearest = samples.nearest[drawn.rows]
        classes = np.unique(np.concatenate((samples.labels[drawn.rows], nearest))).tolist()
        data = drawn.data(samples, address) | {
            "nearest": nearest.tolist(),
            "names": {label: samples.name_of(label) for label in classes if label >= 0},
        }
        content = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
        digest = hashlib.sha256(content).hexdigest()[:32]
        return cls(gzip.compress(content, LEVEL, mtime=0), f'"{digest}"')
