#!/bin/sh
# label-studio-sdk 2.1.2: COCO with outlines, imported, and exported to COCO again.
#
# Guess, before it was run: two objects stay two, each with its outline.
# Seen: each becomes two regions, a rectangle and a polygon, and so two annotations of the export:
# whoever counts or trains on these has every object twice.
#
# Output:
#   given: 2 annotations
#   imported: ['polygonlabels', 'polygonlabels', 'rectanglelabels', 'rectanglelabels']
#   exported: 4 annotations, 2 different boxes
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check label-studio-sdk==2.1.2
cd "$folder"
cat > run.py <<'PYTHON'
import json, sys
from pathlib import Path

from label_studio_sdk.converter import Converter
from label_studio_sdk.converter.imports.coco import convert_coco_to_ls
from PIL import Image

Path("uploads/1").mkdir(parents=True)
Image.new("RGB", (320, 200)).save("uploads/1/a.png")
corners = [[40, 20, 90, 40, 60, 100], [230, 110, 260, 140, 230, 170, 200, 140]]
annotations = [
    {
        "id": number, "image_id": 1, "category_id": 1, "segmentation": [outline], "iscrowd": 0,
        "area": 1000,
        "bbox": [
            min(outline[::2]), min(outline[1::2]),
            max(outline[::2]) - min(outline[::2]), max(outline[1::2]) - min(outline[1::2]),
        ],
    }
    for number, outline in enumerate(corners, 1)
]
given = {
    "images": [{"id": 1, "file_name": "a.png", "width": 320, "height": 200}],
    "annotations": annotations,
    "categories": [{"id": 1, "name": "leaf"}],
}
Path("given.json").write_text(json.dumps(given))
convert_coco_to_ls("given.json", "tasks.json", image_root_url="/data/upload/1")
tasks = json.loads(Path("tasks.json").read_text())
for number, task in enumerate(tasks, 1):
    task["id"] = number
    for each in task["annotations"]:
        each |= {"id": number, "completed_by": 1, "was_cancelled": False}
Path("tasks.json").write_text(json.dumps(tasks))
kinds = sorted(each["type"] for each in tasks[0]["annotations"][0]["result"])
(config,) = Path().glob("*.label_config.xml")
Converter(config.read_text(), project_dir=".", upload_dir="uploads").convert(
    "tasks.json", "coco", "COCO", is_dir=False
)
exported = json.loads(Path("coco/result.json").read_text())["annotations"]
boxes = {tuple(round(side, 3) for side in each["bbox"]) for each in exported}
lines = [
    f"given: {len(annotations)} annotations",
    f"imported: {kinds}",
    f"exported: {len(exported)} annotations, {len(boxes)} different boxes",
]
print("\n".join(lines))
expected = [
    "given: 2 annotations",
    "imported: ['polygonlabels', 'polygonlabels', 'rectanglelabels', 'rectanglelabels']",
    "exported: 4 annotations, 2 different boxes",
]
sys.exit(lines != expected)
PYTHON
"$folder/venv/bin/python" run.py
