#!/bin/sh
# labelformat 0.1.17: YOLO to COCO of a photograph that its EXIF block turns.
#
# Guess, before it was run: the boxes stay where they are in the upright photograph, in which
# programs that train on YOLO see it (Pillow's `exif_transpose` and OpenCV's `imread` turn it).
# Seen: COCO says the size of the stored pixels, 320 x 200 in place of 200 x 320, and the box is in
# other proportions: 40 x 96 pixels became 64 x 60.
#
# Output:
#   upright: 200 x 320, box [20.0, 32.0, 40.0, 96.0]
#   COCO: 320 x 200, box [32.0, 20.0, 64.0, 60.0]
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check labelformat==0.1.17
cd "$folder"
cat > run.py <<'PYTHON'
import json, sys
from pathlib import Path

from PIL import Image, ImageOps

Path("images").mkdir()
Path("labels").mkdir()
exif = Image.Exif()
exif[0x0112] = 6  # to be turned clockwise
Image.new("RGB", (320, 200)).save("images/a.jpg", exif=exif)
with Image.open("images/a.jpg") as image:
    width, height = ImageOps.exif_transpose(image).size
box = [20.0, 32.0, 40.0, 96.0]
left, top, across, down = box
shares = ((left + across / 2) / width, (top + down / 2) / height, across / width, down / height)
Path("labels/a.txt").write_text(f"0 {' '.join(map(str, shares))}\n")
Path("data.yaml").write_text("path: .\ntrain: images\nnames: [leaf]\n")

from labelformat.formats import COCOObjectDetectionOutput, YOLOv8ObjectDetectionInput

COCOObjectDetectionOutput(Path("coco.json")).save(
    YOLOv8ObjectDetectionInput(Path("data.yaml"), "train")
)
content = json.loads(Path("coco.json").read_text())
image, annotation = content["images"][0], content["annotations"][0]
sides = [round(side, 3) for side in annotation["bbox"]]
lines = [
    f"upright: {width} x {height}, box {box}",
    f"COCO: {image['width']} x {image['height']}, box {sides}",
]
print("\n".join(lines))
expected = [
    "upright: 200 x 320, box [20.0, 32.0, 40.0, 96.0]",
    "COCO: 320 x 200, box [32.0, 20.0, 64.0, 60.0]",
]
sys.exit(lines != expected)
PYTHON
"$folder/venv/bin/python" run.py
