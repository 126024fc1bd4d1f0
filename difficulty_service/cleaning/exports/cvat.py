"""Scores as tags of CVAT, the most doubtful labels first."""

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from difficulty_service.base.errors import CleaningError, ImageError
from difficulty_service.cleaning.class_folders import extension_of
from difficulty_service.cleaning.exports.samples import Exported, class_list, most_doubtful_first
from difficulty_service.images.header import open_header, upright_shape
from difficulty_service.marks.annotations import (
    CVAT_ANNOTATIONS,
    CVAT_VERSION,
    DROP,
    DROP_WORDS,
    cvat_name,
)
from difficulty_service.pages.stored_images import ImageSource, MissingImages
from difficulty_service.scores.file import ScoreFile

IMAGES, LABELS = "images.zip", "labels.json"


@dataclass(frozen=True)
class _Frame:
    """An image of the task; its path begins with its place, so that paths have the order."""

    path: str
    label: str
    height: int
    width: int


def write_cvat(
    scores: ScoreFile,
    images: ImageSource,
    folder: Path,
    final: Path,
) -> Exported:
    """Writes the labels, images and annotations ("CVAT for images 1.1") of a task.

    CVAT shows frames in the order of their names, which begin with the place of the sample: those
    come first whose label fits worst. The name also holds the class and the id.
    """
    names = class_list(scores)
    if taken := [name for name in names if name in DROP_WORDS]:
        raise CleaningError(
            f"a class is named {taken[0]}, which as a tag of CVAT means that the image is dropped",
            "export to another tool, or rename the class",
            parameter="to",
        )
    ids, missing = scores.table["sample_id"].to_pylist(), MissingImages()
    labels = dict(zip(ids, scores.table["label"].to_pylist(), strict=True))
    order = {sample_id: place for place, sample_id in enumerate(most_doubtful_first(scores))}
    frames = []
    with zipfile.ZipFile(folder / IMAGES, "w") as archive:  # images do not get smaller
        for sample_id, image in images.images(ids, missing.add):
            try:
                data = image.read()
                height, width = upright_shape(open_header(data))
                extension = extension_of(data)
            except (ImageError, OSError) as error:
                missing.add(sample_id, f"image: {error}")
                continue
            label = names[labels[sample_id]]
            path = cvat_name(order[sample_id], label, sample_id, extension)
            if path is None:
                missing.add(sample_id, "its id or class is too long for the name of a file")
                continue
            archive.writestr(path, data)
            frames.append(_Frame(path, label, height, width))
    frames.sort(key=lambda frame: frame.path)
    tags = [{"name": name, "type": "tag", "attributes": []} for name in (*names, DROP)]
    (folder / LABELS).write_text(json.dumps(tags, indent=1, ensure_ascii=False), "utf-8")
    (folder / CVAT_ANNOTATIONS).write_text(
        _annotations(final.name, [*names, DROP], frames), "utf-8"
    )
    steps = (
        f"in CVAT, create a task with the labels of {final / LABELS} (tab Raw) and the images of "
        f"{final / IMAGES}, then upload {final / CVAT_ANNOTATIONS} as CVAT {CVAT_VERSION}"
    )
    return Exported(missing.warnings(), [steps])


def _annotations(task: str, labels: Sequence[str], frames: Sequence[_Frame]) -> str:
    root = ET.Element("annotations")
    ET.SubElement(root, "version").text = CVAT_VERSION
    about = ET.SubElement(ET.SubElement(root, "meta"), "task")
    for name, value in (("name", task), ("size", str(len(frames))), ("mode", "annotation")):
        ET.SubElement(about, name).text = value
    declared = ET.SubElement(about, "labels")
    for each in labels:
        label = ET.SubElement(declared, "label")
        for name, value in (("name", each), ("type", "tag"), ("attributes", "")):
            ET.SubElement(label, name).text = value
    for number, frame in enumerate(frames):
        size = {"width": str(frame.width), "height": str(frame.height)}
        image = ET.SubElement(root, "image", {"id": str(number), "name": frame.path, **size})
        ET.SubElement(image, "tag", {"label": frame.label, "source": "auto"})
    ET.indent(root)
    return ET.tostring(root, "unicode", xml_declaration=True)
