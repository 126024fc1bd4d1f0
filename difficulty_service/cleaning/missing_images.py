"""Samples that are left out of a cleaned dataset or an export because of their images."""

from dataclasses import dataclass, field


@dataclass
class MissingImages:
    """Samples whose images are gone or cannot be read.

    Attributes:
        reasons: Reason by sample id.
    """

    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, sample_id: str, reason: str) -> None:
        """Takes a sample into account."""
        self.reasons[sample_id] = reason

    def warnings(self) -> list[str]:
        """A sentence about all of them; none if there are none."""
        if not self.reasons:
            return []
        sample_id, reason = next(iter(self.reasons.items()))
        number = len(self.reasons)
        left_out = (
            "sample is left out because of its image"
            if number == 1
            else ("samples are left out because of their images")
        )
        return [f"{number:,} {left_out}, the first is {sample_id}: {reason}"]
