#!/bin/sh
# Pillow 13.0.0: the pixels of a photograph that is resized, beside those of 12.3.0.
#
# Guess, before it was run: both give the same pixels, as the release notes of 13.0.0 name nothing
# about existing filters.
# Seen: where the height shrinks by more than twice as many pixels as the width, 13.0.0 resizes
# vertically first. Pixels are rounded to a byte, and cut at 0 and 255, between the two passes, so
# that they differ, here by up to 17 of 255 levels, with the bicubic filter. Other shapes are the same.
#
# Output:
#   640 x 427 to 224 x 224: up to 0 levels
#   427 x 640 to 224 x 224: up to 11 levels
#   300 x 401 to 224 x 224: up to 13 levels
#   202 x 421 to 224 x 224: up to 17 levels
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > resize.py <<'PYTHON'
import sys

import numpy as np
from PIL import Image

# Dark twigs before a bright sky, as photographs of trees have them.
generator = np.random.default_rng(0)
noise = Image.fromarray(generator.integers(0, 256, (80, 80), dtype=np.uint8))
sky = np.asarray(noise.resize((640, 640), Image.Resampling.NEAREST))
pixels = np.where(sky[..., None] > 150, (20, 30, 10), (250, 252, 255)).astype(np.uint8)
sizes = [(640, 427), (427, 640), (300, 401), (202, 421)]
resized = {
    f"{width} x {height} to 224 x 224": np.asarray(
        Image.fromarray(pixels[:height, :width]).resize((224, 224), Image.Resampling.BICUBIC)
    )
    for width, height in sizes
}
np.savez(sys.argv[1], **resized)
PYTHON
for version in 12.3.0 13.0.0; do
    python3 -m venv "$version"
    "$version/bin/pip" install --quiet --disable-pip-version-check "pillow==$version" numpy==2.2.6
    "$version/bin/python" resize.py "$version.npz"
done
cat > compare.py <<'PYTHON'
import sys

import numpy as np

before, after = np.load("12.3.0.npz"), np.load("13.0.0.npz")
lines = [
    f"{name}: up to {np.abs(before[name].astype(int) - after[name]).max()} levels"
    for name in before.files
]
print("\n".join(lines))
expected = [
    "640 x 427 to 224 x 224: up to 0 levels",
    "427 x 640 to 224 x 224: up to 11 levels",
    "300 x 401 to 224 x 224: up to 13 levels",
    "202 x 421 to 224 x 224: up to 17 levels",
]
sys.exit(lines != expected)
PYTHON
13.0.0/bin/python compare.py
