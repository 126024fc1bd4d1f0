#!/bin/sh
# webdataset 1.0.2: two samples whose names differ after a dot, written and read.
#
# Guess, before it was run: one sample is read, in which a member of the second one is in the place of
# that of the first.
# Seen: one sample is read, and it has all members of both, none under the name `txt` or `json` by
# which it would be asked for. Neither the writer, which is given the two names, nor the reader warns.
#
# Output:
#   written: day.1, day.2
#   read: day with 1.json, 1.txt, 2.json, 2.txt
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check webdataset==1.0.2
cd "$folder"
cat > run.py <<'PYTHON'
import sys, warnings

import webdataset as wds

warnings.simplefilter("error")
names = {"day.1": "apple", "day.2": "leaf"}
with wds.TarWriter("train.tar") as sink:
    for name, label in names.items():
        sink.write({"__key__": name, "txt": f"a photograph of {label}", "json": {"label": label}})
read = {
    sample["__key__"]: sorted(key for key in sample if not key.startswith("__"))
    for sample in wds.WebDataset("train.tar", shardshuffle=False)
}
lines = [f"written: {', '.join(names)}"]
lines += [f"read: {name} with {', '.join(members)}" for name, members in read.items()]
print("\n".join(lines))
expected = ["written: day.1, day.2", "read: day with 1.json, 1.txt, 2.json, 2.txt"]
sys.exit(lines != expected)
PYTHON
"$folder/venv/bin/python" run.py
