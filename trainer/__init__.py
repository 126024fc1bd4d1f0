"""Does knowing the difficulty help? Trains classifiers that read `scores.parquet`.

`import trainer` gives `trainer.train`, which is loaded when it is first used.
"""

from typing import TYPE_CHECKING

import difficulty_service.base.process_setup  # noqa: F401 - its package configures threads

if TYPE_CHECKING:
    from trainer.interface import TrainedRun as TrainedRun
    from trainer.interface import train as train

__all__ = ["TrainedRun", "train"]


def __getattr__(name: str) -> object:
    """Loads one of the public names; importing the package loads none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from difficulty_service.base.extras import needs_extra

    with needs_extra(f"trainer.{name}", "train"):
        module = import_module("trainer.interface")
    globals().update({each: getattr(module, each) for each in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
