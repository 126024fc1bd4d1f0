#!/bin/sh
# crowd-kit 1.4.2: labels of three annotators, of whom each has left cells of the table empty.
#
# Guess, before it was run: an error, or the empty cells are left out, as by its majority vote.
# Seen: DawidSkene leaves them out. OneCoinDawidSkene takes each for a wrong label of its annotator.
# One who agrees with the others wherever two have labelled gets a skill of .51 in place of 1, and
# the tasks that this one alone has labelled come out nearly even.
#
# Output:
#   DawidSkene, empty cells: g cat 1.00
#   OneCoinDawidSkene, empty cells: g cat 0.53, skill of eve 0.51
#   OneCoinDawidSkene, without these rows: g cat 1.00, skill of eve 1.00
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    crowd-kit==1.4.2 pandas==3.1.1 numpy==2.4.6
cd "$folder"
cat > run.py <<'PYTHON'
import sys, warnings

import pandas as pd

warnings.simplefilter("ignore")  # of pandas, about how crowd-kit calls it
from crowdkit.aggregation import DawidSkene, OneCoinDawidSkene

table = pd.DataFrame(
    {
        "task": list("abcdefgh"),
        "ann": ["cat", "dog", "cat", "dog", "cat", "dog", None, None],
        "bob": ["cat", "dog", "cat", "dog", "cat", "dog", None, None],
        "eve": [None, None, None, None, None, "dog", "cat", "dog"],
    }
)
rows = table.melt("task", var_name="worker", value_name="label")


def cat(model, rows):
    return f"g cat {model.fit_predict_proba(rows).loc['g', 'cat']:.2f}"


def skill(model):
    return f"skill of eve {model.skills_['eve']:.2f}"


lines = [f"DawidSkene, empty cells: {cat(DawidSkene(n_iter=50), rows)}"]
for name, some in (("empty cells", rows), ("without these rows", rows.dropna())):
    model = OneCoinDawidSkene(n_iter=50)
    lines.append(f"OneCoinDawidSkene, {name}: {cat(model, some)}, {skill(model)}")
print("\n".join(lines))
expected = [
    "DawidSkene, empty cells: g cat 1.00",
    "OneCoinDawidSkene, empty cells: g cat 0.53, skill of eve 0.51",
    "OneCoinDawidSkene, without these rows: g cat 1.00, skill of eve 1.00",
]
sys.exit(lines != expected)
PYTHON
"$folder/venv/bin/python" run.py
