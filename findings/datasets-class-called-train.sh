#!/bin/sh
# Hugging Face datasets 5.2.0: a folder of images with one sub-folder per class, of which one is
# called `train`, as the class of CIFAR-100, COCO and many sets of vehicles.
#
# Guess, before it was run: four classes, since three of the four folders are no splits; at worst an
# error that asks which of the two is meant.
# Seen: `train` is the split, and the only one. The images of the other classes are gone and the
# labels with them, without a word. With another name for that class all images are read.
#
# Output:
#   bus car train truck: 3 images in train, without labels
#   bus car tram truck: 12 images in train, of bus car tram truck
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    datasets==5.2.0 pillow==13.0.0 pyarrow==26.0.1 numpy==2.4.6
cd "$folder"
cat > run.py <<'PYTHON'
import sys
from pathlib import Path

import datasets
from PIL import Image

datasets.disable_progress_bars()


def read(*classes):
    root = Path("-".join(classes))
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (8, 8)).save(root / name / f"{number}.png")
    splits = datasets.load_dataset("imagefolder", data_dir=str(root), cache_dir=f"cache {root}")
    found = []
    for name, split in splits.items():
        label = split.features.get("label")
        labels = f"of {' '.join(label.names)}" if label else "without labels"
        found.append(f"{len(split)} images in {name}, {labels}")
    return f"{' '.join(classes)}: {'; '.join(found)}"


lines = [read("bus", "car", "train", "truck"), read("bus", "car", "tram", "truck")]
print("\n".join(lines))
sys.exit(
    lines
    != [
        "bus car train truck: 3 images in train, without labels",
        "bus car tram truck: 12 images in train, of bus car tram truck",
    ]
)
PYTHON
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" run.py
