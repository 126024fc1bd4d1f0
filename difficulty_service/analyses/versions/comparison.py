"""What changed since an older version, as finished jobs are asked for it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Self

from pydantic import ConfigDict

from difficulty_service.base.contract import Found, Printed
from difficulty_service.base.wording import Noun
from difficulty_service.bodies.comparison_kinds import (
    MOST_CLASSES,
    Compared,
    ComparedJob,
    Comparison,
    JobId,
    OtherJobs,
    Side,
    Tell,
)
from difficulty_service.settings.options import DiffOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from difficulty_service.analyses.versions.changes import ChangeReport

CHANGE_KINDS = ("added", "removed", "changed", "moved", "relabelled")
"""What samples of two versions are counted by."""


class ClassShift(Found):
    """How far a class is from where it was."""

    name: str
    """The class; empty for all samples together."""

    old: int
    """Samples in the old version."""

    new: int
    """Samples in the new version."""

    frechet: float | None
    """Fréchet distance of the Gaussians; null where the class is in one version only."""

    kl: float | None
    """Divergence of the new Gaussian from the old one, in nats; null as well."""

    kl_by_chance_high: float | None
    """Value that 2.5 % of the permutations exceed; null without any."""

    p_value: float | None
    """Share of the permutations in which the means are as far apart; null without any."""


class DiffResult(Printed):
    """What `difficulty diff --json` prints."""

    old: str
    """The old version."""

    new: str
    """The new version."""

    noun: Noun
    """What a sample is in a word."""

    old_samples: int
    """Samples of the old version."""

    samples: int
    """Samples of the new version."""

    added: int | None
    """Samples of the new version only; null, as the next ones, where Gaussians are compared."""

    removed: int | None
    """Samples of the old version only."""

    changed: int | None
    """Samples with the same id and other contents."""

    moved: int | None
    """Samples with the same contents and another id."""

    relabelled: int | None
    """Samples of both versions with another label."""

    separability: float | None
    """Share of pairs of an added and an old sample that a classifier tells apart; null where few
    are added."""

    classes: tuple[ClassShift, ...]
    """How far each class moved, and all samples together, last."""

    warnings: tuple[str, ...]
    """What to know of the numbers, in sentences."""

    @classmethod
    def of(cls, found: "ChangeReport") -> Self:
        """What was found, named."""
        counts = found.counts or {}
        named = ClassShift.model_fields.keys() - {"name"}
        return cls(
            old=found.old,
            new=found.new,
            noun=found.noun,
            old_samples=found.num_old,
            samples=found.num_new,
            added=counts.get("added"),
            removed=counts.get("removed"),
            changed=counts.get("changed"),
            moved=counts.get("moved"),
            relabelled=found.relabelled,
            separability=found.separability,
            classes=tuple(
                ClassShift(name=row["class"], **{each: row[each] for each in named})
                for row in found.classes.to_pylist()
            ),
            warnings=found.warnings,
        )

    def number_of(self, kind: str) -> int | None:
        """How many samples are of a kind."""
        number: int | None = getattr(self, kind)
        return number


class DiffCreate(DiffOptions):
    """What differs between the dataset of this job and an older version of it."""

    model_config = ConfigDict(defer_build=False)

    kind: Literal["diff"]

    old: JobId
    """Finished job with the old version; the job of the address has the new one."""


def find(
    asked: DiffCreate,
    new: ComparedJob,
    others: Sequence[ComparedJob],
    _earlier: "pa.Table | None",
    _tell: Tell,
) -> Compared:
    """Compares this job with an older version of its dataset."""
    from difficulty_service.analyses.versions.changes import find_changes
    from difficulty_service.scores.measures import read_measure

    (old,) = others
    scores = read_measure(new.scores, None)
    found = find_changes(old.split, new.split, asked.permutations, asked.seed, scores)
    assert found.table is not None  # noqa: S101 - there are samples
    result = DiffResult.of(found)
    if len(result.classes) <= MOST_CLASSES:
        return Compared(result, found.table)
    *classes, together = result.classes
    moved = sorted(classes, key=lambda each: -(each.frechet or 0.0))[: MOST_CLASSES - 1]
    warning = (
        f"the {len(moved)} of {len(classes):,} classes that moved most are listed; the table of "
        "classes has all"
    )
    listed = {"classes": (*moved, together), "warnings": (*result.warnings, warning)}
    return Compared(result.model_copy(update=listed), found.table, classes=found.classes)


def summary(_asked: DiffCreate, found: DiffResult) -> str:
    """The number of samples that were added, removed and relabelled."""
    kinds = ("added", "removed", "relabelled")
    return ", ".join(f"{found.number_of(kind) or 0:,} {kind}" for kind in kinds)


def listed(table: "pa.Table") -> "pa.Table":
    """New samples, the hardest first, and then relabelled ones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    new = table.filter(pc.is_in(table["kind"], value_set=pa.array(["added", "changed"])))
    by = [("score", "descending"), ("novelty", "descending")]
    return pa.concat_tables([new.sort_by(by), table.filter(table["relabelled"])])


DIFF = Comparison(
    kind="diff",
    title="What changed",
    sentence="Samples that were added, removed, moved or relabelled since an older version.",
    body=DiffCreate,
    result=DiffResult,
    others=OtherJobs("old", "Job with the older version"),
    find="difficulty_service.analyses.versions.comparison:find",
    summary=summary,
    sides=(Side("new_id"),),
    listed="difficulty_service.analyses.versions.comparison:listed",
    templates="difficulty_service.analyses.versions",
)
