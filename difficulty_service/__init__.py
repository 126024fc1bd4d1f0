"""How hard is each sample? Images in, one difficulty score per sample out, as Parquet.

`import difficulty_service as ds` gives the names below; each is loaded when it is first used. It
configures libraries that are loaded later, such as PyTorch: their threads, and what they report.
"""

from typing import TYPE_CHECKING

from difficulty_service.base.process_setup import configure_libraries as _configure_libraries

if TYPE_CHECKING:
    from difficulty_service.base import errors as errors
    from difficulty_service.interface.annotators import annotators as annotators
    from difficulty_service.interface.backbone_trial import try_backbones as try_backbones
    from difficulty_service.interface.comparisons import compare_scores as compare_scores
    from difficulty_service.interface.comparisons import consensus as consensus
    from difficulty_service.interface.diff import diff as diff
    from difficulty_service.interface.encoder import Encoder as Encoder
    from difficulty_service.interface.encoder import backbone as backbone
    from difficulty_service.interface.estimator import RelativeMahalanobis as RelativeMahalanobis
    from difficulty_service.interface.explain import explain as explain
    from difficulty_service.interface.leaks import leaks as leaks
    from difficulty_service.interface.missing import missing_boxes as missing_boxes
    from difficulty_service.interface.preview import preview as preview
    from difficulty_service.interface.report import report as report
    from difficulty_service.interface.score import score as score
    from difficulty_service.interface.score import score_dataset as score_dataset
    from difficulty_service.interface.scores import Scores as Scores
    from difficulty_service.interface.scores import open_scores as open_scores
    from difficulty_service.interface.select import select as select
    from difficulty_service.interface.tags import tags as tags

    __version__: str

__all__ = [
    "Encoder",
    "RelativeMahalanobis",
    "Scores",
    "__version__",
    "annotators",
    "backbone",
    "compare_scores",
    "consensus",
    "diff",
    "errors",
    "explain",
    "leaks",
    "missing_boxes",
    "open_scores",
    "preview",
    "report",
    "score",
    "score_dataset",
    "select",
    "tags",
    "try_backbones",
]

# Here, since whatever starts this package, also in a process of its own, imports this module first.
_configure_libraries()


def __getattr__(name: str) -> object:
    """Loads one of the public names; importing the package loads none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from difficulty_service.interface.names import load

    value = globals()[name] = load(name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
