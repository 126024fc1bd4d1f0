"""Does knowing the difficulty help? Trains classifiers that read `scores.parquet`.

`import trainer` gives `trainer.train`, and what a training loop of one's own needs; each is loaded
when it is first used.
"""

from typing import TYPE_CHECKING

import difficulty_service.base.process_setup  # noqa: F401 - its package configures threads

if TYPE_CHECKING:
    from trainer.interface import TrainedRun as TrainedRun
    from trainer.interface import train as train
    from trainer.own_loop import IndexedDataset as IndexedDataset
    from trainer.own_loop import SampleObjective as SampleObjective
    from trainer.own_loop import read_difficulty as read_difficulty
    from trainer.own_loop import read_weights as read_weights
    from trainer.training.objective import Objective as Objective
    from trainer.training.sampling import DifficultySampler as DifficultySampler

_HOMES = {
    "DifficultySampler": "trainer.training.sampling",
    "IndexedDataset": "trainer.own_loop",
    "Objective": "trainer.training.objective",
    "SampleObjective": "trainer.own_loop",
    "TrainedRun": "trainer.interface",
    "read_difficulty": "trainer.own_loop",
    "read_weights": "trainer.own_loop",
    "train": "trainer.interface",
}
"""The module of each public name."""

__all__ = [
    "DifficultySampler",
    "IndexedDataset",
    "Objective",
    "SampleObjective",
    "TrainedRun",
    "read_difficulty",
    "read_weights",
    "train",
]


def __getattr__(name: str) -> object:
    """Loads one of the public names; importing the package loads none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from difficulty_service.base.extras import needs_extra

    with needs_extra(f"trainer.{name}", "train"):
        module = import_module(_HOMES[name])
    return globals().setdefault(name, getattr(module, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
