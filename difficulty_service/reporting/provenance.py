"""Where the scores come from, in words."""

from collections.abc import Mapping, Sequence
from typing import Any

SHORTENED = 16
"""Digits of a hash that are shown."""

SMALLEST_TROUBLESOME = 1e8
"""Condition number above which rounding in float32 can reorder scores."""


def noun_of(provenance: Mapping[str, Any]) -> str:
    """What the samples are in a word: image or text."""
    options = provenance.get("dataset_options") or {}
    is_text = provenance.get("modality") == "text" or options.get("text_column") is not None
    return "text" if is_text else "image"


def describe_provenance(provenance: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Name and value of each known fact about the origin of scores."""
    noun = noun_of(provenance)
    facts = {
        "Dataset": provenance.get("dataset"),
        "Backbone": provenance.get("backbone"),
        "Predictions of": _predictions(provenance),
        "Features": _features(provenance),
        "Mirror images": "averaged with the images" if provenance.get("flip") else None,
        "Corruption": provenance.get("corruption"),
        f"{noun.capitalize()}s": _count(provenance.get("num_samples")),
        f"{noun.capitalize()}s with a score": _count(provenance.get("num_scored")),
        f"{noun.capitalize()}s that could not be read": _count(provenance.get("num_bad_images")),
        "Fitted on": _fitted_on(provenance),
        "Shrinkage": provenance.get("shrinkage"),
        "Augmented copies of each image": _count(provenance.get("augment_runs") or None),
        "Condition within classes": _condition(provenance.get("within_condition")),
        f"Condition of all {noun}s": _condition(provenance.get("agnostic_condition")),
        f"Enough {noun}s to trust the scores": _yes_or_no(provenance.get("reliable")),
        "SHA-256 of the weights": _hash(provenance.get("weights_sha256")),
        "Fingerprint of the dataset": _hash(provenance.get("fingerprint")),
        "Version": provenance.get("package_version"),
    }
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "")]


def _features(provenance: Mapping[str, Any]) -> str | None:
    dim = provenance.get("feature_dim")
    if not dim:
        return None
    scaled = ", scaled to unit length" if provenance.get("unit_length") else ""
    return f"{dim:,} dimensions{scaled}"


def _predictions(provenance: Mapping[str, Any]) -> str | None:
    predictions = provenance.get("predictions")
    return None if predictions is None else f"{predictions['recipe']}, {predictions['run']}"


def _fitted_on(provenance: Mapping[str, Any]) -> str | None:
    fitted = provenance.get("fitted_on") or {}
    if not fitted or fitted.get("fingerprint") == provenance.get("fingerprint"):
        return None
    return f"{fitted.get('dataset')}, {_count(fitted.get('num_samples'))} {noun_of(provenance)}s"


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
