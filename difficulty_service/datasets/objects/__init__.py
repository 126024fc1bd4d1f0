"""Datasets of objects: boxes in images, each of which becomes a sample; one file per format."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from difficulty_service.datasets.objects.box_table import (
    find_box_tables,
    is_box_table,
    open_box_table,
)
from difficulty_service.datasets.objects.coco import open_coco
from difficulty_service.datasets.objects.coco_files import find_files, is_coco_file
from difficulty_service.datasets.objects.cvat import find_cvat, is_cvat_file, open_cvat
from difficulty_service.datasets.objects.label_studio import (
    find_label_studio,
    is_label_studio_file,
    open_label_studio,
)
from difficulty_service.datasets.objects.shape_files import (
    CREATEML,
    LABELME,
    SUPERVISELY,
    ShapeFormat,
    is_of_shapes,
    is_shape_file,
    open_shapes,
)
from difficulty_service.datasets.objects.voc import is_voc, open_voc
from difficulty_service.datasets.objects.yolo import open_yolo
from difficulty_service.datasets.objects.yolo_kind import is_yolo, is_yolo_file
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.datasets.storage import Entry, StoredPath


@dataclass(frozen=True)
class ObjectFormat:
    """A format of boxes.

    Attributes:
        open: Function that opens a dataset.
        find: Function that finds files of the format in a folder with these entries, or says
            whether there are any.
        is_file: Whether a file is.
    """

    open: Callable[[str, DatasetOptions], Dataset]
    find: Callable[[StoredPath, list[Entry]], object]
    is_file: Callable[[StoredPath], bool] = lambda _: False


def _of_shapes(form: ShapeFormat) -> ObjectFormat:
    return ObjectFormat(
        partial(open_shapes, form), partial(is_of_shapes, form), partial(is_shape_file, form)
    )


OBJECT_FORMATS: dict[str, ObjectFormat] = {
    "yolo": ObjectFormat(open_yolo, is_yolo, is_yolo_file),  # may have notes in JSON beside it
    "coco": ObjectFormat(open_coco, find_files, is_coco_file),
    "voc": ObjectFormat(open_voc, is_voc),
    "label-studio": ObjectFormat(open_label_studio, find_label_studio, is_label_studio_file),
    "cvat": ObjectFormat(open_cvat, find_cvat, is_cvat_file),
    "labelme": _of_shapes(LABELME),
    "supervisely": _of_shapes(SUPERVISELY),
    "createml": _of_shapes(CREATEML),
    "box-table": ObjectFormat(open_box_table, find_box_tables, is_box_table),
}

GIVE_WAY = ("labelme", "supervisely", "createml", "box-table")
"""Formats whose files are also beside those of others, which count; each before the following."""
