"""The columns of tables of metrics: title, unit, decimals and the better direction."""

from dataclasses import dataclass
from typing import Literal

from trainer.metrics.selective import CERTAINTIES

PERCENT, PER_MILLE = 100, 1000
NO_VALUE = "\N{EN DASH}"
UNITS = {1: "", PERCENT: " (%)", PER_MILLE: " (x 1000)"}
STAGE_TITLES = {
    "raw": "as trained",
    "temperature_nll": "temperature by NLL",
    "temperature_ece": "temperature by ECE",
    "temperature_adaptive_ece": "temperature by adaptive ECE",
}
ARROWS = {"higher": " ↑", "lower": " ↓", "neither": ""}


@dataclass(frozen=True)
class Column:
    """One metric in a table.

    Attributes:
        metric: Name of the metric in a record.
        title: Title of the column.
        better: Which values are better.
        scale: Factor from the value in the record to the value shown, a key of UNITS.
        decimals: Number of decimals shown.
    """

    metric: str
    title: str
    better: Literal["higher", "lower", "neither"]
    scale: int = 1
    decimals: int = 2

    @property
    def header(self) -> str:
        """Title, unit and an arrow in the better direction."""
        return self.title + UNITS[self.scale] + ARROWS[self.better]

    def shown(self, value: float | None) -> str:
        """The value in the unit of the header; a dash where there is none."""
        return NO_VALUE if value is None else f"{self.scale * value:.{self.decimals}f}"

    def signed(self, difference: float) -> str:
        """A difference of two values in the unit of the header, with its sign."""
        return f"{self.scale * difference:+.{self.decimals}f}"

    def is_best(self, value: float | None, others: list[float]) -> bool:
        """Whether no other value is better, at the number of decimals shown."""
        if value is None or self.better == "neither" or len(others) < 2:  # noqa: PLR2004
            return False
        best = max(others) if self.better == "higher" else min(others)
        return self.shown(value) == self.shown(best)


def _by_certainty(by: str, name: str) -> tuple[Column, ...]:
    """Misclassification detection and selective prediction by one of CERTAINTIES."""
    detection = f"misclassification_{{}}_{by}"
    return (
        Column(detection.format("auroc"), f"AUROC, {name}", "higher", PERCENT),
        Column(detection.format("aupr_success"), f"AUPR of successes, {name}", "higher", PERCENT),
        Column(detection.format("aupr_error"), f"AUPR of errors, {name}", "higher", PERCENT),
        Column(detection.format("fpr_at_95_tpr"), f"FPR at 95 % TPR, {name}", "lower", PERCENT),
        Column(
            detection.format("fpr_at_95_tpr_crl"),
            f"FPR at 95 % TPR as in CRL, {name}",
            "lower",
            PERCENT,
        ),
        Column(f"aurc_{by}", f"AURC, {name}", "lower", PER_MILLE),
        Column(f"e_aurc_{by}", f"E-AURC, {name}", "lower", PER_MILLE),
        Column(f"augrc_{by}", f"AUGRC, {name}", "lower", PER_MILLE),
        *(
            Column(
                f"accuracy_rejecting_{share}_percent_{by}",
                f"accuracy, {share} % rejected, {name}",
                "higher",
                PERCENT,
            )
            for share in (10, 20, 50)
        ),
    )


TEMPERATURE = Column("temperature", "temperature", "neither")

COLUMNS = {
    column.metric: column
    for column in (
        Column("accuracy", "accuracy", "higher", PERCENT),
        Column("top_5_accuracy", "top-5 accuracy", "higher", PERCENT),
        Column("nll", "NLL", "lower", decimals=4),
        Column("brier_score", "Brier score", "lower", decimals=4),
        Column("ece", "ECE", "lower", PERCENT),
        Column("adaptive_ece", "adaptive ECE", "lower", PERCENT),
        Column("classwise_ece", "class-wise ECE", "lower", PERCENT, decimals=3),
        Column("l2_ece", "L2-ECE", "lower", PERCENT),
        Column("mce", "MCE", "lower", PERCENT),
        *(column for by in CERTAINTIES for column in _by_certainty(by, {"msp": "MSP"}.get(by, by))),
        Column("s99_share", "share with confidence ≥ 0.99", "neither", PERCENT),
        Column("s99_accuracy", "accuracy of that share", "higher", PERCENT),
    )
}
"""Columns by the name of their metric, in the order of a table."""

MAIN_COLUMNS = (
    "accuracy",
    "nll",
    "brier_score",
    "ece",
    "adaptive_ece",
    "classwise_ece",
    "misclassification_auroc_msp",
    "aurc_msp",
)
"""Metrics that a comparison shows by default."""
