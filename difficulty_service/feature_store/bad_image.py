"""An image that has no features, and why."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BadImage:
    """An image without features.

    Attributes:
        sample_id: Id of the sample.
        reason: Reason why it could not be read.
        content: Digest of the encoded image; None where not all of it was read.
        stamp: Stamp of its file; None where it is not a file of its own.
    """

    sample_id: str
    reason: str
    content: bytes | None = None
    stamp: int | None = None
