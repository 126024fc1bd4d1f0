"""The tags of a dataset that a person wants judged, read without torch."""

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
    return open_tags(location, wanted, reading.boundary, reading.limits)
