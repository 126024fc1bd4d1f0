"""Whether each way to train helps, and when: answers that follow from the numbers by a rule."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.evidence.label_sets import OFFICIAL
from benchmarks.evidence.results import Results
from benchmarks.evidence.training.comparison import Difference, differences, runs_of
from benchmarks.evidence.training.data import KINDS
from benchmarks.evidence.training.methods import (
    ANY_LABELS,
    CONSTANT,
    DIFFICULTY,
    PLAIN,
    PROBE,
    SCRATCH,
    WRONG_LABELS,
    Method,
    Network,
    methods_for,
)

NETWORKS = {SCRATCH: "from scratch", PROBE: "probe"}
"""Names of the networks, in the order of the tables."""

HELPS, IN_PART, DOES_NOT, HARMS = "helps", "helps in part", "does not help", "does harm"
NOT_KNOWN = "too few runs to say"


@dataclass(frozen=True)
class Answer:
    """Whether a method helps beside another.

    Attributes:
        network: What is trained.
        kind: Labels that it is trained on.
        method: The method.
        other: The other one.
        text: The answer.
        better: Names of the measures that are better.
        worse: Names of those that are worse.
    """

    network: Network
    kind: str
    method: Method
    other: Method
    text: str
    better: tuple[str, ...]
    worse: tuple[str, ...]


def answers(results: Results) -> Iterator[Answer]:
    """Every method beside cross-entropy, and what difficulty adds to the entropy term."""
    pairs = [(each, PLAIN) for each in (*ANY_LABELS, *WRONG_LABELS) if each is not PLAIN]
    for method, other in [*pairs, (DIFFICULTY, CONSTANT)]:
        for network in NETWORKS:
            for kind in KINDS:
                if method in methods_for(kind):
                    both = [runs_of(results, network, kind, each) for each in (method, other)]
                    complete = all(len(runs) == network.seeds for runs in both)
                    found = counting(differences(*both), kind) if complete else []
                    yield Answer(network, kind, method, other, *judge(found))


def counting(found: Sequence[Difference], kind: str) -> list[Difference]:
    """The differences that count: under wrong labels, not those after temperature scaling.

    The temperature is fitted on held-out labels that are as wrong and makes every network too
    unsure, so that overconfidence would look like a gain.
    """
    return [each for each in found if kind == OFFICIAL or each.measure.stage == "raw"]


def judge(found: Sequence[Difference]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """An answer to the question whether a method helps, and the measures that decide it.

    Args:
        found: Differences from another method, of several measures.

    Returns:
        The answer, the measures that are better, and those that are worse.
    """
    better, worse = (
        tuple(each.measure.name.removesuffix(" (%)") for each in found if each.verdict == sign)
        for sign in (1, -1)
    )
    if not found:
        answer = NOT_KNOWN
    elif better:
        answer = IN_PART if worse else HELPS
    else:
        answer = HARMS if worse else DOES_NOT
    return answer, better, worse
