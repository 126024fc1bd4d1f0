"""Datasets of objects: boxes in images, each of which becomes a sample; one file per format."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from difficulty_service.datasets.objects.box_table import (
    is_box_table,
    is_folder_of_box_tables,
    open_box_table,
)
from difficulty_service.datasets.objects.coco import is_coco, open_coco
from difficulty_service.datasets.objects.coco_files import is_coco_file
from difficulty_service.datasets.objects.cvat import is_cvat, is_cvat_file, open_cvat
from difficulty_service.datasets.objects.label_studio import (
    is_label_studio,
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
        is_folder: Whether a folder with these entries is of the format.
        is_file: Whether a file is.
    """

    open: Callable[[str, DatasetOptions], Dataset]
    is_folder: Callable[[StoredPath, list[Entry]], bool]
    is_file: Callable[[StoredPath], bool] = lambda _: False


def _of_shapes(form: ShapeFormat) -> ObjectFormat:
    return ObjectFormat(
        partial(open_shapes, form), partial(is_of_shapes, form), partial(is_shape_file, form)
    )


OBJECT_FORMATS: dict[str, ObjectFormat] = {
    "yolo": ObjectFormat(open_yolo, is_yolo, is_yolo_file),  # may have notes in JSON beside it
    "coco": ObjectFormat(open_coco, is_coco, is_coco_file),
    "voc": ObjectFormat(open_voc, is_voc),
    "label-studio": ObjectFormat(open_label_studio, is_label_studio, is_label_studio_file),
    "cvat": ObjectFormat(open_cvat, is_cvat, is_cvat_file),
    "labelme": _of_shapes(LABELME),
    "supervisely": _of_shapes(SUPERVISELY),
    "createml": _of_shapes(CREATEML),
    "box-table": ObjectFormat(open_box_table, is_folder_of_box_tables, is_box_table),
}

GIVE_WAY = ("labelme", "supervisely", "createml", "box-table")
"""Formats whose files are also beside those of others, which count; each before the following."""
