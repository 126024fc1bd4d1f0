"""Samples of a job to label next or to keep, as finished jobs are asked for them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self

from pydantic import ConfigDict, model_validator

from difficulty_service.base.contract import Printed
from difficulty_service.base.wording import Noun
from difficulty_service.bodies.comparison_kinds import (
    MOST_CLASSES,
    Compared,
    ComparedJob,
    Comparison,
    ComparisonId,
    JobId,
    OtherJobs,
    Side,
    Tell,
    share_of,
)
from difficulty_service.settings.options import SelectOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from difficulty_service.analyses.selection.selection import Selection


class SelectResult(Printed):
    """What `difficulty select --json` prints."""

    pool: str
    """The samples that were chosen from."""

    noun: Noun
    """What a sample is in a word."""

    samples: int
    """Number of samples of the pool."""

    excluded: int
    """Number of those that have a label already, or were chosen before."""

    chosen: int
    """Number of samples that were chosen."""

    strategies: dict[str, int]
    """Number of samples that each strategy chose."""

    classes: dict[str, int]
    """Number of samples that were chosen of each class; empty without labels."""

    warnings: tuple[str, ...]
    """What to know of the choice, in sentences."""

    @classmethod
    def of(cls, selection: "Selection") -> Self:
        """What was chosen, counted."""
        return cls(
            pool=selection.name,
            noun=selection.noun,
            samples=selection.num_samples,
            excluded=selection.num_excluded,
            chosen=len(selection.table),
            strategies=dict(selection.strategies),
            classes=dict(selection.classes),
            warnings=selection.warnings,
        )


class SelectCreate(SelectOptions):
    """Which samples of this job to label next, or to keep."""

    model_config = ConfigDict(defer_build=False)

    kind: Literal["select"]

    labelled: JobId | None = None
    """Finished job with samples that have labels already; copies of them are not chosen."""

    chosen: ComparisonId | None = None
    """An earlier choice of this job, whose samples count as chosen already."""

    @model_validator(mode="after")
    def _reads_what_is_given(self) -> Self:
        if self.by is not None and not self.reads("scores"):
            raise ValueError(f"by: it changes nothing for {self.strategy}")
        return self


def find(
    asked: SelectCreate,
    pool: ComparedJob,
    others: Sequence[ComparedJob],
    earlier: "pa.Table | None",
    tell: Tell,
) -> Compared:
    """Chooses samples of this job."""
    from difficulty_service.analyses.selection.selection import Known, select_samples
    from difficulty_service.scores.measures import read_measure

    samples = replace(pool.split, ignores_labels=False)
    known = Known(
        scores=read_measure(pool.scores, asked.by) if asked.reads("scores") else None,
        labelled=others[0].split if others else None,
        chosen=() if earlier is None else earlier["sample_id"].to_pylist(),
    )
    labelled = 0 if known.labelled is None else known.labelled.num_samples
    compared = samples.num_samples * (asked.count + len(known.chosen) + labelled)
    selection = select_samples(samples, asked, known, share_of(compared, tell))
    marks = {selection.name: selection.other_marks}
    result = SelectResult.of(selection)
    if len(result.classes) > MOST_CLASSES:
        most = sorted(result.classes.items(), key=lambda each: -each[1])[:MOST_CLASSES]
        warning = (
            f"the {MOST_CLASSES} of {len(result.classes):,} classes with most chosen samples are "
            "listed; the table has the class of each sample"
        )
        listed = {"classes": dict(most), "warnings": (*result.warnings, warning)}
        result = result.model_copy(update=listed)
    return Compared(result, selection.table, marks)


def summary(asked: SelectCreate, found: SelectResult) -> str:
    """The number of chosen samples, and by what."""
    return f"{found.chosen:,} chosen by {asked.strategy}"


SELECT = Comparison(
    kind="select",
    title="What to label or keep",
    sentence="Samples to label next, or to keep. Random is hard to beat: compare a choice with it.",
    body=SelectCreate,
    result=SelectResult,
    others=OtherJobs("labelled", "Job with samples that have labels already", needed=False),
    find="difficulty_service.analyses.selection.comparison:find",
    summary=summary,
    sides=(Side("sample_id"),),
    marks="what is not chosen",
    earlier="chosen",
    templates="difficulty_service.analyses.selection",
    verb="Choose",
)
