#!/bin/sh
# torch 2.15.0: CrossEntropyLoss with class weights and label smoothing together.
#
# Guess, before it was run: each sample's smoothed loss is multiplied by the weight of its label, so
# that weights change how much a sample counts, and not what is best to say of it. With smoothing of
# 0.1 and two classes that is .95 for the label.
# Seen: the smoothed part is multiplied by the weight of the class that it goes to. Where one class
# is 100 times as common as the other and weights balance them, the least loss of a sample of the
# common class is reached by calling it the rare one, with a probability of .84. The mean divides by
# the weights of the labels alone: a batch of the common class, at even odds, has a loss of 4.12 in
# place of ln 2 = .69.
#
# Output:
#   weights 0.505 and 50.5
#   common class: best probability of the label 0.16, of the other class 0.84
#   rare class: best probability of the label 1.00, of the other class 0.00
#   without smoothing, even odds, common class: loss 0.69
#   with smoothing, even odds, common class: loss 4.12
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cd "$folder"
cat > run.py <<'PYTHON'
import sys

import torch
from torch.nn import CrossEntropyLoss

COUNTS = torch.tensor([1000.0, 10.0])
weights = COUNTS.sum() / (2 * COUNTS)  # as scikit-learn's "balanced"
labels = torch.arange(2).repeat_interleave(COUNTS.int())


def best(smoothing):
    """The probabilities of least loss of each sample, which are free of each other."""
    logits = torch.zeros(len(labels), 2, requires_grad=True)
    optimiser = torch.optim.Adam([logits], lr=0.1)
    loss = CrossEntropyLoss(weight=weights, label_smoothing=smoothing)
    for _ in range(2000):
        optimiser.zero_grad()
        loss(logits, labels).backward()
        optimiser.step()
    return logits.detach().softmax(dim=1)


def loss_at_even_odds(smoothing):
    common = torch.zeros(1000, dtype=torch.long)
    loss = CrossEntropyLoss(weight=weights, label_smoothing=smoothing)
    return float(loss(torch.zeros(1000, 2), common))


found = best(0.1)
lines = [f"weights {weights[0]:.3g} and {weights[1]:.3g}"]
for name, row, label in (("common", found[0], 0), ("rare", found[-1], 1)):
    lines.append(
        f"{name} class: best probability of the label {row[label]:.2f}, "
        f"of the other class {row[1 - label]:.2f}"
    )
lines += [
    f"without smoothing, even odds, common class: loss {loss_at_even_odds(0.0):.2f}",
    f"with smoothing, even odds, common class: loss {loss_at_even_odds(0.1):.2f}",
]
print("\n".join(lines))
expected = [
    "weights 0.505 and 50.5",
    "common class: best probability of the label 0.16, of the other class 0.84",
    "rare class: best probability of the label 1.00, of the other class 0.00",
    "without smoothing, even odds, common class: loss 0.69",
    "with smoothing, even odds, common class: loss 4.12",
]
sys.exit(lines != expected)
PYTHON
"$folder/venv/bin/python" run.py
