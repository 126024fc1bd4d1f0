#!/bin/sh
# timm 1.0.31 and torchvision 0.29.2: the same folder, with class folders that are called by numbers.
#
# Guess, before it was run: the same index for each class, by its sorted name, as networks of timm are
# trained and judged with either.
# Seen: timm sorts the names as people do (2 before 10), torchvision as texts (10 before 2). Where
# numbers have no leading zeros, a network that one has trained is judged by the other with nearly
# all classes exchanged, and both say nothing. Names of equal length, such as n01440764, agree.
#
# Output:
#   1 2 10: timm 1 2 10, torchvision 1 10 2
#   001 002 010: timm 001 002 010, torchvision 001 002 010
#   img9 img10: timm img9 img10, torchvision img10 img9
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    timm==1.0.31 torchvision==0.29.2 pillow==13.0.0 numpy==2.4.6
cd "$folder"
cat > run.py <<'PYTHON'
import sys
from pathlib import Path

from PIL import Image
from timm.data import create_dataset
from torchvision.datasets import ImageFolder


def ordered(indices):
    return " ".join(sorted(indices, key=indices.get))


def read(*classes):
    root = Path("-".join(classes))
    for name in classes:
        (root / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(root / name / "image.png")
    by_timm = create_dataset("", str(root)).reader.class_to_idx
    by_torchvision = ImageFolder(str(root)).class_to_idx
    found = f"timm {ordered(by_timm)}, torchvision {ordered(by_torchvision)}"
    return f"{' '.join(classes)}: {found}"


lines = [read("1", "2", "10"), read("001", "002", "010"), read("img9", "img10")]
print("\n".join(lines))
sys.exit(
    lines
    != [
        "1 2 10: timm 1 2 10, torchvision 1 10 2",
        "001 002 010: timm 001 002 010, torchvision 001 002 010",
        "img9 img10: timm img9 img10, torchvision img10 img9",
    ]
)
PYTHON
"$folder/venv/bin/python" run.py
