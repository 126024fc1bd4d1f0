"""Where the scores come from, in words."""

from collections.abc import Sequence

from difficulty_service.scores.provenance import Provenance

SHORTENED = 16
"""Digits of a hash that are shown."""

SMALLEST_TROUBLESOME = 1e8
"""Condition number above which rounding in float32 can reorder scores."""


def describe_provenance(provenance: Provenance) -> Sequence[tuple[str, str]]:
    """Name and value of each known fact about the origin of scores."""
    noun = provenance.noun
    facts = {
        "Dataset": provenance.dataset,
        "Backbone": provenance.backbone,
        "Predictions of": _predictions(provenance),
        "Features": _features(provenance),
        "Mirror images": "averaged with the images" if provenance.flip else None,
        "Corruption": provenance.corruption,
        f"{noun.capitalize()}s": _count(provenance.num_samples),
        f"{noun.capitalize()}s with a score": _count(provenance.num_scored),
        f"{noun.capitalize()}s that could not be read": _count(provenance.num_bad_images),
        "Fitted on": _fitted_on(provenance),
        "Shrinkage": provenance.shrinkage,
        "Augmented copies of each image": _count(provenance.augment_runs or None),
        "Condition within classes": _condition(provenance.within_condition),
        f"Condition of all {noun}s": _condition(provenance.agnostic_condition),
        f"Enough {noun}s to trust the scores": _yes_or_no(provenance.reliable),
        "SHA-256 of the weights": _hash(provenance.weights_sha256),
        "Fingerprint of the dataset": _hash(provenance.fingerprint),
        "Version": provenance.package_version,
    }
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "")]


def _features(provenance: Provenance) -> str | None:
    dim = provenance.feature_dim
    if not dim:
        return None
    scaled = ", scaled to unit length" if provenance.unit_length else ""
    return f"{dim:,} dimensions{scaled}"


def _predictions(provenance: Provenance) -> str | None:
    predictions = provenance.predictions
    return None if predictions is None else f"{predictions.recipe}, {predictions.run}"


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


def _yes_or_no(value: object) -> str | None:
    return None if value is None else "yes" if value else "no"


def _hash(digits: str | None) -> str | None:
    return f"{digits[:SHORTENED]}…" if digits else None
