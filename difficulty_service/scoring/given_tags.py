"""The tags of a dataset that a person wants judged, read without torch."""

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.datasets.tags import TagColumns, TagTable, open_tags
from difficulty_service.settings.options import TagOptions


def open_given_tags(location: str, options: TagOptions, reading: DatasetOptions) -> TagTable | None:
    """The tags that the options name, in the table of the dataset; None where they name none.

    Raises:
        DatasetError: The dataset is no single table, or its tags cannot be read.
    """
    if options.tags is None:
        return None
    wanted = TagColumns(options.tag_columns, options.tag_separator, reading.id_column)
    try:
        return open_tags(location, wanted, reading.boundary, reading.limits)
    except DatasetError as error:
        raise _as_of_scoring(error) from error


_CALLED = {"columns": "tags", "separator": "tag_separator"}
"""What scoring calls the settings of tags."""


def _as_of_scoring(error: DatasetError) -> DatasetError:
    """The error with settings that scoring has."""
    remedy = [
        part
        if isinstance(part, str)
        else Setting(_CALLED.get(part.parameter, part.parameter), part.value)
        for part in error.remedy
    ]
    parameter = error.parameter and _CALLED.get(error.parameter, error.parameter)
    return type(error)(error.problem, *remedy, parameter=parameter)
