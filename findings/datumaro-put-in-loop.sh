#!/bin/sh
# datumaro 1.13.12: items of a dataset, replaced by `put` while a loop goes over them.
#
# Guess, before it was run: after the loop, each item has the label that was put.
# Seen: none has. `put` says nothing, and `get` gives the old items, too. A loop over `list(dataset)`
# changes all, as does this loop after `init_cache`: the first pass over a dataset replaces what was
# put meanwhile by what it reads.
#
# Output:
#   loop over the dataset: [0, 0, 0]
#   loop over a list of it: [1, 1, 1]
#   loop after init_cache: [1, 1, 1]
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check datumaro==1.13.12
cd "$folder"
cat > run.py <<'PYTHON'
import sys

from datumaro.components.annotation import Label
from datumaro.components.dataset import Dataset
from datumaro.components.dataset_base import DatasetItem


def made():
    items = [DatasetItem(str(number), annotations=[Label(0)]) for number in range(3)]
    return Dataset.from_iterable(items, categories=["cat", "dog"])


def put_all(dataset, items):
    for item in items:
        dataset.put(item.wrap(annotations=[Label(1)]))
    return [dataset.get(str(number)).annotations[0].label for number in range(3)]


plain, listed, cached = made(), made(), made()
cached.init_cache()
lines = [
    f"loop over the dataset: {put_all(plain, plain)}",
    f"loop over a list of it: {put_all(listed, list(listed))}",
    f"loop after init_cache: {put_all(cached, cached)}",
]
print("\n".join(lines))
expected = [
    "loop over the dataset: [0, 0, 0]",
    "loop over a list of it: [1, 1, 1]",
    "loop after init_cache: [1, 1, 1]",
]
sys.exit(lines != expected)
PYTHON
"$folder/venv/bin/python" run.py
