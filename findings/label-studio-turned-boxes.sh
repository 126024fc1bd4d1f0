#!/bin/sh
# label-studio-sdk 2.1.2: exports of a turned rectangle from an image that is not square.
#
# Guess, before it was run: COCO and YOLO hold the upright rectangle around the turned one.
# Seen: COCO holds another one, because the corners are turned in percent of width and height: a
# rectangle of 100 x 70 pixels, turned by 30 degrees, has one of 121.6 x 110.6 pixels around it, and
# the export says 142.6 x 91.9. YOLO and Pascal VOC hold the sides as if it were not turned, from
# where its upper left corner is after it was turned.
#
# Output:
#   around it: left 109.2 top 59.7 width 121.6 height 110.6
#   COCO: left 88.2 top 59.7 width 142.6 height 91.9
#   YOLO: left 144.2 top 59.7 width 100.0 height 70.0
#   VOC: left 144.0 top 59.0 width 100.0 height 70.0
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check label-studio-sdk==2.1.2
cd "$folder"
cat > run.py <<'PYTHON'
import json, math, sys
from pathlib import Path
from xml.etree import ElementTree

from PIL import Image
from label_studio_sdk.converter import Converter

WIDTH, HEIGHT = 320, 200
Path("uploads/1").mkdir(parents=True)
Image.new("RGB", (WIDTH, HEIGHT)).save("uploads/1/a.png")

# A rectangle of 100 x 70 around (170, 115), turned clockwise by 30 degrees.
cos, sin = math.cos(math.pi / 6), math.sin(math.pi / 6)
corners = [
    (170 + x * cos - y * sin, 115 + x * sin + y * cos)
    for x, y in ((-50, -35), (50, -35), (50, 35), (-50, 35))
]
left, top = corners[0]  # Label Studio names the corner that was the upper left one
value = {
    "x": left / WIDTH * 100, "y": top / HEIGHT * 100,
    "width": 100 / WIDTH * 100, "height": 70 / HEIGHT * 100,
    "rotation": 30, "rectanglelabels": ["leaf"],
}
result = {
    "id": "r", "type": "rectanglelabels", "from_name": "box", "to_name": "image", "value": value,
    "original_width": WIDTH, "original_height": HEIGHT, "image_rotation": 0,
}
task = {
    "id": 1, "data": {"image": "/data/upload/1/a.png"},
    "annotations": [{"id": 1, "completed_by": 1, "was_cancelled": False, "result": [result]}],
}
Path("tasks.json").write_text(json.dumps([task]))
config = (
    '<View><Image name="image" value="$image"/><RectangleLabels name="box" toName="image">'
    '<Label value="leaf"/></RectangleLabels></View>'
)
for form in ("COCO", "YOLO", "VOC"):
    Converter(config, project_dir=".", upload_dir="uploads").convert(
        "tasks.json", form.lower(), form, is_dir=False
    )

lines = []


def say(name, left, top, width, height):
    lines.append(f"{name}: left {left:.1f} top {top:.1f} width {width:.1f} height {height:.1f}")


across, down = zip(*corners)
say("around it", min(across), min(down), max(across) - min(across), max(down) - min(down))
say("COCO", *json.loads(Path("coco/result.json").read_text())["annotations"][0]["bbox"])
(text,) = Path("yolo/labels").glob("*.txt")
x, y, width, height = map(float, text.read_text().split()[1:])
say("YOLO", (x - width / 2) * WIDTH, (y - height / 2) * HEIGHT, width * WIDTH, height * HEIGHT)
(file,) = Path("voc/Annotations").glob("*.xml")
box = ElementTree.parse(file).find("object/bndbox")
xmin, ymin, xmax, ymax = (float(box.findtext(name)) for name in ("xmin", "ymin", "xmax", "ymax"))
say("VOC", xmin, ymin, xmax - xmin, ymax - ymin)
print("\n".join(lines))
expected = [
    "around it: left 109.2 top 59.7 width 121.6 height 110.6",
    "COCO: left 88.2 top 59.7 width 142.6 height 91.9",
    "YOLO: left 144.2 top 59.7 width 100.0 height 70.0",
    "VOC: left 144.0 top 59.0 width 100.0 height 70.0",
]
sys.exit(lines != expected)
PYTHON
"$folder/venv/bin/python" run.py
