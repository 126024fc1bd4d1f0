"""What the pages of a finished job have in common: its scores, its marks and their pictures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import uuid4

from fastapi import Request

from api.http.api_keys import Principal
from api.jobs.marks import SampleMark, list_marks
from api.jobs.rows import Job
from api.pages.rendering import job_name
from api.results.maps import Maps
from api.results.open_scores import OpenScores
from api.results.overview import Overview
from api.routes.marks import counts_of
from api.routes.results import succeeded_job
from api.settings import Settings
from difficulty_service.reporting.cards import Card, make_card
from difficulty_service.reporting.map import ImageMap
from difficulty_service.reporting.samples import ScoredSamples
from difficulty_service.scoring.wrong_labels import Proportion

CHECKED_FOR_A_SHARE = 5
"""Number of marks from which the share of wrong labels among them is shown."""


@dataclass(frozen=True)
class ScoredJob:
    """A finished job as its pages show it.

    Attributes:
        request: The request for a page.
        key: The caller.
        job: The job.
        open_scores: The scores of all jobs.
    """

    request: Request
    key: Principal
    job: Job
    open_scores: OpenScores

    @cached_property
    def samples(self) -> ScoredSamples:
        """The scores."""
        return self.open_scores.get(self.job).samples

    @cached_property
    def overview(self) -> Overview:
        """The facts of the whole dataset."""
        return self.open_scores.overview(self.job)

    @cached_property
    def marks(self) -> Mapping[int, SampleMark]:
        """The caller's marks by row."""
        engine = self.request.app.state.engine
        return {mark.row: mark for mark in list_marks(engine, self.key.owner, self.job.id)}

    @cached_property
    def marked(self) -> Mapping[int, str]:
        """The caller's marks by row, without their labels."""
        return {row: mark.mark.value for row, mark in self.marks.items()}

    @cached_property
    def drawn(self) -> ImageMap | None:
        """The map; None where the job has none."""
        maps: Maps = self.request.app.state.maps
        return maps.get(self.job)

    @property
    def address(self) -> str:
        """Path of the job's pages."""
        return f"/jobs/{self.job.id}"

    def cards(self, rows: Iterable[int]) -> Sequence[Card]:
        """The samples of some rows with the addresses of their pictures."""
        folder = f"{self.address}/images"
        return [make_card(self.samples, row, f"{folder}/{row}/picture") for row in rows]

    def copy_sign(self, card: Card, row: int) -> str:
        """What a card says of a copy: whether of the image of a row, or of another one."""
        firsts = [
            self.samples.copy_of[each].as_py() or self.samples.ids[each].as_py()
            for each in (card.row, row)
        ]
        if firsts[0] == firsts[1]:
            return "copy of this"
        return "copy" if self.samples.copy_of[card.row].is_valid else ""

    @property
    def _can_score_again(self) -> bool:
        settings: Settings = self.request.app.state.settings
        is_own = self.job.owner == self.key.owner
        return is_own and settings.takes_jobs and "write" in self.key.scopes

    def values(self, current: str) -> dict[str, Any]:
        """Variables that every page of the job has.

        Args:
            current: Name of the page, which the navigation marks.
        """
        return {
            "job": self.job,
            "name": job_name(self.job),
            "address": self.address,
            "current": current,
            "marks": self.marks,
            "tray": describe_marks(list(self.marks.values())),
            "class_name": self.samples.name_of,
            "can_score_again": self._can_score_again,
            "token": uuid4().hex,
        }


def scored_job(request: Request, key: Principal, job_id: str) -> ScoredJob:
    """The finished job of an address.

    Raises:
        Problem: It does not exist, the caller may not see it, or it has no results.
    """
    job = succeeded_job(request, key, job_id)
    return ScoredJob(request, key, job, request.app.state.open_scores)


def describe_marks(marks: Sequence[SampleMark]) -> dict[str, Any]:
    """Number of marks and, of several, the share of wrong labels with its 95 % interval."""
    counts = counts_of(marks)
    checked, wrong = len(marks), counts.relabel + counts.drop
    values: dict[str, Any] = {"checked": checked, "counts": counts, "share": None}
    if checked >= CHECKED_FOR_A_SHARE:
        share = Proportion(wrong, checked)
        values |= {"share": share.share, "interval": share.interval()}
    return values
