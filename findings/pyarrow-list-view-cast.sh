#!/bin/sh
# pyarrow 26.0.1: views of lists, cast to lists.
#
# Guess, before it was run: the same lists, or an error where the cast is not implemented.
# Seen: the last list is empty, whatever it held, without an error.
# `pa.array(views.to_pylist(), kind)` gives the right lists.
#
# Output:
#   views: [[1.0, 2.0], None, [3.0, 4.0]]
#   list<item: float>: [[1.0, 2.0], None, []]
#   large_list<item: float>: [[1.0, 2.0], None, []]
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
cd "$folder"
cat > run.py <<'PYTHON'
import sys

import pyarrow as pa

lists = [[1.0, 2.0], None, [3.0, 4.0]]
views = pa.array(lists, pa.list_view(pa.float32()))
views.validate(full=True)
kinds = [pa.list_(pa.float32()), pa.large_list(pa.float32())]
lines = [f"views: {views.to_pylist()}"]
lines += [f"{kind}: {views.cast(kind).to_pylist()}" for kind in kinds]
print("\n".join(lines))
seen = "[[1.0, 2.0], None, []]"
sys.exit(lines != [f"views: {lists}", *(f"{kind}: {seen}" for kind in kinds)])
PYTHON
"$folder/venv/bin/python" run.py
