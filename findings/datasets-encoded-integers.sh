#!/bin/sh
# Hugging Face datasets 5.2.0: `class_encode_column`, which a stratified `train_test_split` asks for,
# on a column whose labels are the integers 0 to 11 already.
#
# Guess, before it was run: the integers stay, each with its text as the name.
# Seen: the names are sorted as texts, so that 10 and 11 come before 2, and every label from 2 on
# becomes another integer. A network that was trained on the old ones is judged by the new ones. Up
# to ten classes nothing changes, so that a test on CIFAR-10 does not show it.
#
# Output:
#   0 to 9: 0 1 2 3 4 5 6 7 8 9
#   0 to 11: 0 1 4 5 6 7 8 9 10 11 2 3
#   after a stratified split the label 2 is 4
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    datasets==5.2.0 pyarrow==26.0.1 numpy==2.4.6
cd "$folder"
cat > run.py <<'PYTHON'
import sys

import datasets

datasets.disable_progress_bars()


def encoded(labels):
    rows = {"label": labels, "given": labels}
    return datasets.Dataset.from_dict(rows).class_encode_column("label")


lines = [
    f"0 to {largest}: {' '.join(map(str, encoded(list(range(largest + 1)))['label'][:]))}"
    for largest in (9, 11)
]
split = encoded(list(range(12)) * 4).train_test_split(0.25, stratify_by_column="label", seed=0)
(found,) = {row["label"] for row in split["test"] if row["given"] == 2}
lines.append(f"after a stratified split the label 2 is {found}")
print("\n".join(lines))
sys.exit(
    lines
    != [
        "0 to 9: 0 1 2 3 4 5 6 7 8 9",
        "0 to 11: 0 1 4 5 6 7 8 9 10 11 2 3",
        "after a stratified split the label 2 is 4",
    ]
)
PYTHON
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" run.py
