"""What hard images share, in words, where `difficulty explain` was run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from difficulty_service.audit.explanation import (
    HARD_SHARE,
    MIN_HARD,
    Explanation,
    Finding,
    GroupFindings,
    scored_by,
)
from difficulty_service.audit.files import read_explanation
from difficulty_service.base.errors import AuditError
from difficulty_service.scores.provenance import Provenance

LISTED_GROUPS, LISTED_FINDINGS = 20, 5
"""Number of classes in the table besides all together, and of phrases of each."""

SMALLEST_CLASS = round(MIN_HARD / HARD_SHARE)
"""Number of samples of a class that is examined on its own."""


@dataclass(frozen=True)
class ShownExplanation:
    """The findings that the page shows.

    Attributes:
        backbone: The CLIP that compared images with phrases.
        num_attributes: Number of phrases.
        together: All classes together.
        groups: What the table lists: all classes together and then the classes with the largest
            effects, each where something stands out.
        num_classes: Number of classes that were examined on their own.
        num_silent: Number of these in which nothing stands out.
        num_unlisted: Number of classes with findings that the table leaves out.
        num_small: Number of classes with too few samples to be examined on their own.
    """

    backbone: str
    num_attributes: int
    together: GroupFindings
    groups: list[GroupFindings]
    num_classes: int
    num_silent: int
    num_unlisted: int
    num_small: int


def find_explanation(
    path: Path, provenance: Provenance
) -> tuple[ShownExplanation | None, tuple[str, ...]]:
    """Reads the explanation of a score file, if there is one.

    Args:
        path: File of `difficulty explain`.
        provenance: Provenance of the scores.

    Returns:
        The explanation, and a warning if there is one that cannot be shown.
    """
    try:
        values = read_explanation(path)
        if values is None:
            return None, ()
        if values["fingerprint"] != provenance.fingerprint:
            return None, (
                f"{path.name} is not shown: it explains the scores of a dataset with another "
                "fingerprint; run `difficulty explain` again",
            )
        if values["scores"] != (scored := scored_by(provenance)):
            named = values["scores"]["backbone"], scored["backbone"]
            network = "other weights" if named[0] == named[1] else f"the backbone {named[0]}"
            return None, (
                f"{path.name} is not shown: it explains scores of {network}, and these are those "
                f"of {named[1]}; run `difficulty explain` again",
            )
        return _to_shown(str(values["backbone"]), _to_explanation(values)), ()
    except AuditError as error:
        return None, (f"there is no explanation in words: {error}",)
    except (AttributeError, IndexError, KeyError, TypeError):
        return None, (
            f"{path.name} is not shown: it lacks values of an explanation; run `difficulty "
            "explain` again",
        )


def _to_explanation(values: Mapping[str, Any]) -> Explanation:
    groups = [
        GroupFindings(**{**group, "findings": [Finding(**each) for each in group["findings"]]})
        for group in values["groups"]
    ]
    return Explanation(
        values["num_attributes"], values["num_tests"], groups, values["small_classes"]
    )


def _to_shown(backbone: str, explanation: Explanation) -> ShownExplanation:
    together, classes = explanation.groups[0], explanation.groups[1:]
    found = [group for group in classes if group.findings]
    found.sort(key=lambda group: -abs(group.findings[0].effect))
    return ShownExplanation(
        backbone=backbone,
        num_attributes=explanation.num_attributes,
        together=together,
        groups=[*([together] if together.findings else []), *found[:LISTED_GROUPS]],
        num_classes=len(classes),
        num_silent=len(classes) - len(found),
        num_unlisted=max(0, len(found) - LISTED_GROUPS),
        num_small=explanation.small_classes,
    )
