"""Datasets that other packages read: `PREFIX:REFERENCE`, found by their entry points.

An entry point in the group `difficulty.datasets` has the prefix as its name, and is a function of
one parameter: it takes what follows the colon, and returns a `PluggedDataset` or raises a
`DifficultyError`. A package so offers its format without importing this one.
"""

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from difficulty_service.base.errors import DatasetError, DifficultyError
from difficulty_service.datasets.listing import check_options
from difficulty_service.datasets.memory import ImagesInMemory, open_memory
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.plugins import entry_point_of

PLUGIN_GROUP = "difficulty.datasets"


class PluggedDataset(Protocol):
    """A dataset of another package.

    Attributes:
        sample_ids: Id of each sample, unique and stable from run to run.
        labels: Class indices. Shape (samples,).
        class_names: Name of each class index.
    """

    sample_ids: Sequence[str]
    labels: ArrayLike
    class_names: Sequence[str]

    def read_image(self, position: int) -> Any:  # noqa: ANN401 - whatever it holds
        """The image at a position, called by several threads: PIL, an array, bytes or a path."""


def find_plugin(location: str) -> EntryPoint | None:
    """The entry point that the prefix of a location stands for; None if no package has it."""
    is_address = location.partition(":")[2].startswith("//")
    return None if is_address else entry_point_of(PLUGIN_GROUP, location)


def open_plugged(location: str, options: DatasetOptions) -> Dataset:
    """Opens a dataset of another package.

    Args:
        location: Prefix and reference.
        options: Options, of which the limit and the shard size apply.

    Raises:
        DatasetError: The location is that of somebody who is confined to a folder, an option does
            not apply, or the package cannot read it.
    """
    plugin = find_plugin(location)
    if plugin is None or options.boundary is not None:
        raise DatasetError(
            f"{location!r} is read by another package, which knows no bounds, so only the command "
            "line and Python take it",
            parameter="location",
        )
    unused = ("split", "image_column", "label_column", "id_column", "text_column")
    check_options(options, f"the datasets of {plugin.value}", unused)
    try:
        held: PluggedDataset = plugin.load()(location.partition(":")[2])
        labels = np.asarray(held.labels, dtype=np.int32)
        names = tuple(map(str, held.class_names))
        ids = list(map(str, held.sample_ids))
    except DifficultyError:
        raise
    except Exception as error:
        raise DatasetError(
            f"{plugin.value} cannot read {location!r}: {type(error).__name__}: {error}",
            parameter="location",
        ) from error
    if labels.shape != (len(ids),) or (
        labels.size and not 0 <= labels.min() <= labels.max() < len(names)
    ):
        raise DatasetError(
            f"{plugin.value} gave {len(ids):,} samples of {len(names):,} classes, but labels of "
            f"shape {labels.shape} that are not all class indices",
            parameter="location",
        )
    return open_memory(ImagesInMemory(held.read_image, ids, labels, names), location, options)
