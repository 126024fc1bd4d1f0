"""Tables about labels: what people disagree on, which labels are wrong, and who is best at it."""

from collections import Counter
from collections.abc import Iterator

from benchmarks.evidence.data import BACKBONES
from benchmarks.evidence.label_sets import PLANTED_SETS, TEST_SET, TRAINING_SETS, LabelSet
from benchmarks.evidence.names import COLUMNS, PEERS, PHOTO_ENCODER, SUSPICION
from benchmarks.evidence.paired import paired_name
from benchmarks.evidence.results import Results
from benchmarks.evidence.scored import CONSENSUS, methods_for
from benchmarks.evidence.tables import Row, interval

FEATURES = {**{each: each for each in BACKBONES}, CONSENSUS: "both by mean of ranks"}
REAL_SETS = {**{each.kind: each for each in TRAINING_SETS}, "verified errors": TEST_SET}
WRONG_PERCENT = dict(zip(REAL_SETS, ("9", "40", "17", "18", "18", "0.54"), strict=True))
SOURCES = {"cifar100-test": "CIFAR-100", "tiny-imagenet": "Tiny ImageNet"}
WITHOUT_LABELS = ("kmeans", "knn")
"""Scores that cannot find wrong labels."""

PAIRED_COLUMNS = (
    *("cleanlab self_confidence", "cleanlab normalized_margin", "AUM", "EL2N"),
    *("kNN", "SimiFeat vote", "scikit-learn LDA"),
)
PLANTED_COLUMNS = ("rmd", "label_margin", "suspicion", "agree", "uncertainty", *PAIRED_COLUMNS)
METHOD_SCORES = {
    "rmd": "rmd; md; rmd_loo; label_margin",
    "suspicion": "suspicion; those of rmd",
    "agree": "agree; those of rmd",
    "ambiguity": "ambiguity; those of rmd",
    "uncertainty": "uncertainty, trained and applied to all images",
    "cleanlab": "cleanlab with its probe",
    "training": "AUM with its cut; EL2N; forgetting",
    "neighbours": "kNN; SimiFeat vote",
    "pytorch-ood": "pytorch-ood, both detectors",
    "lda": "scikit-learn LDA",
    "lof": "scikit-learn LOF",
}


def people(results: Results) -> Iterator[Row]:
    """Rank correlations with the entropy of people's votes."""
    for backbone, features in {**FEATURES, PHOTO_ENCODER: PHOTO_ENCODER}.items():
        for column in COLUMNS:
            values = results.column(backbone, TEST_SET, column, "people")
            if values is not None:
                statistic = results.statistic(backbone, TEST_SET, column)
                yield {"features": features, "score": column, **interval(values), **statistic}


def wrong_labels(results: Results) -> Iterator[Row]:
    """How labels that people got wrong are ranked, and what the tools' own cuts find."""
    for backbone, features in FEATURES.items():
        for name, labels in REAL_SETS.items():
            for column in COLUMNS:
                values = results.column(backbone, labels, column, "wrong")
                if values is None or column in WITHOUT_LABELS:
                    continue
                row = {"features": features, "labels": name, "wrong_percent": WRONG_PERCENT[name]}
                row |= {"score": column, **auroc(values)}
                if backbone != CONSENSUS:
                    kept = ("average_precision", "precision", "recall")
                    row |= {key: f"{values[key]:.3f}" for key in kept if key in values}
                yield row | results.statistic(backbone, labels, column)


def auroc(values: dict[str, float]) -> dict[str, str]:
    """An area with the half-width of its 95 % interval."""
    return {"auroc": f"{values['auroc']:.4f}", "auroc_95": f"{values['auroc_error']:.4f}"}


def paired(results: Results) -> Iterator[Row]:
    """AUROC of ours minus those of peers, paired."""
    for backbone in BACKBONES:
        for name, labels in REAL_SETS.items():
            cell = results.cell(paired_name(backbone, labels))
            for column in PAIRED_COLUMNS if cell else ():
                difference, error = cell["difference"][column] if cell else (0, 0)
                yield {
                    "features": backbone,
                    "labels": name,
                    "peer": column,
                    "auroc_difference": f"{difference:.4f}",
                    "auroc_difference_95": f"{error:.4f}",
                    **results.statistic(backbone, labels, SUSPICION),
                }


def costs(results: Results) -> Iterator[Row]:
    """Processor time and memory of every method for the labels with most errors."""
    for backbone in BACKBONES:
        for method, scores in METHOD_SCORES.items():
            cell = results.cell(f"scores/{backbone.lower()}/{REAL_SETS['worst'].name}/{method}")
            if cell is None:
                continue
            row = {"features": backbone, "method": method, "scores": scores}
            row |= {
                key: f"{cell[key]:.0f}" for key in ("seconds", "megabytes") if cell[key] is not None
            }
            yield row | results.statistic(backbone, REAL_SETS["worst"], method)


def planted(results: Results) -> Iterator[Row]:
    """How labels that are wrong on purpose are ranked."""
    for backbone in BACKBONES:
        for labels in PLANTED_SETS:
            for column in PLANTED_COLUMNS:
                values = results.column(backbone, labels, column, "wrong")
                if values is not None:
                    yield {
                        "features": backbone,
                        "dataset": SOURCES[labels.source],
                        "noise": labels.kind,
                        "wrong_percent": f"{100 * labels.rate:g}",
                        "score": column,
                        "auroc": f"{values['auroc']:.3f}",
                        **results.statistic(backbone, labels, column),
                    }


def best(results: Results) -> Iterator[Row]:
    """In how many sets of labels each score is the best of all, before rounding."""
    kinds = [("people", each, list(REAL_SETS.values())) for each in FEATURES]
    kinds += [("planted", each, PLANTED_SETS) for each in BACKBONES]
    for kind, backbone, sets in kinds:
        winners = {labels: _winner(results, backbone, labels) for labels in sets}
        compared = [labels for labels, winner in winners.items() if winner]
        statistics = [results.statistic(backbone, labels, SUSPICION) for labels in compared]
        for column, count in Counter(filter(None, winners.values())).most_common():
            yield {
                "labels": kind,
                "features": FEATURES[backbone],
                "score": column,
                "whose": "a peer's" if column in PEERS else "ours",
                "sets": str(count),
                # One former number is enough to make the count former.
                **min(statistics, key=lambda each: each["suspicion_statistic"]),
            }


def _winner(results: Results, backbone: str, labels: LabelSet) -> str | None:
    """The score with the highest AUROC; none where one side is missing, which says nothing."""
    found = {
        column: values["auroc"]
        for column in COLUMNS
        if (values := results.column(backbone, labels, column, "wrong")) is not None
    }
    expected = {column for column, method in PEERS.items() if method in methods_for(labels)}
    if found.keys() <= PEERS.keys() or not found.keys() >= expected:
        return None
    return max(found, key=found.__getitem__)
