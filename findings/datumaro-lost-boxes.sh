#!/bin/sh
# datumaro 1.13.12: an upright and a turned box, exported to DOTA and to COCO.
#
# Guess, before it was run: DOTA, which has four corners for each object, holds both; COCO holds the
# turned one as an outline, or the box around it.
# Seen: DOTA holds the turned box alone, COCO the upright one alone. Neither export warns.
#
# Output:
#   DOTA: 1 of 2, leaf
#   COCO: 1 of 2, truck
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check datumaro==1.13.12
cd "$folder"
cat > run.py <<'PYTHON'
import json, sys
from pathlib import Path

from datumaro.components.annotation import Bbox, RotatedBbox
from datumaro.components.dataset import Dataset
from datumaro.components.dataset_base import DatasetItem
from datumaro.components.media import Image
from PIL import Image as Picture

names = ["truck", "leaf"]
Picture.new("RGB", (320, 200)).save("a.png")
boxes = [Bbox(20, 30, 80, 60, label=0), RotatedBbox(170, 115, 100, 70, 30, label=1)]
item = DatasetItem("a", subset="train", media=Image.from_file(path="a.png"), annotations=boxes)
dataset = Dataset.from_iterable([item], categories=names)
dataset.export("dota", "dota", save_media=True)
dataset.export("coco", "coco_instances", save_media=True)

found = {"DOTA": [], "COCO": []}
for line in next(Path("dota").rglob("a.txt")).read_text().splitlines():
    found["DOTA"].append(line.split()[8])
content = json.loads(Path("coco/annotations/instances_train.json").read_text())
named = {each["id"]: each["name"] for each in content["categories"]}
found["COCO"] = [named[each["category_id"]] for each in content["annotations"]]
lines = [f"{form}: {len(each)} of 2, {', '.join(each)}" for form, each in found.items()]
print("\n".join(lines))
sys.exit(lines != ["DOTA: 1 of 2, leaf", "COCO: 1 of 2, truck"])
PYTHON
"$folder/venv/bin/python" run.py
