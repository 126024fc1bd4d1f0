#!/bin/sh
# labelformat 0.1.17 and pycocotools 2.0.11: YOLO converted to COCO, and opened.
#
# Guess, before it was run: annotations have no id, which COCO's format has for each, as the table of
# formats had shown, and pycocotools needs them to open the file.
# Seen: so it is: what reads COCO by pycocotools fails with a KeyError. With ids it opens it.
#
# Output:
#   keys of an annotation: bbox, category_id, image_id
#   opened: KeyError 'id'
#   opened with ids: 1 annotation
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check labelformat==0.1.17 pycocotools==2.0.11
cd "$folder"
cat > run.py <<'PYTHON'
import contextlib, io, json, sys
from pathlib import Path

from labelformat.formats import COCOObjectDetectionOutput, YOLOv8ObjectDetectionInput
from PIL import Image
from pycocotools.coco import COCO

Path("images").mkdir()
Path("labels").mkdir()
Image.new("RGB", (320, 200)).save("images/a.png")
Path("labels/a.txt").write_text("0 0.25 0.3 0.25 0.3\n")
Path("data.yaml").write_text("path: .\ntrain: images\nnames: [leaf]\n")
COCOObjectDetectionOutput(Path("coco.json")).save(
    YOLOv8ObjectDetectionInput(Path("data.yaml"), "train")
)


def opened(name):
    """What pycocotools finds in a file, or how it fails."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            number = len(COCO(name).anns)
    except Exception as error:
        return f"{type(error).__name__} {error}"
    return f"{number} annotation{'' if number == 1 else 's'}"


content = json.loads(Path("coco.json").read_text())
lines = [
    f"keys of an annotation: {', '.join(sorted(content['annotations'][0]))}",
    f"opened: {opened('coco.json')}",
]
for number, annotation in enumerate(content["annotations"], 1):
    annotation["id"] = number
Path("with_ids.json").write_text(json.dumps(content))
lines.append(f"opened with ids: {opened('with_ids.json')}")
print("\n".join(lines))
expected = [
    "keys of an annotation: bbox, category_id, image_id",
    "opened: KeyError 'id'",
    "opened with ids: 1 annotation",
]
sys.exit(lines != expected)
PYTHON
"$folder/venv/bin/python" run.py
