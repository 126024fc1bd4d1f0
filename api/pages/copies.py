"""The page of copies, on which groups are decided about, one by one or all of the same classes."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Form, Query
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from starlette.responses import Response

from api.http.problems import invalid, not_found
from api.jobs.marks import SampleMark
from api.pages.rendering import redirect
from api.pages.scored import MarkedJob, ScoredJob, SeenJob
from api.routes.marks import mark_many, require_few
from api.routes.results import LARGEST_OFFSET
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.reports.copies import give_label, keep_one, to_group

router = APIRouter(prefix="/jobs/{job_id}/copies", include_in_schema=False)

COPIES = 24  # groups of a page
MOST_ALIKE = 2000
"""Groups with different labels up to which a decision can be applied to all of the same classes."""
MOST_ASKED = 200
"""Copies of a group whose marks tell whether it is decided."""

Rows = NDArray[np.int64]
Marks = Mapping[int, SampleMark | None]
After = Annotated[int, Query(ge=0, le=LARGEST_OFFSET)]


@router.get("")
def show_copies(
    job: SeenJob,
    after: After = 0,
    decided: Annotated[int | None, Query(ge=0, le=LARGEST_OFFSET)] = None,
) -> Response:
    """Groups of images that are copies of each other, those with different labels first.

    `decided` is a row of the group that was decided about last, with the others of its step.
    """
    samples = job.samples
    found = samples.copies[after : after + COPIES]
    alike = {int(rows[0]): _alike(job, rows) for rows in found}
    asked = [*found, *(rows for several in alike.values() for rows in several)]
    marks = job.marks_of({row for rows in asked for row in rows[:MOST_ASKED].tolist()})
    groups = [to_group(samples, rows) for rows in found]
    following = after + COPIES
    values = {
        "groups": [(group, job.cards(group.rows)) for group in groups],
        "marks": marks,
        "decided": {int(rows[0]): _in_words(job, rows, marks) for rows in found},
        "num_alike": {
            row: sum(_is_open(each, marks) for each in several) for row, several in alike.items()
        },
        "num_groups": len(samples.copies),
        "num_copied": sum(map(len, samples.copies)),
        "num_conflicting": samples.num_conflicting,
        "near": job.scores.provenance.near_duplicates,
        "after": after,
        "next": following if following < len(samples.copies) else None,
        "last": None if decided is None else _last_step(job, decided),
    }
    return job.page("copies_page", "Copies", values)


class CopyDecision(BaseModel):
    """What a form decides about the group of copies that has a row.

    Attributes:
        label: Name of the class that all copies get.
        one: Name of the class of which the first copy alone is kept.
        alike: Whether open groups of the same classes are decided alike.
        undo: Takes the marks away, of the group or of all that were decided at once with it.
    """

    row: Annotated[int, Field(ge=0)]
    label: Annotated[str | None, Field(max_length=4000)] = None
    one: Annotated[str | None, Field(max_length=4000)] = None
    alike: bool = False
    undo: Literal["group", "step"] | None = None


@router.post("")
async def decide_copies(
    job: MarkedJob, form: Annotated[CopyDecision, Form()], after: After = 0
) -> Response:
    """Gives all copies of a group one of their labels, or keeps one with it alone, by marks."""
    queue = job.services.queues.marking
    return await job.caller.in_turn(queue, _decide_copies, job, form, after)


def _decide_copies(job: ScoredJob, form: CopyDecision, after: int) -> Response:
    rows = next((rows for rows in job.samples.copies if form.row in rows), None)
    if rows is None:
        raise not_found("sample", str(form.row))
    if form.undo is not None:
        undone = _of_step(job, rows) if form.undo == "step" else [rows]
        changes: Marks = dict.fromkeys(np.concatenate(undone).tolist())
    else:
        changes = _decisions(job, rows, form)
    require_few(len(changes))
    mark_many(job.services.engine, job.caller.key.owner, job.job, changes)
    last = "" if form.undo is not None else f"&decided={form.row}"
    return redirect(f"{job.address}/copies?after={after}{last}#copies-{rows[0]}")


def _decisions(job: ScoredJob, rows: Rows, form: CopyDecision) -> Marks:
    """The marks that a form gives the copies of a group, or of all open ones like it."""
    samples = job.samples
    if form.label is not None and form.one is None:
        decide, name, field = give_label, form.label, "label"
    elif form.one is not None and form.label is None:
        decide, name, field = keep_one, form.one, "one"
    else:
        raise invalid("a group of copies gets one decision", "send `label` or `one`", "label")
    if name not in {samples.name_of(each) for each in samples.labels[rows].tolist()}:
        raise invalid(f"no copy has the label {name[:100]!r}", "choose one of their labels", field)
    groups = [rows]
    if form.alike:
        alike = _alike(job, rows)
        marks = job.marks_of({row for each in alike for row in each[:MOST_ASKED].tolist()})
        groups += [each for each in alike if each is not rows and _is_open(each, marks)]
    return {
        row: SampleMark(row, samples.ids[row].as_py(), decided.mark, decided.label)
        for each in groups
        for row, decided in decide(samples, each, name).items()
    }


def _alike(job: ScoredJob, rows: Rows) -> Sequence[Rows]:
    """The groups whose labels differ and are those of this one, which is among them."""
    samples = job.samples
    wanted = set(samples.labels[rows].tolist())
    if len(wanted) == 1 or samples.num_conflicting > MOST_ALIKE:
        return [rows]
    differing = samples.copies[: samples.num_conflicting]
    return [each for each in differing if set(samples.labels[each].tolist()) == wanted]


def _is_open(rows: Rows, marks: Marks) -> bool:
    return any(marks[row] is None for row in rows[:MOST_ASKED].tolist())


def _of_step(job: ScoredJob, rows: Rows) -> list[Rows]:
    """The groups of the same classes that were decided with this one, or later."""
    alike = _alike(job, rows)
    marks = job.marks_of({int(each[0]) for each in [rows, *alike]})
    own = marks[int(rows[0])]
    if own is None:
        return [rows]
    return [each for each in alike if (mark := marks[int(each[0])]) and mark.at >= own.at]


def _last_step(job: ScoredJob, row: int) -> dict[str, object] | None:
    """What was decided last, to be undone as a whole; None where it is undone already."""
    rows = next((rows for rows in job.samples.copies if row in rows), None)
    if rows is None:
        return None
    marks = job.marks_of(rows[:MOST_ASKED].tolist())
    words = _in_words(job, rows, marks)
    if not words:
        return None
    return {"row": row, "words": words, "number": len(_of_step(job, rows))}


def _in_words(job: ScoredJob, rows: Rows, marks: Marks) -> str:
    """What the marks of a group of copies decide; empty while one has none."""
    asked = rows[:MOST_ASKED].tolist()
    known = [(row, mark) for row in asked if (mark := marks[row]) is not None]
    if len(known) < len(asked):
        return ""
    samples = job.samples
    kept = [
        mark.label or samples.name_of(int(samples.labels[row]))
        for row, mark in known
        if mark.mark is not Mark.DROP
    ]
    if len(kept) == len(known) and len(set(kept)) == 1:
        return f"all are {kept[0]}" if samples.has_labels else "all are kept"
    if len(kept) == 1:
        return f"one is kept: {kept[0]}" if samples.has_labels else "one is kept"
    return "all are dropped" if not kept else "decided one by one"
