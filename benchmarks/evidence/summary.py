"""Sentences of the page that say who is ahead: this project or a peer."""

from collections import Counter
from collections.abc import Sequence

from benchmarks.evidence.data import BACKBONES
from benchmarks.evidence.label_sets import PLANTED_SETS, TEST_SET, TRAINING_SETS, LabelSet
from benchmarks.evidence.results import COLUMNS, OURS, PEERS, Results, label
from benchmarks.evidence.scored import CONSENSUS, UNCERTAINTY, methods_for

REAL_SETS = {
    "`aggre`, 9 %": TRAINING_SETS[0],
    "`worst`, 40 %": TRAINING_SETS[1],
    "`rand1`, 17 %": TRAINING_SETS[2],
    "`rand2`, 18 %": TRAINING_SETS[3],
    "`rand3`, 18 %": TRAINING_SETS[4],
    "54 verified errors": TEST_SET,
}
"""Sets of labels that people gave, with the share of wrong ones."""


def backbone_name(backbone: str) -> str:
    """A backbone, or both, in a sentence."""
    return "both backbones" if backbone == CONSENSUS else backbone


def summary(results: Results) -> str:
    """The section that comes first."""
    backbones = (*BACKBONES, CONSENSUS)
    planted = [
        sentence.replace("by set of labels", "by set of planted wrong labels")
        for each in BACKBONES
        if (sentence := who_is_best(results, each, PLANTED_SETS))
    ]
    real = [
        sentence
        for each in backbones
        if (sentence := who_is_best(results, each, list(REAL_SETS.values())))
    ]
    listed = "".join(f"- {sentence}" for sentence in (*real, *planted))
    agreement = "".join(best_for_people(results, each) for each in backbones)
    return f"""## In short

Whether a peer or a score of ours is ahead, be it by less than the intervals in the tables below.

Wrong labels:

{listed}
Rank correlation with the votes of people:

{agreement}"""


def best_for_people(results: Results, backbone: str) -> str:
    """A sentence that compares our best score with the best of peers, on the same images."""
    found = {
        column: values["spearman"]
        for column in COLUMNS
        if (values := results.column(backbone, TEST_SET, column, "people")) is not None
    }
    # It learned from the labels of other images, which no peer has seen.
    elsewhere = found.pop(UNCERTAINTY, None)
    sides = [{c: v for c, v in found.items() if c in side} for side in (OURS, PEERS)]
    if not all(sides):
        return ""
    ours, theirs = (max(side, key=side.__getitem__) for side in sides)
    ahead = "ours is ahead" if found[ours] > found[theirs] else "a peer is ahead"
    trained = (
        f"; trained on 50,000 other images, {label(UNCERTAINTY)} has {elsewhere:.3f}"
        if elsewhere is not None
        else ""
    )
    return (
        f"- {backbone_name(backbone)}: {ahead}; {label(ours)} has {found[ours]:.3f}, "
        f"{label(theirs)} {found[theirs]:.3f}{trained}.\n"
    )


def who_is_best(results: Results, backbone: str, sets: Sequence[LabelSet]) -> str:
    """A sentence that counts the sets of labels that ours and each peer rank best."""
    winners: Counter[str] = Counter()
    for labels in sets:
        found = {
            column: values["auroc"]
            for column in COLUMNS
            if (values := results.column(backbone, labels, column, "wrong")) is not None
        }
        expected = {column for column, method in PEERS.items() if method in methods_for(labels)}
        # A comparison in which one side is missing says nothing.
        if found.keys() & OURS.keys() and found.keys() >= expected:
            winners[max(found, key=found.__getitem__)] += 1
    if not winners:
        return ""
    ours = sum(count for column, count in winners.items() if column in OURS)
    counts = ", ".join(f"{label(column)} {count}" for column, count in winners.most_common())
    total = sum(winners.values())
    return (
        f"Highest AUROC of all scores by set of labels, {backbone_name(backbone)}: ours in "
        f"{ours} of {total}, a peer's in {total - ours} ({counts}).\n"
    )
