#!/bin/sh
# datumaro 1.13.12: export to Pascal VOC of two splits that have an image of the same name.
#
# Guess, before it was run: both images stay, in folders of their splits or under another name.
# Seen: one image and one file of annotations are left, those of either split, which differs from run
# to run, and the lists of both splits name them. So one image is gone, and the other is in the
# training set and in the validation set, without a warning.
#
# Output:
#   given: train/a truck, val/a leaf
#   images: ['a.png']
#   ImageSets/Main: train ['a'], val ['a']
#   read again: train/a and val/a with 1 label between them
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check datumaro==1.13.12
cd "$folder"
cat > run.py <<'PYTHON'
import sys
from pathlib import Path

from datumaro.components.annotation import Bbox
from datumaro.components.dataset import Dataset
from datumaro.components.dataset_base import DatasetItem
from datumaro.components.media import Image
from PIL import Image as Picture

names = ["truck", "leaf"]
items = []
for number, split in enumerate(("train", "val")):
    path = Path(split) / "a.png"
    path.parent.mkdir()
    Picture.new("RGB", (64, 64), (0, 200 * number, 0)).save(path)
    box = Bbox(10, 10, 30, 20, label=number)
    items.append(DatasetItem("a", subset=split, media=Image.from_file(path=str(path)), annotations=[box]))
Dataset.from_iterable(items, categories=names).export("voc", "voc_detection", save_media=True)

images = sorted(path.name for path in Path("voc/JPEGImages").iterdir())
lists = {
    split: Path(f"voc/ImageSets/Main/{split}.txt").read_text().split() for split in ("train", "val")
}
again = Dataset.import_from("voc", "voc_detection")
known = [each.name for each in next(iter(again.categories().values())).items]
read = {
    f"{item.subset}/{item.id}": known[each.label] for item in again for each in item.annotations
}
lines = [
    "given: train/a truck, val/a leaf",
    f"images: {images}",
    f"ImageSets/Main: train {lists['train']}, val {lists['val']}",
    f"read again: {' and '.join(sorted(read))} with {len({*read.values()})} label between them",
]
print("\n".join(lines))
expected = [
    "given: train/a truck, val/a leaf",
    "images: ['a.png']",
    "ImageSets/Main: train ['a'], val ['a']",
    "read again: train/a and val/a with 1 label between them",
]
sys.exit(lines != expected)
PYTHON
"$folder/venv/bin/python" run.py
