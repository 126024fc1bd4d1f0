#!/bin/sh
# ultralytics 8.4.190: a file of COCO whose categories are counted from 0, converted to YOLO.
#
# globox, labelformat and label-studio-sdk write such files; COCO asks for no certain numbers.
#
# Guess, before it was run: a class is the number of its category less one, so that the first becomes
# -1, if it is not refused; and a training leaves out images with it.
# Seen: so it is, and "COCO data converted successfully" is said. What checks the texts before a
# training leaves out each image with a line of the first class, with all of its boxes, and boxes of
# the second class have the number of the first one.
#
# Output:
#   categories [0, 1] became classes [-1, 0]
#   1 image: ignored, negative label values
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check ultralytics==8.4.190
cd "$folder"
cat > run.py <<'PYTHON'
import json, sys
from pathlib import Path

from PIL import Image
from ultralytics.data.converter import convert_coco
from ultralytics.data.utils import verify_image_label

if __name__ == "__main__":  # it starts processes that import this
    Path("source").mkdir()
    Image.new("RGB", (320, 200)).save("a.png")
    boxes = [[20, 30, 80, 60], [120, 30, 80, 60]]
    content = {
        "images": [{"id": 0, "file_name": "a.png", "width": 320, "height": 200}],
        "annotations": [
            {
                "id": number, "image_id": 0, "category_id": number, "bbox": box, "area": 4800,
                "iscrowd": 0, "segmentation": [],
            }
            for number, box in enumerate(boxes)
        ],
        "categories": [{"id": 0, "name": "leaf"}, {"id": 1, "name": "truck"}],
    }
    Path("source/instances_train.json").write_text(json.dumps(content))

    convert_coco("source", "made", cls91to80=False)
    (text,) = Path("made/labels").rglob("*.txt")
    classes = [int(line.split()[0]) for line in text.read_text().splitlines()]
    checked = verify_image_label(("a.png", str(text), "", False, 2, 0, 0, False))
    reason = "negative label values" if "negative label values" in checked[-1] else checked[-1]
    lines = [
        f"categories {[each['id'] for each in content['categories']]} became classes {classes}",
        f"1 image: {'ignored' if checked[0] is None else 'used'}, {reason}",
    ]
    print("\n".join(lines))
    expected = [
        "categories [0, 1] became classes [-1, 0]",
        "1 image: ignored, negative label values",
    ]
    sys.exit(lines != expected)
PYTHON
YOLO_CONFIG_DIR=$folder "$folder/venv/bin/python" run.py
