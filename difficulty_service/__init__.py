"""How hard is each sample? Images in, one difficulty score per sample out, as Parquet.

`import difficulty_service as ds` gives the names below; each is loaded when it is first used. It
configures libraries that are loaded later, such as PyTorch: their threads, and what they report.
"""

from typing import TYPE_CHECKING

from difficulty_service.base.process_setup import configure_libraries as _configure_libraries

if TYPE_CHECKING:
    from difficulty_service.analyses.annotators.function import annotators as annotators
    from difficulty_service.analyses.audit.comparison_function import (
        compare_scores as compare_scores,
    )
    from difficulty_service.analyses.audit.explain_function import explain as explain
    from difficulty_service.analyses.backbones.function import try_backbones as try_backbones
    from difficulty_service.analyses.consensus.function import consensus as consensus
    from difficulty_service.analyses.leaks.function import leaks as leaks
    from difficulty_service.analyses.missing_boxes.function import missing_boxes as missing_boxes
    from difficulty_service.analyses.selection.function import select as select
    from difficulty_service.analyses.tags.function import tags as tags
    from difficulty_service.analyses.versions.function import diff as diff
    from difficulty_service.base import errors as errors
    from difficulty_service.interface.encoder import Encoder as Encoder
    from difficulty_service.interface.encoder import backbone as backbone
    from difficulty_service.interface.estimator import RelativeMahalanobis as RelativeMahalanobis
    from difficulty_service.interface.preview import preview as preview
    from difficulty_service.interface.report import report as report
    from difficulty_service.interface.score import score as score
    from difficulty_service.interface.score import score_dataset as score_dataset
    from difficulty_service.interface.scores import Scores as Scores
    from difficulty_service.interface.scores import open_scores as open_scores

    __version__: str

# Here, since whatever starts this package, also in a process of its own, imports this module first.
_configure_libraries()


def __getattr__(name: str) -> object:
    """Loads one of the public names; importing the package loads none of them."""
    if name.startswith("__") and name not in {"__all__", "__version__"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from difficulty_service.interface.names import load, own_names

    value = globals()[name] = own_names() if name == "__all__" else load(name)
    return value


def __dir__() -> list[str]:
    from difficulty_service.interface.names import all_names

    return sorted({*globals(), *all_names()})
