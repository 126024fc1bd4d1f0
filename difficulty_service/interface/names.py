"""The public names of `difficulty_service`, and where each is defined."""

from collections.abc import Mapping
from importlib.metadata import version

from difficulty_service.base.analyses import all_analyses, own_analyses
from difficulty_service.base.plugins import Analysis, function_of
from difficulty_service.base.process_setup import enable_avx512_kernels

HOMES = {
    "Encoder": "encoder",
    "RelativeMahalanobis": "estimator",
    "Scores": "scores",
    "backbone": "encoder",
    "open_scores": "scores",
    "preview": "preview",
    "report": "report",
    "score": "score",
    "score_dataset": "score",
}
"""Module of this package that defines each name; analyses define their own."""


def own_names() -> list[str]:
    """The public names of this package."""
    return sorted([*HOMES, *_functions_of(own_analyses()), "errors", "__version__"])


def all_names() -> list[str]:
    """The public names of this package and of the analyses of other packages."""
    return sorted({*own_names(), *_functions_of(all_analyses())})


def load(name: str) -> object:
    """The value of a public name.

    The BLAS libraries that this loads get the kernels that the commands select, too.

    Raises:
        AttributeError: There is no such name.
    """
    if name == "__version__":
        return version("difficulty-service")
    if name == "errors":
        return function_of("difficulty_service.base.errors")
    path = f"difficulty_service.interface.{HOMES[name]}:{name}" if name in HOMES else None
    path = path or _functions_of(own_analyses()).get(name)
    path = path or _functions_of(all_analyses()).get(name)
    if path is None:
        raise AttributeError(f"module 'difficulty_service' has no attribute {name!r}")
    enable_avx512_kernels()
    return function_of(path)


def _functions_of(analyses: Mapping[str, Analysis]) -> Mapping[str, str]:
    """Where each function of some analyses is, by its name."""
    paths = [path for each in analyses.values() for path in each.functions]
    return {path.partition(":")[2]: path for path in paths}
