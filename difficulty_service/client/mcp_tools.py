"""What an assistant may ask of the service: few tools, whose answers have a bounded size.

Names of files and classes come from whoever made a dataset. They are values of fields and never
part of a sentence, and are cut where they are long.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from difficulty_service.base.errors import ConfigError, ServiceError
from difficulty_service.bodies.jobs import (
    JobCreate,
    JobDataset,
    JobError,
    JobPublic,
    JobResult,
    State,
)
from difficulty_service.bodies.marks import MarkChange, MarksChanged
from difficulty_service.bodies.results import ScoreRow
from difficulty_service.bodies.service import FolderEntry
from difficulty_service.client.client import Client
from difficulty_service.client.score_filter import ScoreFilter
from difficulty_service.scores.score_columns import DEFAULT_SCORERS
from difficulty_service.settings.option_types import Column, Scorers

LONGEST_TEXT = 300
"""Characters of a text that are shown."""

LONGEST_ID = 1000
"""Characters of the id of a sample, which is shown whole or not at all: marks need it."""

MOST_NAMES = 50
MOST_SAMPLES = 20
MOST_PICTURE_BYTES = 1 << 20
"""Size of all pictures of an answer."""

MOST_AT_ONCE = 8
"""Pictures that are asked for at the same time."""

Limit = Annotated[int, Field(ge=1, le=50)]


class Datasets(BaseModel):
    """Roots of the service, or what a folder of a root holds."""

    entries: list[FolderEntry]
    more: int = Field(description="Number of entries after these; list them with `start`")


class ResultSummary(BaseModel):
    """What a finished job found, in numbers."""

    num_scored: int = Field(description="Samples with a score")
    num_doubtful: int = Field(description="Samples that look more like another class")
    num_bad_images: int
    num_classes: int
    class_names: list[str] = Field(description=f"At most {MOST_NAMES} of them")
    warnings: list[str]


class JobSummary(BaseModel):
    """A job, in short."""

    id: str
    state: State
    created_at: datetime
    dataset: dict[str, str]
    done: int = Field(description="Samples processed so far")
    total: int | None
    seconds_left: float | None
    error: JobError | None
    result: ResultSummary | None = Field(description="Null until it has succeeded")


class Jobs(BaseModel):
    """Jobs, newest first."""

    jobs: list[JobSummary]
    next: str | None = Field(description="`before` of the next call; null at the end")


class DoubtfulSample(BaseModel):
    """A sample whose label is doubtful."""

    sample_id: str
    label_name: str
    nearest_label_name: str | None = Field(description="Class of the nearest mean")
    suggested_label_name: str | None
    suspicion: float | None
    label_margin: float | None
    rmd: float | None
    mark: str | None
    picture: int | None = Field(description="Number of its picture in this answer, from 1 on")


class DoubtfulSamples(BaseModel):
    """Samples with doubtful labels, the most doubtful first."""

    samples: list[DoubtfulSample]
    matching: int = Field(description="Number of such samples, on all pages")
    left_out: int = Field(description="Samples of this page whose id is too long to be shown")
    next: str | None = Field(description="`after` of the next call; null at the end")


@dataclass(frozen=True)
class Tools:
    """The tools; the docstring of each is what an assistant reads."""

    client: Client

    def list_datasets(
        self, root: str = "", path: str = "", start: Annotated[int, Field(ge=0)] = 0
    ) -> Datasets:
        """Lists the roots of the service or, with a root, what the folder `path` in it holds."""
        page = self.client.folders(root, path, start=start)
        entries = [
            each.model_copy(update={"name": cut(each.name), "hint": cut(each.hint)})
            for each in page.entries
            if len(each.path or "") <= LONGEST_ID
        ]
        return Datasets(entries=entries, more=page.more)

    def list_jobs(
        self, state: State | None = None, limit: Limit = 10, before: str | None = None
    ) -> Jobs:
        """Lists the jobs of the key, newest first."""
        page = self.client.job_page(state=state, limit=limit, before=before)
        return Jobs(jobs=[summary(job) for job in page.jobs], next=page.next)

    def score_dataset(  # noqa: PLR0913 - one parameter for each option
        self,
        root: str,
        path: str = "",
        *,
        backbone: str | None = None,
        scorers: Scorers = DEFAULT_SCORERS,
        limit: Annotated[int, Field(ge=1)] | None = None,
        label_column: Column | None = None,
        text_column: Column | None = None,
    ) -> JobSummary:
        """Submits a job that scores a dataset below a root; job_status follows it.

        limit: Number of samples to use, evenly spaced. text_column: Column of a table with texts;
        without it, the samples are images.
        """
        options = {
            "backbone": backbone,
            "scorers": scorers,
            "limit": limit,
            "label_column": label_column,
            "text_column": text_column,
        }
        chosen = {name: value for name, value in options.items() if value is not None}
        try:
            job = JobCreate.model_validate({"dataset": JobDataset(root=root, path=path), **chosen})
        except ValidationError as error:
            raise ConfigError(faults_of(error)) from None
        return summary(self.client.submit(job))

    def job_status(self, job_id: str) -> JobSummary:
        """State, progress and result of a job."""
        return summary(self.client.job(job_id))

    def doubtful_samples(  # noqa: PLR0913 - one parameter for each condition
        self,
        job_id: str,
        *,
        limit: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] = 10,
        after: str | None = None,
        label: str | None = None,
        near: str = "",
        mark: str = "none",
        picture_size: Annotated[int, Field(ge=0, le=512)] = 128,
    ) -> tuple[DoubtfulSamples, list[bytes]]:
        """Samples of a finished job whose labels may be wrong, with their pictures.

        label: Only those of this class. near: Only those that look like this class. mark: Only
        those with this mark; by default those without one, and all where it is empty.
        picture_size: Pixels of the longer side, from 16 on; 0 for no pictures.
        """
        conditions: ScoreFilter = {"near": near, "mark": mark, "margin": "0"}
        if label is not None:
            conditions["label"] = label
        page = self.client.score_page(
            job_id, sort="doubtful", limit=limit, after=after, **conditions
        )
        shown = [row for row in page.samples if len(row.sample_id) <= LONGEST_ID]
        pictures = self._pictures(job_id, shown, picture_size)
        numbers = number_pictures(pictures)
        answer = DoubtfulSamples(
            samples=[sample(row, number) for row, number in zip(shown, numbers, strict=True)],
            matching=page.matching,
            left_out=len(page.samples) - len(shown),
            next=page.next,
        )
        kept = zip(pictures, numbers, strict=True)
        return answer, [picture for picture, number in kept if picture and number]

    def mark_samples(
        self,
        job_id: str,
        changes: Annotated[list[MarkChange], Field(min_length=1, max_length=100)],
        *,
        replace: bool = False,
    ) -> MarksChanged:
        """Marks samples: keep (the label is right), relabel (to another class) or drop.

        Boxes of objects can also be misplaced: the category is right, but the object is elsewhere.
        All of them are marked, or none. replace: Replace marks that the samples have already;
        without it, they are refused.
        """
        if not replace:
            changes = [
                each
                if "seen" in each.model_fields_set
                else MarkChange.model_validate(each.model_dump(exclude_unset=True) | {"seen": None})
                for each in changes
            ]
        return self.client.mark(job_id, changes)

    def _pictures(self, job_id: str, rows: Sequence[ScoreRow], size: int) -> list[bytes | None]:
        def picture(sample_id: str) -> bytes | None:
            try:
                return self.client.thumbnail(job_id, sample_id, size=max(size, 16))
            except ServiceError:
                return None  # of a text, or of a dataset that is gone

        if not size:
            return [None] * len(rows)
        with ThreadPoolExecutor(max_workers=MOST_AT_ONCE) as threads:
            return list(threads.map(picture, (row.sample_id for row in rows)))


def number_pictures(pictures: Sequence[bytes | None]) -> list[int | None]:
    """The number of each picture among those that are sent, as long as there is room."""
    numbers: list[int | None] = []
    size = count = 0
    for picture in pictures:
        size += len(picture or b"")
        is_sent = picture is not None and size <= MOST_PICTURE_BYTES
        count += is_sent
        numbers.append(count if is_sent else None)
    return numbers


def faults_of(error: ValidationError) -> str:
    """The fields at fault and what is wrong with each, in one line."""
    faults = error.errors(include_url=False, include_input=False)
    named = ((".".join(map(str, fault["loc"])), fault["msg"]) for fault in faults)
    return " ".join("; ".join(": ".join(filter(None, each)) for each in named).split())


def cut(text: str) -> str:
    """A text, or its beginning."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def cut_or_none(text: str | None) -> str | None:
    """A text, or its beginning, where there is one."""
    return None if text is None else cut(text)


def summary(job: JobPublic) -> JobSummary:
    """A job in short."""
    dataset = {name: cut(str(text)) for name, text in job.request.get("dataset", {}).items()}
    error = job.error and job.error.model_copy(update={"detail": cut(job.error.detail)})
    return JobSummary(
        id=job.id,
        state=job.state,
        created_at=job.created_at,
        dataset=dataset,
        done=job.progress.done,
        total=job.progress.total,
        seconds_left=job.progress.seconds_left,
        error=error,
        result=None if job.result is None else result_summary(job.result),
    )


def result_summary(result: JobResult) -> ResultSummary:
    """A result in short."""
    return ResultSummary(
        num_scored=result.num_scored,
        num_doubtful=result.num_doubtful,
        num_bad_images=result.num_bad_images,
        num_classes=len(result.class_names),
        class_names=[cut(name) for name in result.class_names[:MOST_NAMES]],
        warnings=[cut(sentence) for sentence in result.warnings[:MOST_NAMES]],
    )


def sample(row: ScoreRow, picture: int | None) -> DoubtfulSample:
    """A row of scores in short."""
    return DoubtfulSample(
        sample_id=row.sample_id,
        label_name=cut(row.label_name),
        nearest_label_name=cut_or_none(row.nearest_label_name),
        suggested_label_name=cut_or_none(row.suggested_label_name),
        suspicion=row.suspicion,
        label_margin=row.label_margin,
        rmd=row.rmd,
        mark=row.mark,
        picture=picture,
    )
