"""Gaussians on disk: a safetensors file for scoring new data and for merging."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from difficulty_service.errors import StatisticsError
from difficulty_service.files.atomic_file import replacing
from difficulty_service.statistics.factor import Factor
from difficulty_service.statistics.fit_options import FitOptions
from difficulty_service.statistics.gaussian import Gaussians
from difficulty_service.statistics.moments import Moments

FORMAT_VERSION = 1
METADATA_KEY = "difficulty"

KEYS = {"matmul_dtype": "products"}
"""Keys in the file of the options that are stored under another name."""

FORMER_OPTIONS = {"force"}
"""Keys in older files of options that no longer exist."""


def save_gaussians(path: Path, gaussians: Gaussians, provenance: Mapping[str, Any]) -> None:
    """Writes Gaussians and their provenance atomically."""
    description = {
        "format_version": FORMAT_VERSION,
        "options": {KEYS.get(name, name): value for name, value in vars(gaussians.options).items()},
        "warnings": gaussians.warnings,
        "provenance": dict(provenance),
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
        # The save function of safetensors makes files that only their owner can read.
        temporary.write_bytes(
            save(
                {name: tensor.contiguous() for name, tensor in tensors.items()},
                metadata={METADATA_KEY: json.dumps(description, sort_keys=True)},
            )
        )


def load_gaussians(path: Path) -> tuple[Gaussians, Mapping[str, Any]]:
    """Reads Gaussians and their provenance.

    Raises:
        StatisticsError: The file is missing or damaged, or was not written by `save_gaussians`.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise StatisticsError(f"there is no Gaussians file {path}") from None
    except (SafetensorError, OSError) as error:
        raise StatisticsError(f"{path} is not a whole safetensors file: {error}") from error
    description = json.loads(metadata.get(METADATA_KEY, "{}"))
    if description.get("format_version") != FORMAT_VERSION:
        raise StatisticsError(
            f"{path} is not a Gaussians file of format {FORMAT_VERSION}",
            "make one with `difficulty fit`",
        )
    names = {key: name for name, key in KEYS.items()}
    options = {
        names.get(key, key): value
        for key, value in description["options"].items()
        if key not in FORMER_OPTIONS
    }
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
        options=FitOptions(**options),
        warnings=tuple(description["warnings"]),
        centre=tensors.get("centre"),
    )
    return gaussians, description["provenance"]
