"""The page of images with a fault, which are kept or dropped, one by one or all that are shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Form
from pydantic import BaseModel, Field
from starlette.responses import Response

from api.http.problems import invalid
from api.jobs.marks import SampleMark
from api.pages.rendering import query_of, redirect
from api.pages.scored import MarkedJob, ScoredJob, SeenJob
from api.results.column_conditions import IS
from api.routes.marks import mark_many
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.pages.cards import Card
from difficulty_service.scores.score_columns import FAULT_COLUMN

router = APIRouter(prefix="/jobs/{job_id}/faults", include_in_schema=False)

SHOWN = 48
"""Images of one fault on the page, which is as many as a button marks at once."""

IN_WORDS: Mapping[str, tuple[str, str]] = {
    "one colour": ("of one colour", "The whole image is one colour, as an empty picture is."),
    "cut off": ("cut off", "The lower part is plain grey, as where a download broke off."),
    "dark": ("very dark", "Almost all of the image is dark. At night that may be right."),
    "overexposed": (
        "very bright",
        "Most of the image is nearly white. On a white ground or of a bright sky that is right.",
    ),
    "low contrast": (
        "with little contrast",
        "All of it is about as bright, as in fog.",
    ),
    "blurred": (
        "blurred",
        "Edges are wide: out of focus, moved, or enlarged.",
    ),
    "small": ("small", "It has less than a quarter of the usual side, and is enlarged a lot."),
    "elongated": (
        "long and narrow",
        "The network sees only the square in the middle.",
    ),
}
"""What images with a fault are called, and what may be wrong with them."""


@dataclass(frozen=True)
class FaultyImages:
    """Images with one fault, as the page shows them."""

    name: str  # the fault, a value of `image_fault`
    number: int  # number of images, with pictures or without
    cards: Sequence[Card]  # the first of them with their pictures

    @property
    def title(self) -> str:
        """What the images are called."""
        return IN_WORDS.get(self.name, (self.name, ""))[0]

    @property
    def sentence(self) -> str:
        """What may be wrong with them."""
        return IN_WORDS.get(self.name, ("", ""))[1]

    @property
    def address(self) -> str:
        """End of the address of the list of all of them."""
        return query_of({f"{IS}{FAULT_COLUMN}": self.name})


@router.get("")
def show_faults(job: SeenJob) -> Response:
    """The images with a fault in plain words, and what the caller decided about them."""
    found = [
        FaultyImages(name, len(rows), job.cards(rows[:SHOWN]))
        for name, rows in _rows_by_fault(job).items()
    ]
    marks = job.marks_of([card.row for each in found for card in each.cards])
    values = {
        "found": found,
        "marks": marks,
        "num_open": {
            each.name: sum(marks[card.row] is None for card in each.cards) for each in found
        },
    }
    return job.page("faults_page", "Faults", values)


class FaultDecision(BaseModel):
    """What a form decides about images with a fault.

    Attributes:
        fault: The fault, for all images with it that the page shows and that have no mark.
        row: One image, whatever its mark; None for those of the fault.
    """

    fault: Annotated[str, Field(max_length=100)]
    row: Annotated[int | None, Field(ge=0)] = None
    mark: Literal["keep", "drop", "none"]


@router.post("")
async def decide_faults(job: MarkedJob, form: Annotated[FaultDecision, Form()]) -> Response:
    """Keeps or drops images with a fault, by marks, or takes their marks away."""
    return await job.caller.in_turn(job.services.queues.marking, _decide_faults, job, form)


def _decide_faults(job: ScoredJob, form: FaultDecision) -> Response:
    shown = _rows_by_fault(job).get(form.fault, [])[:SHOWN]
    if not shown or form.row not in (None, *shown):
        raise invalid(f"no image shown has the fault {form.fault!r}", "reload the page", "fault")
    marks = job.marks_of(shown)
    if form.row is not None:
        rows = [form.row]
    elif form.mark == "none":
        rows = [row for row in shown if marks[row] is not None]
    else:
        rows = [row for row in shown if marks[row] is None]
    ids = job.samples.ids
    changes = {
        row: None if form.mark == "none" else SampleMark(row, ids[row].as_py(), Mark(form.mark))
        for row in rows
    }
    mark_many(job.services.engine, job.caller.key.owner, job.job, changes)
    return redirect(f"{job.address}/faults#{form.fault.replace(' ', '-')}")


def _rows_by_fault(job: ScoredJob) -> Mapping[str, list[int]]:
    """Rows of the images with each fault that occurs, in the order of the faults."""
    column = job.scores.faults.get(FAULT_COLUMN)
    if column is None:
        return {}
    rows = {
        name: np.flatnonzero(column.numbers == place).tolist()
        for place, name in enumerate(column.categories)
    }
    return {name: rows[name] for name in job.faults or {} if rows.get(name)}
