"""Tables about training: what every way to train gains over cross-entropy."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.evidence.label_sets import OFFICIAL
from benchmarks.evidence.names import SUSPICION
from benchmarks.evidence.results import Results, statistic_of
from benchmarks.evidence.tables import Row, unsigned
from benchmarks.evidence.training.answers import NETWORKS, answers
from benchmarks.evidence.training.cells import chosen_alpha
from benchmarks.evidence.training.comparison import (
    MEASURES,
    Measure,
    difference,
    mean_and_deviation,
    mean_temperature,
    runs_of,
)
from benchmarks.evidence.training.data import KINDS
from benchmarks.evidence.training.methods import (
    PLAIN,
    WRONG_LABELS,
    Method,
    Network,
    methods_for,
)


def training(results: Results) -> Iterator[Row]:
    """Means over the seeds, and differences from cross-entropy; methods with all their seeds."""
    for network, name in NETWORKS.items():
        for kind in KINDS:
            plain = runs_of(results, network, kind, PLAIN)
            for method in methods_for(kind):
                runs = runs_of(results, network, kind, method)
                if len(runs) < network.seeds:
                    continue
                row = {"network": name, "labels": kind, "method": method.name}
                row |= _strength(results, network, kind, method) | statistic(method, runs)
                for measure in MEASURES:
                    yield row | _values(runs, plain if method is not PLAIN else {}, measure)


def verdicts(results: Results) -> Iterator[Row]:
    """Whether each method helps beside another, and the measures that decide it."""
    for answer in answers(results):
        runs = runs_of(results, answer.network, answer.kind, answer.method)
        yield {
            "method": answer.method.name,
            "beside": answer.other.name,
            "network": NETWORKS[answer.network],
            "labels": answer.kind,
            "answer": answer.text,
            "better": "; ".join(answer.better),
            "worse": "; ".join(answer.worse),
            **statistic(answer.method, runs),
        }


def networks(results: Results) -> Iterator[Row]:
    """What is trained, and how overconfident it is without any help under the official labels."""
    for network, name in NETWORKS.items():
        runs = runs_of(results, network, OFFICIAL, PLAIN)
        temperature = mean_temperature(runs)
        if temperature is not None:
            yield {
                "network": name,
                "parameters": str(next(iter(runs.values()))["parameters"]),
                "epochs": str(network.epochs),
                "seeds": str(network.seeds),
                "alphas_tried": " ".join(f"{each:g}" for each in network.alphas),
                "temperature": f"{temperature:.2f}",
            }


def statistic(method: Method, runs: Mapping[int, dict[str, Any]]) -> dict[str, str]:
    """Which statistic of `suspicion` a method went by; only those against wrong labels use one."""
    return statistic_of(SUSPICION, *runs.values()) if method in WRONG_LABELS else {}


def _strength(results: Results, network: Network, kind: str, method: Method) -> dict[str, str]:
    """The strength of the entropy term, and whether it is at an end of those that were tried."""
    alpha = chosen_alpha(results.folder, network, kind, method)
    if alpha is None:
        return {}
    ends = {network.alphas[0]: "least", network.alphas[-1]: "largest"}
    return {"alpha": f"{alpha:g}", "alpha_is": ends.get(alpha, "")}


def _values(
    runs: Mapping[int, dict[str, Any]], plain: Mapping[int, dict[str, Any]], measure: Measure
) -> dict[str, str]:
    """A measure of a method, and what it differs from that of cross-entropy."""
    found = [measure.scale * each for each in mean_and_deviation(runs, measure)]
    row = {"measure": measure.name}
    row |= zip(("mean", "sd"), (f"{each:.{measure.digits}f}" for each in found), strict=True)
    if (beside := difference(runs, plain, measure)) is not None:
        row["difference"] = unsigned(measure.scale * beside.mean, measure.digits)
        row["difference_95"] = f"{measure.scale * beside.error:.{measure.digits}f}"
        row["is"] = {1: "better", 0: "unsure", -1: "worse"}[beside.verdict]
    return row
