"""The files `errors.parquet` and `errors.csv`: what of a dataset has no features, and why."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from difficulty_service.base.errors import FeatureStoreError, Setting, Spell, as_keyword
from difficulty_service.base.files import replacing
from difficulty_service.base.tables import (
    UNREADABLE,
    csv_writer,
    read_parquet,
    strings_to_arrow,
    write_parquet,
)
from difficulty_service.base.wording import count_of


@dataclass(frozen=True)
class BadImage:
    """An image without features.

    Attributes:
        reason: One line; a setting in its remedy is spelled as in Python.
        content: Digest of the encoded image; None where not all of it was read.
        stamp: Stamp of its file; None where it is not a file of its own.
    """

    sample_id: str
    reason: str
    content: bytes | None = None
    stamp: int | None = None


MAX_PIXELS = Setting("max_pixels")
"""The only setting that reasons name."""

MOST_KINDS = 20
"""Number of kinds of reasons that are listed."""

_VARIABLE = re.compile(r"""b'[^']*'|b"[^"]*"|\d+""")


def spelled(reason: str, spell: Spell) -> str:
    """A reason with the setting that it names as a front end spells it."""
    return reason.replace(f"raise {as_keyword(MAX_PIXELS)} ", f"raise {spell(MAX_PIXELS)} ")


def describe_reasons(
    errors: Sequence[BadImage], noun: str, spell: Spell = as_keyword
) -> Sequence[str]:
    """A phrase for each kind of reason, the most frequent first: how many, the first, and why.

    Reasons are of one kind where they differ only in numbers, such as the sizes of images, or in
    the bytes that they quote.
    """
    kinds: dict[str, list[BadImage]] = {}
    for error in errors:
        kinds.setdefault(_VARIABLE.sub("", error.reason), []).append(error)
    ranked = sorted(kinds.values(), key=len, reverse=True)
    phrases = [
        f"{count_of(len(kind), noun)}, {'first ' if len(kind) > 1 else ''}{kind[0].sample_id}: "
        f"{spelled(kind[0].reason, spell)}"
        for kind in ranked[:MOST_KINDS]
    ]
    others = sum(map(len, ranked[MOST_KINDS:]))
    return [*phrases, *([f"{count_of(others, noun)} for other reasons"] if others else [])]


ERRORS_FILE = "errors.parquet"

ERRORS_SCHEMA = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("sample_id", "reason")]
)


def errors_table(errors: Sequence[BadImage]) -> pa.Table:
    """Columns sample_id and reason of skipped entries and unreadable images."""
    ids, reasons = [error.sample_id for error in errors], [error.reason for error in errors]
    columns = [strings_to_arrow(ids), strings_to_arrow(reasons)]
    return pa.Table.from_arrays(columns, schema=ERRORS_SCHEMA)


def write_errors(folder: Path, errors: Sequence[BadImage]) -> Path:
    """Writes both files into the folder of a feature store; each appears whole or not at all.

    Returns:
        Path of the Parquet file; the same rows for people to look at are in `errors.csv` beside it.
    """
    path, table = folder / ERRORS_FILE, errors_table(errors)
    with replacing(path) as temporary:
        write_parquet(temporary, table)
    with replacing(as_csv(path)) as temporary, csv_writer(temporary, table.schema) as write:
        write(table)
    return path


def as_csv(path: Path) -> Path:
    """Where the rows of an `errors.parquet` lie for people to look at."""
    return path.with_suffix(".csv")


def read_errors(folder: Path) -> list[BadImage]:
    """The content of the file in the folder of a feature store; nothing where there is none.

    Raises:
        FeatureStoreError: The file is damaged.
    """
    path = folder / ERRORS_FILE
    if not path.exists():
        return []
    try:
        table = read_parquet(path, ERRORS_SCHEMA.names)
    except UNREADABLE as error:
        raise FeatureStoreError(f"{path} is damaged ({error})", "delete it") from error
    return [BadImage(**row) for row in table.to_pylist()]
