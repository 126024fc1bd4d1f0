"""Label Studio's converter: exports of a project, and projects made of COCO and YOLO.

The exports are made of tasks as a project has them after people drew boxes on uploaded images.
"""

import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from label_studio_sdk.converter import Converter
from label_studio_sdk.converter.imports.coco import convert_coco_to_ls
from label_studio_sdk.converter.imports.yolo import convert_yolo_to_ls

from benchmarks.formats.case import Case, Reading, Row
from benchmarks.formats.coco_text import coco_of
from benchmarks.formats.scenes import CATEGORIES, Scene, Thing, draw_all

WRITER = "label-studio-sdk"
_LABELS = "".join(f'<Label value="{name}"/>' for name in CATEGORIES)
CONFIG = (
    '<View><Image name="image" value="$image"/>'
    f'<RectangleLabels name="box" toName="image">{_LABELS}</RectangleLabels>'
    f'<PolygonLabels name="outline" toName="image">{_LABELS}</PolygonLabels></View>'
)


def _result(thing: Thing, scene: Scene, number: int) -> dict[str, Any]:
    width, height = scene.size
    left, top, right, bottom = thing.sides
    across, down = 100 / width, 100 / height
    kind = "polygonlabels" if thing.corners else "rectanglelabels"
    if thing.corners:
        value: dict[str, Any] = {"points": [[x * across, y * down] for x, y in thing.corners]}
    else:
        # It turns a box around its upper left corner.
        left, top = thing.outline[0] if thing.degrees else (left, top)
        value = {
            "x": left * across,
            "y": top * down,
            "width": (right - thing.sides[0]) * across,
            "height": (bottom - thing.sides[1]) * down,
            "rotation": thing.degrees,
        }
    return {
        "id": f"region{number}",
        "type": kind,
        "from_name": "outline" if thing.corners else "box",
        "to_name": "image",
        "original_width": width,
        "original_height": height,
        "image_rotation": 0,
        "value": value | {kind: [thing.label]},
    }


def _tasks(folder: Path, scenes: Sequence[Scene]) -> Path:
    """The tasks of a project, whose images are in its folder of uploads."""
    draw_all(folder.parent / "source" / "1", scenes)
    tasks = []
    for number, scene in enumerate(scenes, 1):
        results = [_result(thing, scene, place) for place, thing in enumerate(scene.things)]
        annotation = {"id": number, "completed_by": 1, "was_cancelled": False, "result": results}
        annotation["updated_at"] = "2026-01-01T00:00:00Z"
        data = {"image": f"/data/upload/1/{scene.file}"}
        tasks.append({"id": number, "data": data, "annotations": [annotation], "predictions": []})
    path = folder.parent / "source" / "tasks.json"
    path.write_text(json.dumps(tasks))
    return path


def _export(form: str, folder: Path, scenes: Sequence[Scene]) -> None:
    tasks = _tasks(folder, scenes)
    converter = Converter(CONFIG, project_dir=str(folder), upload_dir=str(folder.parent / "source"))
    converter.convert(str(tasks), str(folder), form, is_dir=False)
    shutil.rmtree(tasks.parent)  # who gets the export has no uploads
    if form in {"JSON", "COCO"}:  # have no images; people put them beside it
        draw_all(folder / "images", scenes)


def _from_coco(folder: Path, scenes: Sequence[Scene]) -> None:
    source = folder.parent / "coco.json"
    source.write_text(json.dumps(coco_of(scenes)))
    draw_all(folder / "images", scenes)
    convert_coco_to_ls(str(source), str(folder / "tasks.json"))
    _tidy(folder)


def _from_yolo(folder: Path, scenes: Sequence[Scene]) -> None:
    source = folder.parent / "exported"
    _export("YOLO", source, scenes)
    draw_all(folder / "images", scenes)
    draw_all(source / "images", scenes)
    convert_yolo_to_ls(str(source), str(folder / "tasks.json"))
    _tidy(folder)


def _tidy(folder: Path) -> None:
    """The configuration of the project goes to Label Studio, and not with the data."""
    for path in folder.glob("*label_config.xml"):
        path.rename(folder.parent / path.name)


def _read_yolo(folder: Path, scenes: Sequence[Scene]) -> Reading:  # noqa: ARG001
    """The importer of YOLO, of which a project is made."""
    path = folder.parent / "again.json"
    convert_yolo_to_ls(str(folder), str(path))
    rows: list[Row] = []
    tasks = json.loads(path.read_text())
    for task in tasks:
        for each in (one for done in task.get("annotations", ()) for one in done["result"]):
            value, size = each["value"], (each["original_width"], each["original_height"])
            left, top = value["x"] * size[0] / 100, value["y"] * size[1] / 100
            across, down = value["width"] * size[0] / 100, value["height"] * size[1] / 100
            name = Path(task["data"]["image"]).name
            sides = (left, top, left + across, top + down)
            rows.append(("train", name, value["rectanglelabels"][0], sides))
    classes = (folder / "classes.txt").read_text().split()
    return Reading(rows, classes, len(tasks))


_SITUATIONS = ("plain", "empty image", "fractions of pixels", "turned box")

CASES = (
    *(
        Case(WRITER, "COCO", each, partial(_export, "COCO"))
        for each in (*_SITUATIONS, "outlines", "names with blanks, dots and umlauts")
    ),
    *(
        Case(WRITER, "YOLO", each, partial(_export, "YOLO_WITH_IMAGES"), _read_yolo)
        for each in (*_SITUATIONS, "at the borders")
    ),
    *(Case(WRITER, "Pascal VOC", each, partial(_export, "VOC")) for each in _SITUATIONS),
    Case(WRITER, "YOLO OBB", "turned box", partial(_export, "YOLO_OBB_WITH_IMAGES")),
    *(
        Case(WRITER, "Label Studio JSON", each, partial(_export, "JSON"))
        for each in (*_SITUATIONS, "outlines", "turned photograph", "sub-folders")
    ),
    *(
        Case(WRITER, "Label Studio JSON of COCO", each, _from_coco)
        for each in ("plain", "empty image", "outlines", "names with blanks, dots and umlauts")
    ),
    Case(WRITER, "Label Studio JSON of YOLO", "plain", _from_yolo),
)
