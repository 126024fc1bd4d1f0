"""What the pages of a finished job have in common: its scores, its marks and their pictures."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any
from uuid import uuid4

from fastapi import Depends
from starlette.responses import Response

from api.http.problems import not_found
from api.jobs.marks import SampleMark, by_mark, count_marks, marks_of_rows
from api.jobs.reviewers import NO_KEY, keys_by_id, marks_of_sample
from api.jobs.store import Job
from api.pages.rendering import job_name, render
from api.results.conditions import Beside, ImageQuery
from api.results.image_pages import SORTS
from api.results.maps import Layout
from api.results.overview import Overview
from api.results.score_columns import ScoreColumns
from api.routes.callers import Caller, Reader, Writer
from api.routes.conditions import beside
from api.routes.results import succeeded_job
from api.services import Services
from api.storage.tables import FINAL
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import RANDOM
from difficulty_service.pages.cards import Card, make_card
from difficulty_service.reports.map import ImageMap
from difficulty_service.reports.sample_columns import SampleColumns, with_values
from difficulty_service.scores.label_counts import Proportion, describe_share
from difficulty_service.scores.provenance import RandomCheck
from difficulty_service.scores.random_checks import describe_check
from difficulty_service.scores.samples import ScoredSamples
from difficulty_service.scores.score_columns import FAULT_COLUMN

IMAGES = "Images"  # name of the page of all samples, which are texts in some jobs
MOST_CLASSES = 1000  # number of classes that a page names
CHECKED_FOR_A_SHARE = 5  # number of single decisions from which they say something of labels


@dataclass(frozen=True)
class SaidOf:
    """What reviewers, by their names, decided about a sample, and the final decision."""

    reviewers: Sequence[tuple[str, SampleMark]]
    final: SampleMark | None


@dataclass(frozen=True)
class ScoredJob:
    """A finished job as its pages show it."""

    caller: Caller
    job: Job

    @property
    def services(self) -> Services:
        """What the requests of the service share."""
        return self.caller.services

    @property
    def scores(self) -> ScoreColumns:
        """The columns of the score file, and where they come from."""
        return self.services.open_scores.get(self.job)

    @cached_property
    def samples(self) -> ScoredSamples:
        """The scores."""
        return self.scores.samples

    @cached_property
    def overview(self) -> Overview:
        """The facts of the whole dataset."""
        return self.scores.overview

    def marks_of(self, rows: Iterable[int]) -> Mapping[int, SampleMark | None]:
        """The caller's mark of each of some rows."""
        return marks_of_rows(self.services.engine, self.caller.key.owner, self.job.id, rows)

    @property
    def shows_reviewers(self) -> bool:
        """Whether the caller sees what others decided; without keys there are no others."""
        return bool(self.caller.key.owner) and self.caller.key.oversees(self.job.owner)

    def said_of(self, row: int) -> SaidOf | None:
        """What reviewers decided about a sample; None for who may not see that."""
        if not self.shows_reviewers:
            return None
        engine = self.services.engine
        marks = marks_of_sample(engine, self.job.id, row)
        final = marks.pop(FINAL, None)
        keys = keys_by_id(engine)
        names = {owner: keys[owner].name if owner in keys else NO_KEY for owner in marks}
        return SaidOf([(names[owner], mark) for owner, mark in marks.items()], final)

    def beside(self, query: ImageQuery) -> Beside:
        """What the conditions of a list are about besides the scores."""
        return beside(self.caller, self.job, query)

    @cached_property
    def columns(self) -> SampleColumns:
        """Columns beside the scores that have a value."""
        return with_values(self.services.open_columns.get(self.job))

    def drawn(self, layout: Layout = "plane") -> ImageMap | None:
        """A map; None where the job has none."""
        return self.services.maps.get(self.job, layout)

    @property
    def faults(self) -> Mapping[str, int] | None:
        """Number of images with each fault that occurs; None where it is not known."""
        known = self.scores.provenance.image_faults
        column = self.scores.faults.get(FAULT_COLUMN)
        if known is not None or column is None:
            return known
        pairs = zip(column.categories, column.counts, strict=False)  # last come those without one
        return {name: number for name, number in pairs if number}

    @property
    def awaits_features(self) -> bool:
        """Whether the map and what finds similar images are still being made."""
        rounds = self.services.rounds
        return rounds is not None and rounds.awaits_features(self.job.id)

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

    def classes(self) -> dict[str, Any]:
        """Variables of the list of classes; a script asks for all where a page lacks some."""
        names = list(self.samples.names.values())
        return {"classes": names[:MOST_CLASSES], "has_more_classes": len(names) > MOST_CLASSES}

    def page(
        self, template: str, current: str, values: Mapping[str, Any], status: int = 200
    ) -> Response:
        """One of the pages of the job, or a part of it, with values beside those of every page."""
        return render(self.caller.request, template, self.values(current) | dict(values), status)

    def values(self, current: str) -> dict[str, Any]:
        """Variables that every page of the job has."""
        noun = self.scores.provenance.noun
        return {
            "job": self.job,
            "noun": noun,
            "name": job_name(self.job),
            "address": self.address,
            "num_samples": len(self.samples),
            "by_suspicion": self.samples.by_suspicion,
            "measure": self.samples.measure,
            "measure_name": self.samples.measure_name,
            "compares_classes": self.samples.compares_classes,
            "has_labels": self.samples.has_labels,
            "new_classes": self.samples.takes_new_classes,
            "mark_kinds": self.samples.mark_kinds,
            "faults": self.faults,
            "current": f"{noun.capitalize()}s" if current == IMAGES else current,
            "tray": self._tray(),
            "class_name": self.samples.name_of,
            "can_score_again": self._can_score_again(),
            "round_kept": self._round_kept(),
            "token": uuid4().hex,
            "takes_jobs": self.services.settings.takes_jobs,
            "contact": self.services.settings.contact,
            "may_share": bool(self.caller.key.owner) and self.caller.key.manages(self.job.owner),
        }

    def _can_score_again(self) -> bool:
        """Whether the page offers to score again with the marks of its job."""
        rounds = self.services.rounds
        if rounds is not None:
            return not rounds.obstacle
        return may_submit_again(self.caller, self.job)

    def _round_kept(self) -> str:
        """The score file that holds another round than this one; empty where none does."""
        rounds = self.services.rounds
        is_other = rounds is not None and rounds.current != self.job.id
        return rounds.explored.scores.name if rounds is not None and is_other else ""

    def _tray(self) -> dict[str, Any]:
        """Variables of the marks below each page, with what they say about labels."""
        engine = self.services.engine
        found = count_marks(engine, self.caller.key.owner, self.job.id)
        counts = by_mark(found)
        values = {"checked": found.total(), "counts": counts, "said": ""}
        values["is_later_round"] = self.scores.round > 1
        random, one_by_one = _judged(found, {RANDOM}), _judged(found, SORTS)
        if random.cases >= CHECKED_FOR_A_SHARE:
            check = RandomCheck(
                checked=random.cases,
                wrong=random.hits,
                among=self.samples.num_unverified,
                since=_wrong(counts) - random.hits,
                beside=found.total() - random.cases,
                wrong_beside=_wrong(counts) - random.hits,
            )
            values["said"] = describe_check(check)
        elif one_by_one.cases >= CHECKED_FOR_A_SHARE:
            values["said"] = describe_share(one_by_one)
        return values


def _judged(counts: Mapping[tuple[str, Mark], int], orders: Collection[str]) -> Proportion:
    """How many labels were wrong of those that a person met in some orders, one by one."""
    chosen = by_mark({key: number for key, number in counts.items() if key[0] in orders})
    return Proportion(_wrong(chosen), sum(chosen.values()))


def _wrong(counts: Mapping[Mark, int]) -> int:
    """Number of samples whose mark says that the label is wrong."""
    return sum(number for mark, number in counts.items() if mark.kind.is_wrong)


def may_submit_again(caller: Caller, job: Job) -> bool:
    """Whether a page offers its caller to submit a job like this one, with marks.

    Marks of tags are taken into their table, which is another dataset then.
    """
    takes_jobs = caller.services.settings.takes_jobs and job.wanted.tags is None
    return job.owner == caller.key.owner and takes_jobs and "write" in caller.key.scopes


def seen_job(job_id: str, caller: Reader) -> ScoredJob:
    """The finished job of an address."""
    return ScoredJob(caller, succeeded_job(job_id, caller))


def marked_job(job_id: str, caller: Writer) -> ScoredJob:
    """The finished job of an address, for who may mark its samples."""
    return seen_job(job_id, caller)


SeenJob = Annotated[ScoredJob, Depends(seen_job)]
MarkedJob = Annotated[ScoredJob, Depends(marked_job)]


def existing_card(job: ScoredJob, row: int) -> Card:
    """The card of a sample."""
    if row >= len(job.samples):
        raise not_found("sample", str(row))
    return job.cards([row])[0]
