"""Tables in which a sample has any number of tags: how they are read, and written back."""

from difficulty_service.datasets.tags.table import TagColumns as TagColumns
from difficulty_service.datasets.tags.table import TagTable as TagTable
from difficulty_service.datasets.tags.table import open_tags as open_tags
