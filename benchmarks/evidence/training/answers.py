"""Whether each way to train helps, and when: sentences that follow from the numbers by a rule."""

from collections.abc import Sequence

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
    methods_for,
)

LABELS = {
    OFFICIAL: "official labels",
    "worst": "`worst`, 40 % wrong",
    "aggre": "`aggre`, 9 % wrong",
}
NETWORKS = {SCRATCH: "from scratch", PROBE: "probe"}
"""Names of the networks, in the order of the page."""

HELPS, IN_PART, DOES_NOT, HARMS = "Helps", "Helps in part", "Does not help", "Does harm"
NOT_KNOWN = "Too few runs to say"


def answers(results: Results) -> str:
    """One item for each method, and one for what difficulty adds to the entropy term."""
    lines = [
        f"- **{method.name[0].upper()}{method.name[1:]}**. {_cases(results, method, PLAIN)}.\n"
        for method in (*ANY_LABELS, *WRONG_LABELS)
        if method is not PLAIN
    ]
    lines.append(
        "- **Difficulty-weighted entropy beside constant entropy**, which knows nothing of "
        f"difficulty. {_cases(results, DIFFICULTY, CONSTANT)}.\n"
    )
    return "".join(lines)


def counting(found: Sequence[Difference], kind: str) -> list[Difference]:
    """The differences that count: under wrong labels, not those after temperature scaling.

    The temperature is fitted on held-out labels that are as wrong and makes every network too
    unsure, so that overconfidence would look like a gain.
    """
    return [each for each in found if kind == OFFICIAL or each.measure.stage == "raw"]


def judge(found: Sequence[Difference]) -> tuple[str, str]:
    """An answer to the question whether a method helps, and the measures that decide it.

    Args:
        found: Differences from another method, of several measures.

    Returns:
        The answer, and the reason in brackets; empty where there is none.
    """
    better, worse = (
        "; ".join(each.measure.name.removesuffix(", %") for each in found if each.verdict == sign)
        for sign in (1, -1)
    )
    if not found:
        return NOT_KNOWN, ""
    if better and worse:
        return IN_PART, f" (better: {better}. Worse: {worse})"
    if better:
        return HELPS, f" ({better})"
    if worse:
        return HARMS, f" ({worse})"
    return DOES_NOT, ""


def _cases(results: Results, method: Method, other: Method) -> str:
    """The networks and labels for which a method helps beside another, and the others."""
    cases: dict[str, list[str]] = {
        answer: [] for answer in (HELPS, IN_PART, DOES_NOT, HARMS, NOT_KNOWN)
    }
    for network, name in NETWORKS.items():
        for kind in KINDS:
            if method in methods_for(kind):
                both = [runs_of(results, network, kind, each) for each in (method, other)]
                complete = all(len(runs) == network.seeds for runs in both)
                answer, reason = judge(counting(differences(*both), kind) if complete else [])
                cases[answer].append(f"{name}, {LABELS[kind]}{reason}")
    total = sum(map(len, cases.values()))
    return ". ".join(
        f"{answer} in {len(some)} of {total}: {'; '.join(some)}"
        for answer, some in cases.items()
        if some
    )
