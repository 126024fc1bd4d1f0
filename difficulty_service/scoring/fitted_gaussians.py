"""Gaussians together with the description of the features they were fitted to.

They are kept in a safetensors file, for scoring new data and for merging.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from difficulty_service.base.checked_safetensors import UNREADABLE, read_tensors, write_tensors
from difficulty_service.base.checksums import DamagedFile
from difficulty_service.base.errors import FeatureStoreError, Setting, StatisticsError
from difficulty_service.base.files import replacing, require_output_file
from difficulty_service.base.json_text import parse_json
from difficulty_service.base.wording import list_names
from difficulty_service.features.description import FeatureDescription
from difficulty_service.gaussians.factor import Factor, gram, low_rank_root, rebuild
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.gaussian import Gaussians, fit_gaussians
from difficulty_service.gaussians.moments import Moments, merge
from difficulty_service.gaussians.ridge import needs_ridge

FORMAT_VERSION = 3
METADATA_KEY = "difficulty"
REMEDY = "make it again with `difficulty fit`"


def save_gaussians(path: Path, gaussians: Gaussians, fitted_on: FeatureDescription) -> None:
    """Writes Gaussians and the description of their features atomically.

    Matrices from far fewer samples than dimensions are written as their low-rank roots.
    """
    moments = gaussians.moments
    description = {
        "format_version": FORMAT_VERSION,
        "options": vars(gaussians.options),
        "warnings": gaussians.warnings,
        "provenance": fitted_on.to_json(),
    }
    tensors = {
        "mean": gaussians.mean,
        "class_means": gaussians.class_means,
        **{f"moments.{name}": tensor for name, tensor in vars(moments).items()},
    }
    scatter_root = low_rank_root(moments.scatter, moments.num_samples)
    if scatter_root is not None:
        tensors["moments.scatter_root"] = scatter_root
        del tensors["moments.scatter"]
    if gaussians.centre is not None:
        tensors["centre"] = gaussians.centre
    for name, factor in (("within", gaussians.within), ("agnostic", gaussians.agnostic)):
        if factor.root is None:
            tensors[f"{name}.whitening"] = factor.whitening
        else:
            tensors[f"{name}.root"] = factor.root
        description[name] = {
            key: value for key, value in vars(factor).items() if key not in ("whitening", "root")
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
        return _to_gaussians(path, tensors, parse_json(metadata.get(METADATA_KEY, "{}")))
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
    scatter_root = tensors.get("moments.scatter_root")
    moments = Moments(
        pilot=tensors["moments.pilot"],
        counts=tensors["moments.counts"],
        class_sums=tensors["moments.class_sums"],
        scatter=tensors["moments.scatter"] if scatter_root is None else gram(scatter_root),
    )
    within, agnostic = _to_factors(tensors, description)
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


def _to_factors(tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> Iterator[Factor]:
    """The factors of the covariance within classes and of all samples."""
    agnostic_root = tensors.get("agnostic.root")
    for name in ("within", "agnostic"):
        if agnostic_root is None:
            yield Factor(tensors[f"{name}.whitening"], **description[name])
        else:
            variance = float(agnostic_root.square().sum()) / agnostic_root.shape[1]
            yield rebuild(tensors[f"{name}.root"], **description[name], variance=variance)


@dataclass(frozen=True)
class FittedGaussians:
    """All that is needed to score features, and to tell whether the scores would make sense."""

    gaussians: Gaussians
    description: FeatureDescription

    @property
    def warnings(self) -> list[str]:
        """Warnings for whoever will score with them, one sentence each, with classes by name."""
        single = self.gaussians.single_sample_classes
        if not single:
            return list(self.gaussians.warnings)
        names = self.description.class_names
        return [
            *self.gaussians.warnings,
            f"classes with a single {self.description.noun}, which gets no score: "
            + list_names([names[label] for label in single]),
        ]

    def describe_fit(self) -> dict[str, Any]:
        """The fields of `Provenance` that say how the Gaussians were fitted."""
        gaussians = self.gaussians
        factors = {"within": gaussians.within, "agnostic": gaussians.agnostic}
        values = {
            f"{name}_{field}": getattr(factor, field)
            for name, factor in factors.items()
            for field in ("intensity", "ridge", "condition", "rank")
        }
        return {
            "shrinkage": gaussians.options.shrinkage,
            "products": gaussians.options.matmul_dtype,
            "reliable": gaussians.reliable,
            "unit_length": gaussians.centre is not None,
            # JSON has no infinity, the condition number of a singular covariance.
            **{name: value if math.isfinite(value) else None for name, value in values.items()},
        }

    @staticmethod
    def require_file_name(path: Path) -> None:
        """Raises StatisticsError where Gaussians cannot be written to a path, such as a folder."""
        require_output_file(path, (".safetensors", ""), StatisticsError)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a file that `save` wrote."""
        return cls(*load_gaussians(path))

    def save(self, path: Path) -> None:
        """Writes a safetensors file; it appears whole or not at all."""
        self.require_file_name(path)
        save_gaussians(path, self.gaussians, self.description)


def merge_gaussians(files: Sequence[Path]) -> FittedGaussians:
    """Gaussians as if they had been fitted to all the datasets at once.

    The options of the first file apply to all. Where a ridge is needed, it is the smallest one of
    any file, and features are not scaled to unit length, because each file did so around another
    point.
    """
    fitted = [FittedGaussians.load(file) for file in files]
    for file, each in zip(files[1:], fitted[1:], strict=True):
        _require_same_kind(files[0], fitted[0], file, each)
    options = fitted[0].gaussians.options
    moments = merge([each.gaussians.moments for each in fitted])
    ridge = 0.0
    if needs_ridge(moments, options):
        # The best ridge needs the features; more samples need no larger one than any part did.
        ridges = [each.gaussians.within.ridge for each in fitted]
        ridge = min((ridge for ridge in ridges if ridge > 0), default=0.0)
    merged = fit_gaussians(moments, options, ridge=ridge)
    first, *others = [each.description for each in fitted]
    prints = "\n".join(each.fingerprint for each in (first, *others))
    fingerprint = hashlib.sha256(prints.encode()).hexdigest()
    return FittedGaussians(merged, first.joined(others, fingerprint))


def _require_same_kind(
    first_file: Path, first: FittedGaussians, file: Path, second: FittedGaussians
) -> None:
    names = (f"in {first_file}", f"in {file}")
    different = first.description.kind_and_class_differences(second.description, names)
    if different:
        raise StatisticsError(
            f"{first_file} and {file} were fitted to other features ({'; '.join(different)})"
        )
    runs, other_runs = first.gaussians.options.runs, second.gaussians.options.runs
    if runs != other_runs:
        raise StatisticsError(
            f"{file} was fitted to {other_runs} rows per sample, {first_file} to {runs}",
            "extract both with the same ",
            Setting("augment_runs"),
            parameter="augment_runs",
        )


def require_same_features(description: FeatureDescription, fitted_on: FeatureDescription) -> None:
    """Refuses Gaussians that were fitted to another kind of features, or to other classes only."""
    different = description.kind_differences(fitted_on, ("in the features", "in the Gaussians"))
    if different:
        raise StatisticsError(
            f"the Gaussians were fitted to other features ({'; '.join(different)})",
            parameter="gaussians",
        )
    names, fitted_names = description.class_names, fitted_on.class_names
    if set(names).isdisjoint(fitted_names):
        raise StatisticsError(
            f"no class of the dataset ({list_names(names)}) is among those that the Gaussians were "
            f"fitted to ({list_names(fitted_names)}), so no {description.noun} would get a "
            "score",
            "give Gaussians of the same classes, or leave out ",
            Setting("gaussians"),
            " to fit new ones",
            parameter="gaussians",
        )
