"""What hard samples share that easy ones do not, and the file that holds it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from difficulty_service.base.checksums import load_checked
from difficulty_service.base.errors import AuditError
from difficulty_service.scores.provenance import Provenance

EXPLANATION_VERSION = 1
"""Version of the file of explanations. It is here because what computes them imports SciPy, which
the web server does not need."""


def read_explanation(path: Path) -> Mapping[str, Any] | None:
    """The JSON values that `difficulty explain` wrote; None where there is no such file.

    Raises:
        AuditError: The file is damaged, or has a version that this package does not know.
    """
    try:
        values: Mapping[str, Any] = load_checked(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise AuditError(f"{path} is damaged: {error}", "run `difficulty explain` again") from error
    if values.get("format_version") != EXPLANATION_VERSION:
        raise AuditError(
            f"{path} has version {values.get('format_version')} of explanations, but this package "
            f"reads {EXPLANATION_VERSION}",
            "run `difficulty explain` again",
        )
    return values


HARD_SHARE, EASY_SHARE = 0.1, 0.5
"""Shares of a class that are its hard and its easy samples."""


MIN_HARD = 10
"""Number of hard samples below which a group is not examined."""


SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Finding:
    """An attribute that hard samples have more, or less, than easy ones.

    Attributes:
        difference: Mean similarity of the hard samples minus that of the easy ones; a difference
            of cosines.
        low: Lower end of its 95 % bootstrap interval.
        effect: The difference in standard deviations of the similarity; above 0, hard samples
            are more like the phrase.
    """

    attribute: str
    difference: float
    low: float
    high: float
    effect: float
    p_value: float


@dataclass(frozen=True)
class GroupFindings:
    """The findings of one class, or of all classes together.

    Attributes:
        class_name: Name of the class; None for all classes, each compared within itself.
        findings: What is significant, the largest effect first; empty where nothing stands out.
    """

    class_name: str | None
    num_hard: int
    num_easy: int
    findings: Sequence[Finding]


@dataclass(frozen=True)
class Explanation:
    """The findings of a dataset.

    Attributes:
        groups: All classes together, then each class that was examined, by name.
        small_classes: Number of classes with too few samples to be examined on their own.
    """

    num_attributes: int
    num_tests: int
    groups: Sequence[GroupFindings]
    small_classes: int

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values, and the shares that are hard and easy."""
        shares = {"hard_share": HARD_SHARE, "easy_share": EASY_SHARE, "significant": SIGNIFICANT}
        return {"format_version": EXPLANATION_VERSION, **shares, **asdict(self)}


def explanation_file(scores: Path) -> Path:
    """Where the explanation of a score file is, or will be."""
    return scores.with_suffix(".explained.json")


def scored_by(provenance: Provenance) -> dict[str, Any]:
    """The network whose features were scored: scores of another one have another explanation."""
    return {"backbone": provenance.backbone, "weights_sha256": provenance.weights_sha256}
