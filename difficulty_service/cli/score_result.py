"""What `difficulty score` found, for other programs: one JSON object, and limits on what it counts.

Names and meanings of this object stay; later versions may add some.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from difficulty_service.base.contract import Found, Printed
from difficulty_service.base.wording import Noun, count_of, did_you_mean
from difficulty_service.cli.wrong_call import AboveLimit, WrongCall
from difficulty_service.scores.label_counts import LabelCounts
from difficulty_service.scores.tiers import ALMOST_CERTAINLY_WRONG, BETWEEN, PROBABLY_WRONG
from difficulty_service.scoring.image_faults import FAULT_NAMES
from difficulty_service.settings.options import ScoringOptions

if TYPE_CHECKING:
    from difficulty_service.features.source import FeatureSource
    from difficulty_service.scoring.pipeline import ExtractedDataset
    from difficulty_service.scoring.store import ScoreSummary

EXACT, NEAR, SKIPPED = "exact copies", "near copies", "skipped"
FAULTS = "image faults"
KINDS = (
    *(PROBABLY_WRONG, ALMOST_CERTAINLY_WRONG, BETWEEN),
    EXACT,
    NEAR,
    SKIPPED,
    FAULTS,
    *FAULT_NAMES,
)
"""What samples are counted by; `FAULTS` are all those of `FAULT_NAMES`."""

NO_LOOKS = (
    "the features do not tell how images look; extract them again from the images with --no-resume"
)
"""Why faults cannot be counted, and what to do."""


class Labels(Found):
    """How many labels are in each tier."""

    probably_wrong: int
    """Labels whose `p_wrong` is above 1/2."""

    almost_certainly_wrong: int
    """Labels whose `p_wrong` is above 0.95."""

    between_two_classes: int
    """Other labels that look more like another class."""

    fit: int
    """The rest of the labels that nobody has verified."""

    verified: int
    """Labels that a person has verified."""

    wrong_low: int | None
    """Lower bound of the number of wrong labels not found yet."""

    wrong_high: int | None
    """Most wrong labels that the fit explains, and no bound: people err where images are ambiguous,
    which it does not count. null where samples were dropped by a condition."""

    @classmethod
    def of(cls, counts: LabelCounts) -> Self:
        """The same numbers, named."""
        low, high = counts.left or (None, None)
        high = None if counts.dropped_unseen else high
        return cls(
            probably_wrong=counts.wrong,
            almost_certainly_wrong=counts.certain,
            between_two_classes=counts.between,
            fit=counts.fit,
            verified=counts.verified,
            wrong_low=low,
            wrong_high=high,
        )


class ScoreResult(Printed):
    """What `difficulty score --json` prints."""

    scores: str
    """The score file."""

    report: str | None
    """The page of `--report`; null without it."""

    noun: Noun
    """What a sample is in a word."""

    samples: int
    """Samples with features."""

    scored: int
    """Samples with a score."""

    skipped: int | None
    """Samples that could not be read and entries that are none; null where features were given."""

    skipped_file: str | None
    """File with the reason for each of them; null without any."""

    exact_copies: int
    """Samples with the content of an earlier one."""

    near_copies: int | None
    """Samples nearly like an earlier one, exact copies included; null where they were not looked
    for."""

    image_faults: dict[str, int] | None
    """Images with each `image_fault` that occurs; null where it is not known how samples look."""

    labels: Labels | None
    """null without `suspicion`."""

    clearest: list[dict[str, Any]]
    """Up to 20 labels to check, the clearest first: `sample_id`, `label_name`, the likelier class
    and the number it is by."""

    hardest: list[dict[str, Any]]
    """Up to 20 samples, the hardest first: `sample_id`, `label_name`, `rmd`."""

    round: str | None
    """Number of the round and its decisions, in words; null in the first."""

    warnings: tuple[str, ...]
    """What to know of the numbers, in sentences; the most important first."""

    @classmethod
    def of(
        cls,
        summary: "ScoreSummary",
        scores: Path,
        report: Path | None,
        extracted: "ExtractedDataset | None",
    ) -> Self:
        """What was found; `extracted` is None where features were given."""
        num_skipped = None
        if extracted is not None:
            num_skipped = len(extracted.bad_images) + len(extracted.skipped)
        caution = [] if summary.caution is None else [summary.caution]
        return cls(
            scores=str(scores),
            report=None if report is None else str(report),
            noun=summary.noun,
            samples=summary.num_samples,
            scored=summary.num_scored,
            skipped=num_skipped,
            skipped_file=str(extracted.errors_file) if extracted and num_skipped else None,
            exact_copies=summary.num_duplicates,
            near_copies=summary.num_near_duplicates,
            image_faults=None if summary.image_faults is None else dict(summary.image_faults),
            labels=None if summary.labels is None else Labels.of(summary.labels),
            clearest=summary.doubtful.to_pylist(),
            hardest=summary.hardest.to_pylist(),
            round=summary.round,
            warnings=tuple(dict.fromkeys([*caution, *summary.warnings])),
        )

    def number_of(self, kind: str) -> int | None:
        """How many samples are of a kind; None where they are not counted."""
        labels, faults = self.labels, self.image_faults
        if kind == FAULTS:
            return None if faults is None else sum(faults.values())
        if kind in FAULT_NAMES:
            return None if faults is None else faults.get(kind, 0)
        return {
            PROBABLY_WRONG: None if labels is None else labels.probably_wrong,
            ALMOST_CERTAINLY_WRONG: None if labels is None else labels.almost_certainly_wrong,
            BETWEEN: None if labels is None else labels.between_two_classes,
            EXACT: self.exact_copies,
            NEAR: self.near_copies,
            SKIPPED: self.skipped,
        }[kind]


class Counted(Protocol):
    """What a command counted."""

    @property
    def noun(self) -> Noun:
        """What a sample is in a word."""

    @property
    def samples(self) -> int:
        """Number of samples, of which percentages are."""

    def number_of(self, kind: str) -> int | None:
        """How many samples are of a kind; None where they are not counted."""


@dataclass(frozen=True)
class Limit:
    """The most samples of a kind that a caller allows: a number, or a percentage of all."""

    kind: str
    most: float
    is_percentage: bool

    @classmethod
    def parse(cls, text: str, kinds: Sequence[str] = KINDS) -> Self:
        """Reads KIND: NUMBER or KIND: NUMBER% with one of some kinds.

        Raises:
            WrongCall: There is no such kind, or no such number.
        """
        kind, _, number = (part.strip() for part in text.partition(":"))
        if kind not in kinds:
            raise WrongCall(
                f"--fail-above {text!r}: no kind {kind!r}; {did_you_mean(kind, kinds)}expected "
                f"KIND: NUMBER with one of {', '.join(kinds)}"
            )
        match = re.fullmatch(r"(\d{1,12})|(\d{1,3}(?:\.\d{1,9})?) ?%", number)
        if match is None or (match[2] and float(match[2]) > 100):  # noqa: PLR2004 - per cent
            raise WrongCall(
                f"--fail-above {text!r}: {number!r} is neither a whole number, such as 10, nor a "
                "percentage, such as 1%"
            )
        return cls(kind, float(match[1] or match[2]), match[1] is None)

    @property
    def is_of_faults(self) -> bool:
        """Whether it is on faults of images."""
        return self.kind == FAULTS or self.kind in FAULT_NAMES

    def require_counted(
        self, scoring: ScoringOptions, *, fitted: bool, features: bool, texts: bool
    ) -> None:
        """Refuses a limit on what a run will not count.

        Args:
            fitted: Whether Gaussians are given.
            features: Whether features are given.
            texts: Whether the samples are texts.

        Raises:
            WrongCall: It will not, with the option that would change it.
        """
        missing = {
            PROBABLY_WRONG: "suspicion among --scorers"
            if "suspicion" not in scoring.scorers
            else "",
            NEAR: "--near-duplicates" if scoring.near_duplicates is None else "",
            SKIPPED: "a dataset instead of its features" if features else "",
        }
        if fitted:
            missing[PROBABLY_WRONG] = "a fit to the labels, so no --gaussians"
        missing[ALMOST_CERTAINLY_WRONG] = missing[BETWEEN] = missing[PROBABLY_WRONG]
        if self.is_of_faults and texts:
            missing[self.kind] = "images, and these are texts"
        if needed := missing.get(self.kind):
            raise WrongCall(f"--fail-above '{self.kind}' needs {needed}")

    def explain(self, result: Counted) -> str | None:
        """How a result is above the limit, in words; None where it is not."""
        number = result.number_of(self.kind)
        if number is None:
            reason = f": {NO_LOOKS}" if self.is_of_faults else ""
            return f"{self.kind} cannot be counted in these samples{reason}"
        most = self.most * result.samples / 100 if self.is_percentage else self.most
        if number <= most:
            return None
        limit = f"{self.most:g}{' %' if self.is_percentage else ''}"
        return f"{self.kind}: {count_of(number, result.noun)}, above the limit of {limit}"


def require_looks(limits: Sequence[Limit], store: "FeatureSource") -> None:
    """Refuses a limit on faults where features do not tell how images look.

    Raises:
        WrongCall: One of the limits is on faults, and none of the features tells.
    """
    on_faults = [limit for limit in limits if limit.is_of_faults]
    if on_faults and all(store.appearance(shard) is None for shard in range(store.num_shards)):
        raise WrongCall(f"--fail-above '{on_faults[0].kind}': {NO_LOOKS}")


def require_below(limits: Sequence[Limit], results: Mapping[str, Counted]) -> None:
    """Ends the command where a result is above a limit.

    Args:
        results: Results by what stands before each sentence about one.

    Raises:
        AboveLimit: It is, with all limits that are exceeded.
    """
    exceeded = [
        f"{before}{text}"
        for before, result in results.items()
        for limit in limits
        if (text := limit.explain(result)) is not None
    ]
    if exceeded:
        raise AboveLimit("; ".join(exceeded))
