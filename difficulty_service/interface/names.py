"""The public names of `difficulty_service`, and where each is defined."""

from importlib import import_module
from importlib.metadata import version

from difficulty_service.base.process_setup import enable_avx512_kernels

HOMES = {
    "Encoder": "encoder",
    "RelativeMahalanobis": "estimator",
    "Scores": "scores",
    "annotators": "annotators",
    "backbone": "encoder",
    "compare_scores": "comparisons",
    "consensus": "comparisons",
    "diff": "diff",
    "explain": "explain",
    "leaks": "leaks",
    "missing_boxes": "missing",
    "open_scores": "scores",
    "preview": "preview",
    "report": "report",
    "score": "score",
    "score_dataset": "score",
    "select": "select",
    "tags": "tags",
    "try_backbones": "backbone_trial",
}
"""Module of this package that defines each name."""


def load(name: str) -> object:
    """The value of a public name.

    The BLAS libraries that this loads get the kernels that the commands select, too.
    """
    if name == "__version__":
        return version("difficulty-service")
    if name == "errors":
        return import_module("difficulty_service.base.errors")
    enable_avx512_kernels()
    return getattr(import_module(f"difficulty_service.interface.{HOMES[name]}"), name)
