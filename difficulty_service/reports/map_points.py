"""The points of a map as the script of a page reads them: facts, and an array for each column.

`map_data.js` is the other end: it unpacks what `packed_json` and `packed_bytes` pack.
"""

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.reports.map import ImageMap
from difficulty_service.scores.samples import ScoredSamples
from difficulty_service.scores.tiers import TIERS

GRID = 65535
"""Positions are whole numbers from 0 to this, so that pages find the same images as the service."""

LEVELS = 254
"""Percentiles are whole numbers from 0 to this; NO_LEVEL where there is none."""

NO_LEVEL = 255
ALIGNMENT = 4

Column = NDArray[np.integer]

OTHER_FITS, OWN_FITS = "another class fits better", "own class fits best"
"""The tiers of labels in a score file without suspicion."""


def tier_names(samples: ScoredSamples) -> Sequence[str]:
    """What the tiers of the labels are, in words."""
    return TIERS if samples.suspicion is not None else (TIERS[0], OTHER_FITS, OWN_FITS)


def grid_positions(drawn: ImageMap) -> NDArray[np.uint16]:
    """The positions as whole numbers. Shape (points, 2)."""
    return (drawn.positions * GRID).round().astype("<u2")


@dataclass(frozen=True)
class MapPoints:
    """The points of a map.

    Attributes:
        facts: What is to say of all points, as JSON.
        columns: Numbers of the points by name; `positions` has two for each of them.
    """

    facts: Mapping[str, Any]
    columns: Mapping[str, Column]

    @classmethod
    def of(cls, drawn: ImageMap, samples: ScoredSamples, address: str | None = None) -> Self:
        """The points of a map with what colours them.

        Args:
            address: Below which each image has a page, by its row; None for a report.
        """
        labels, nearest = samples.labels[drawn.rows], samples.nearest[drawn.rows]
        classes = np.unique(np.concatenate((labels, nearest)))
        step = int(drawn.rows[1] - drawn.rows[0]) if len(drawn.rows) > 1 else 1
        is_even = np.array_equal(drawn.rows, np.arange(len(drawn.rows)) * step)
        columns: dict[str, Column] = {
            "positions": grid_positions(drawn).reshape(-1),
            "labels": _compact(labels),
            "nearest": _compact(nearest),
            "percentiles": _levels(samples.percentiles[drawn.rows]),
            "tiers": samples.tiers[drawn.rows],
        }
        if not is_even:
            columns["rows"] = drawn.rows.astype("<u4")
        facts = {
            "address": address,
            "count": len(drawn.rows),
            "step": step if is_even else None,
            "names": {int(label): samples.name_of(int(label)) for label in classes if label >= 0},
            "tiers": tier_names(samples),
        }
        return cls(facts, columns)

    def packed_json(self, samples: ScoredSamples, drawn: ImageMap) -> dict[str, Any]:
        """One value for a JSON document, with the ids of the samples."""
        return {
            **self.facts,
            "ids": samples.ids.take(pa.array(drawn.rows)).to_pylist(),
            "columns": {
                name: [_type_of(values), base64.b64encode(values.tobytes()).decode()]
                for name, values in self.columns.items()
            },
        }

    def packed_bytes(self) -> bytes:
        """The number of bytes of the facts, the facts, and the columns as they name them.

        Each begins at a multiple of ALIGNMENT; numbers are little-endian.
        """
        types = {name: [_type_of(values), len(values)] for name, values in self.columns.items()}
        facts = json.dumps({**self.facts, "columns": types}, ensure_ascii=False).encode()
        facts += b" " * (-len(facts) % ALIGNMENT)
        parts = [struct.pack("<I", len(facts)), facts]
        for values in self.columns.values():
            content = values.tobytes()
            parts += [content, bytes(-len(content) % ALIGNMENT)]
        return b"".join(parts)


def _compact(classes: NDArray[np.int64]) -> Column:
    """Class indices in as few bytes as hold the largest."""
    return classes.astype("<i2" if classes.max(initial=0) < 1 << 15 else "<i4")


def _levels(percentiles: NDArray[np.float64]) -> NDArray[np.uint8]:
    levels = np.nan_to_num(percentiles, nan=0.0) * LEVELS
    return np.where(np.isnan(percentiles), NO_LEVEL, levels.round()).astype(np.uint8)


def _type_of(values: Column) -> str:
    """The name of a typed array of JavaScript."""
    kind = {"u": "Uint", "i": "Int"}[values.dtype.kind]
    return f"{kind}{8 * values.dtype.itemsize}Array"
