"""A column beside the scores as the script of a map colours the points by it."""

import base64
from typing import Any

import numpy as np

from difficulty_service.reports.sample_columns import SampleColumn

LARGEST = 65534
"""Numbers are whole ones from 0 to this, from the smallest value to the largest."""

NO_VALUE = 65535


def colours_by(column: SampleColumn) -> bool:
    """Whether points can have colours by a column: not by free text."""
    return column.kind != "text"


def packed_column(column: SampleColumn) -> dict[str, Any]:
    """The values of all samples, in base64, with what they mean.

    A category has the `names` that its values number. Numbers and dates have `texts`: positions
    from 0 to 1 between the smallest and the largest value, and what stands there.
    """
    values = numbers = column.numbers
    meaning: dict[str, Any] = {}
    if column.kind == "category":
        meaning["names"] = list(column.categories)
    else:
        known = numbers[np.isfinite(numbers)]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
        # Halves first, as the difference of the largest float64 numbers is infinite.
        width = high / 2 - low / 2
        share = (numbers / 2 - low / 2) / (width or 1.0)
        values = np.round(LARGEST * share)
        places = ((1.0, high), (0.5, low + width), (0.0, low)) if width else ((0.0, low),)
        texts = [(place, column.spell(value)) for place, value in places]
        meaning["texts"] = texts if len(known) else []
    whole = np.where(np.isfinite(numbers), values, NO_VALUE).astype("<u2")
    return {"values": base64.b64encode(whole.tobytes()).decode(), **meaning}
