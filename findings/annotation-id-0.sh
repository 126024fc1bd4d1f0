#!/bin/sh
# globox 2.9.0 and pycocotools 2.0.11: detections that are equal to what is annotated.
#
# globox writes COCO with annotations counted from 0. pycocotools keeps the id of what a detection
# matches, and takes 0 as no match.
#
# Guess, before it was run: the average precision of perfect detections is below 1.
# Seen: it is 0.442 for three perfect detections, and 1 where each id is one more: the one that
# matches the annotation 0 counts as false, and its annotation as not found.
#
# Output:
#   ids [0, 1, 2]: 0.442; each one more: 1.000
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check globox==2.9.0 pycocotools==2.0.11
cd "$folder"
cat > run.py <<'PYTHON'
import contextlib, io, json, sys
from pathlib import Path

from globox import Annotation, AnnotationSet, BoundingBox
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

boxes = [
    BoundingBox.create(label="leaf", coords=(left, 20, left + 60, 80)) for left in (20, 120, 220)
]
AnnotationSet([Annotation("a.png", (320, 200), boxes)]).save_coco(Path("truth.json"), auto_ids=True)
written = json.loads(Path("truth.json").read_text())


def precision(content):
    """Average precision at an intersection over union of 0.5, of detections equal to the truth."""
    Path("used.json").write_text(json.dumps(content))
    found = [
        {key: each[key] for key in ("image_id", "category_id", "bbox")} | {"score": 0.9}
        for each in content["annotations"]
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO("used.json")
        scores = COCOeval(truth, truth.loadRes(found), "bbox")
        scores.evaluate()
        scores.accumulate()
        scores.summarize()
    return scores.stats[1]


ids = [each["id"] for each in written["annotations"]]
from_0 = precision(written)
for each in written["annotations"]:
    each["id"] += 1
line = f"ids {ids}: {from_0:.3f}; each one more: {precision(written):.3f}"
print(line)
sys.exit(line != "ids [0, 1, 2]: 0.442; each one more: 1.000")
PYTHON
"$folder/venv/bin/python" run.py
