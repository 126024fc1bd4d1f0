"""Gaussians on disk: a safetensors file for scoring new data and for merging."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from difficulty_service.errors import FeatureStoreError, StatisticsError
from difficulty_service.feature_description import FeatureDescription
from difficulty_service.files.atomic_file import replacing
from difficulty_service.files.checked_safetensors import UNREADABLE, read_tensors, write_tensors
from difficulty_service.files.checksum import DamagedFile
from difficulty_service.statistics.factor import Factor
from difficulty_service.statistics.fit_options import FitOptions
from difficulty_service.statistics.gaussian import Gaussians
from difficulty_service.statistics.moments import Moments

FORMAT_VERSION = 2
METADATA_KEY = "difficulty"
REMEDY = "make it again with `difficulty fit`"


def save_gaussians(path: Path, gaussians: Gaussians, fitted_on: FeatureDescription) -> None:
    """Writes Gaussians and the description of their features atomically."""
    description = {
        "format_version": FORMAT_VERSION,
        "options": vars(gaussians.options),
        "warnings": gaussians.warnings,
        "provenance": fitted_on.to_json(),
    }
    tensors = {
        "mean": gaussians.mean,
        "class_means": gaussians.class_means,
        **{f"moments.{name}": tensor for name, tensor in vars(gaussians.moments).items()},
    }
    if gaussians.centre is not None:
        tensors["centre"] = gaussians.centre
    for name, factor in (("within", gaussians.within), ("agnostic", gaussians.agnostic)):
        tensors[f"{name}.whitening"] = factor.whitening
        description[name] = {
            key: value for key, value in vars(factor).items() if key != "whitening"
        }
    with replacing(path) as temporary:
        write_tensors(temporary, tensors, {METADATA_KEY: json.dumps(description, sort_keys=True)})


def load_gaussians(path: Path) -> tuple[Gaussians, FeatureDescription]:
    """Reads Gaussians and the description of the features they were fitted to.

    Raises:
        StatisticsError: The file is missing or damaged, or of a version that this package does not
            know.
    """
    try:
        tensors, metadata = read_tensors(path)
        return _to_gaussians(path, tensors, json.loads(metadata.get(METADATA_KEY, "{}")))
    except FileNotFoundError:
        raise StatisticsError(f"there is no Gaussians file {path}") from None
    except DamagedFile as error:
        raise StatisticsError(f"{path} is damaged: {error}", REMEDY) from error
    except UNREADABLE as error:
        raise StatisticsError(f"{path} is not a whole safetensors file: {error}", REMEDY) from error
    except FeatureStoreError as error:
        raise StatisticsError(f"{path} is damaged: {error.problem}", REMEDY) from error
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise StatisticsError(f"{path} is damaged ({error!r})", REMEDY) from error


def _to_gaussians(
    path: Path, tensors: Mapping[str, Tensor], description: Mapping[str, Any]
) -> tuple[Gaussians, FeatureDescription]:
    """The Gaussians of a file, and the description of their features."""
    version = description.get("format_version")
    if version != FORMAT_VERSION:
        raise StatisticsError(
            f"{path} is not a Gaussians file of version {FORMAT_VERSION}: its version is {version}",
            REMEDY,
        )
    moments = Moments(**{name: tensors[f"moments.{name}"] for name in Moments.__dataclass_fields__})
    within, agnostic = (
        Factor(tensors[f"{name}.whitening"], **description[name]) for name in ("within", "agnostic")
    )
    gaussians = Gaussians(
        moments=moments,
        mean=tensors["mean"],
        class_means=tensors["class_means"],
        within=within,
        agnostic=agnostic,
        options=FitOptions(**description["options"]),
        warnings=tuple(description["warnings"]),
        centre=tensors.get("centre"),
    )
    return gaussians, FeatureDescription.of(description["provenance"])
