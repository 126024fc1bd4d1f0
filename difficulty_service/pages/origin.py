"""Where scores come from, as facts for people."""

from collections.abc import Sequence
from typing import TypeAlias

from difficulty_service.scores.provenance import Provenance

SHORTENED = 16
"""Digits of a hash that are shown."""

SMALLEST_TROUBLESOME = 1e8
"""Condition number above which rounding in float32 can reorder scores."""


TECHNICAL = ("Shrinkage", "Condition", "SHA-256", "Fingerprint", "Version")
"""First words of facts that tell nothing to most readers."""

Facts: TypeAlias = Sequence[tuple[str, str]]


def describe_provenance(provenance: Provenance) -> tuple[Facts, Facts]:
    """Name and value of each known fact about the origin of scores; apart, the technical ones."""
    noun, predictions, dim = provenance.noun, provenance.predictions, provenance.feature_dim
    scaled = ", scaled to unit length" if provenance.unit_length else ""
    reliable = None if provenance.reliable is None else "yes" if provenance.reliable else "no"
    facts = {
        "Dataset": provenance.dataset,
        "Backbone": provenance.backbone,
        "Predictions of": predictions and f"{predictions.recipe}, {predictions.run}",
        "Features": f"{dim:,} dimensions{scaled}" if dim else None,
        "Mirror images": "averaged with the images" if provenance.flip else None,
        "Corruption": provenance.corruption,
        f"{noun.capitalize()}s": _count(provenance.num_samples),
        f"{noun.capitalize()}s with a score": _count(provenance.num_scored),
        f"{noun.capitalize()}s that could not be read": _count(provenance.num_bad_images),
        "Faults of images": ", ".join(
            f"{fault} {count:,}" for fault, count in (provenance.image_faults or {}).items()
        ),
        "Labels": _made_labels(provenance),
        "Fitted on": _fitted_on(provenance),
        "Shrinkage": provenance.shrinkage,
        "Augmented copies of each image": _count(provenance.augment_runs or None),
        "Kind of augmentation": provenance.augmentation,
        "Condition within classes": _condition(provenance.within_condition),
        f"Condition of all {noun}s": _condition(provenance.agnostic_condition),
        f"Enough {noun}s to trust the scores": reliable,
        "SHA-256 of the weights": _hash(provenance.weights_sha256),
        "Fingerprint of the dataset": _hash(provenance.fingerprint),
        "Version": provenance.package_version,
    }
    known = [(name, str(value)) for name, value in facts.items() if value not in (None, "")]
    plain = [fact for fact in known if not fact[0].startswith(TECHNICAL)]
    return plain, [fact for fact in known if fact not in plain]


def _made_labels(provenance: Provenance) -> str | None:
    made = provenance.made_labels
    if made is None:
        return None
    if made.clusters is not None:
        return f"{made.clusters:,} clusters of the features"
    return f"the name that fits best, of {len(made.classes):,}, by “{made.prompt}”"


def _fitted_on(provenance: Provenance) -> str | None:
    fitted = provenance.fitted_on
    if fitted is None or not fitted.model_fields_set:
        return None
    if fitted.fingerprint == provenance.fingerprint:
        return None
    return f"{fitted.dataset}, {_count(fitted.num_samples)} {provenance.noun}s"


def _count(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"


def _condition(number: float | None) -> str | None:
    if number is None:
        return None
    verdict = "unproblematic" if number < SMALLEST_TROUBLESOME else "close to singular"
    return f"{number:.1e}, {verdict}"


def _hash(digits: str | None) -> str | None:
    return f"{digits[:SHORTENED]}…" if digits else None
