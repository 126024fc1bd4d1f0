#!/bin/sh
# Hugging Face datasets 5.2.0: images that were opened from a file and then drawn over in place, for
# example to black out a face.
#
# Guess, before it was run: the dataset holds what was drawn, since it was given an image and not a
# path; at worst a JPEG is stored as its file, so as not to be compressed twice.
# Seen: an image that was opened from a file is stored as that file, JPEG or PNG, whether it is given
# directly or returned by `map`. The rectangle is lost without a word, in memory and in Parquet. A
# copy of the image has no file and keeps it.
#
# Output:
#   jpg, given: white
#   jpg, by map: white
#   jpg, by map, in Parquet: white
#   jpg, a copy: black
#   png, given: white
#   png, by map: white
#   png, by map, in Parquet: white
#   png, a copy: black
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    datasets==5.2.0 pillow==13.0.0 pyarrow==26.0.1 numpy==2.4.6
cd "$folder"
cat > run.py <<'PYTHON'
import sys

import datasets
from PIL import Image, ImageDraw

datasets.disable_progress_bars()
COLUMN = datasets.Features(image=datasets.Image())


def drawn_over(image):
    ImageDraw.Draw(image).rectangle((16, 16, 48, 48), fill="black")
    assert colour(image) == "black"
    return image


def colour(image):
    return "black" if image.convert("L").getpixel((32, 32)) < 128 else "white"


def given(image):
    return datasets.Dataset.from_dict({"image": [image]}, features=COLUMN)


lines = []
for kind in ("jpg", "png"):
    path = f"photograph.{kind}"
    Image.new("RGB", (64, 64), "white").save(path)
    mapped = given(path).map(lambda row: {"image": drawn_over(row["image"])})
    mapped.to_parquet(f"{kind}.parquet")
    written = datasets.Dataset.from_parquet(f"{kind}.parquet", cache_dir=f"cache of {kind}")
    for name, dataset in (
        ("given", given(drawn_over(Image.open(path)))),
        ("by map", mapped),
        ("by map, in Parquet", written),
        ("a copy", given(drawn_over(Image.open(path).copy()))),
    ):
        lines.append(f"{kind}, {name}: {colour(dataset[0]['image'])}")
print("\n".join(lines))
expected = [
    f"{kind}, {name}: {seen}"
    for kind in ("jpg", "png")
    for name, seen in (
        ("given", "white"),
        ("by map", "white"),
        ("by map, in Parquet", "white"),
        ("a copy", "black"),
    )
]
sys.exit(lines != expected)
PYTHON
"$folder/venv/bin/python" run.py
