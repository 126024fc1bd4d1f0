"""Rounds of review in `difficulty explore`: what one score file holds now, and held before.

Each round is a job. The score file is the current one, and those before and after it stay in the
folder beside it, so that a person can go back to any of them and finds the marks made there. What
is marked in the current round goes into the file of remembered marks within a second, from which
`difficulty clean` and `difficulty score` take it.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from sqlalchemy import Engine, func, select

from api.background import Wait, in_background
from api.http.problems import conflict, invalid
from api.imported import find_errors, import_scores, make_features_files
from api.jobs.files import SCORES_FILE, open_stored
from api.jobs.marks import SampleMark, list_marks, set_marks
from api.jobs.store import Job, get_job
from api.results.decisions import to_records
from api.results.score_columns import OpenScores
from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts, save
from api.storage.database import open_database
from api.storage.tables import MARKS
from difficulty_service.base.apart import call_apart
from difficulty_service.base.errors import DifficultyError
from difficulty_service.features.description import is_store, read_description
from difficulty_service.marks.files import read_marks, write_marks
from difficulty_service.marks.record import NO_MARKS, MarkHistory, Marks
from difficulty_service.marks.review_folder import Review, ReviewFolder
from difficulty_service.scores.file import ScoreFile, read_scores, write_scores
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.score_columns import SCORERS
from difficulty_service.settings.options import ScoringOptions

OWNER = ""
"""Whose marks those of an explorer are: it asks nobody for a key."""

SECONDS = 1.0
"""Seconds between looks at whether there are new marks."""

END_SECONDS = 10.0


@dataclass(frozen=True)
class ExploredFile:
    """A score file that is explored.

    Attributes:
        scores: The file.
        location: Its dataset.
        settings: Those of the server.
        features: Folder of the features that it was made of; None where there is none.
        weights: File of the CLIP that made the features; None for that of the hub.
    """

    scores: Path
    location: str
    settings: Settings
    features: Path | None = None
    weights: Path | None = None

    def earlier_file(self, job_id: str) -> Path:
        """Where the marks are kept with which the samples of a round were shown."""
        return self.settings.data_dir / "rounds" / f"{job_id}.csv"

    def written_file(self, job_id: str) -> Path:
        """Where a copy of the remembered marks is kept, as they were written in a round."""
        return self.settings.data_dir / "rounds" / f"{job_id}.written.csv"

    @property
    def state(self) -> tuple[int, int] | None:
        """What tells whether another program has written the score file; None where it is gone."""
        try:
            known = self.scores.stat()
        except OSError:
            return None
        return known.st_mtime_ns, known.st_size


def reconcile(engine: Engine, explored: ExploredFile, content: ScoreFile, job: Job) -> None:
    """Takes over what a person has changed in the file of remembered marks since it was written."""
    written = _read(explored.written_file(job.id))
    earlier = dict(_read(explored.earlier_file(job.id)).samples)
    changed = ReviewFolder(explored.scores).changes_since(written)
    rows = _rows_of(changed, content) if changed else []
    number = content.provenance.round or 1
    changes: dict[int, SampleMark | None] = {}
    for (sample_id, mark), row in zip(changed.items(), rows, strict=True):
        if row is not None:
            changes[row] = None
        if mark is not None and row is not None and mark.number >= number:
            changes[row] = SampleMark(row, sample_id, mark.mark, mark.label, mark.order)
        elif mark is not None:
            earlier[sample_id] = mark
        else:
            earlier.pop(sample_id, None)
    if changes:
        set_marks(engine, OWNER, job.id, changes, {})
    explored.earlier_file(job.id).parent.mkdir(exist_ok=True)
    write_marks(explored.earlier_file(job.id), earlier.values())


def _rows_of(sample_ids: Iterable[str], content: ScoreFile) -> list[int | None]:
    """The row of each id in a score file; None where it has none."""
    known = content.table["sample_id"].cast(pa.string()).combine_chunks()
    rows: list[int | None] = pc.index_in(
        pa.array(sample_ids, pa.string()), value_set=known
    ).to_pylist()
    return rows


def _read(path: Path) -> Marks:
    return read_marks(path, ()) if path.exists() else NO_MARKS


def recorded_scoring(content: ScoreFile) -> ScoringOptions:
    """The options that scores were made with, as far as the file tells."""
    known = content.provenance
    made = known.made_labels
    values: dict[str, Any] = {
        "classes": made and (",".join(made.classes) or None),
        "clusters": made and made.clusters,
        "scorers": [
            name
            for name, scorer in SCORERS.items()
            if set(scorer.columns) <= set(content.table.column_names)
        ],
        "near_duplicates": known.near_duplicates,
        "shrinkage": known.shrinkage,
        "matmul_dtype": known.products,
    }
    return ScoringOptions(**{name: value for name, value in values.items() if value is not None})


def why_not_again(provenance: Provenance, features: Path | None) -> str:
    """Why scores cannot be made again from features; empty where they can."""
    if provenance.tags is not None:
        return "these scores are of tags: clean their table, then score it with difficulty tags"
    if features is None or not is_store(features):
        return "the features are not beside the score file"
    others = {
        "of several backbones: make each again, then their consensus": provenance.consensus,
        "of a classifier": provenance.predictions,
    }
    for origin, made in others.items():
        if made is not None:
            return f"these scores are {origin}"
    fitted_on = provenance.fitted_on
    if fitted_on is not None and fitted_on.fingerprint != provenance.fingerprint:
        return "these scores are against Gaussians of another dataset"
    if read_description(features).backbone != provenance.backbone:
        return "the features are of another backbone"
    return ""


class Rounds:
    """The rounds of a score file while it is explored; one thread at a time changes the file."""

    def __init__(self, explored: ExploredFile, current: str, obstacle: str = "") -> None:
        self.explored = explored
        self.current = current
        self.obstacle = obstacle  # why it cannot be scored again; empty where it can
        self.awaited = ""  # id of the round whose map and vectors are being made
        self._lock = threading.Lock()
        self._written: tuple[object, ...] | None = None
        self._state = explored.state
        artifacts = open_artifacts(explored.settings.artifact_root)
        self._scores = OpenScores(explored.settings, artifacts)

    def awaits_features(self, job_id: str) -> bool:
        """Whether the map and the vectors of a round are still being made."""
        return self.awaited == job_id

    def score_again(self, engine: Engine, artifacts: Artifacts, job: Job) -> str:
        """Scores the samples with what was decided in a round; the id of the new one.

        Raises:
            Problem: There is nothing to score again, or another program has written the file.
        """
        if self.obstacle:
            raise conflict(f"this cannot be scored again: {self.obstacle}", "see the documentation")
        if not list_marks(engine, OWNER, job.id, limit=1):
            raise invalid("no image is marked", "mark images first", "marks")
        with self._lock:
            self._require_unchanged()
            if job.id != self.current:
                self._take(engine, artifacts, job)
            history = self._history(engine, job)
            try:
                following = call_apart(_next_round, self.explored, history, job.id)
            except DifficultyError as error:
                raise conflict(str(error), "change the marks, then score again", "marks") from None
            self._now(following)
        return following

    def go_to(self, engine: Engine, artifacts: Artifacts, job: Job) -> None:
        """Makes another round the current one, with the marks that were made there."""
        with self._lock:
            self._require_unchanged()
            if job.id != self.current:
                self._take(engine, artifacts, job)
                self._write(engine)

    def _take(self, engine: Engine, artifacts: Artifacts, job: Job) -> None:
        """Puts the scores of another round into the file, once the marks of this one are kept."""
        self._write(engine)
        with TemporaryDirectory(dir=self.explored.settings.data_dir) as folder:
            local = Path(folder) / SCORES_FILE
            save(open_stored(artifacts, job, SCORES_FILE), local)
            call_apart(_replace_scores, local, self.explored.scores)
        self._now(job.id)

    def _now(self, job_id: str) -> None:
        self.current, self._written = job_id, None
        self._state = self.explored.state

    def _require_unchanged(self) -> None:
        if self.explored.state != self._state:
            raise conflict(
                f"another program has written {self.explored.scores.name} since",
                "end `difficulty explore` and start it again",
            )

    def _history(self, engine: Engine, job: Job) -> MarkHistory:
        """The marks with which the samples of a round were shown, and those made there."""
        marks = list_marks(engine, OWNER, job.id)
        later = Marks.of(to_records(marks, self._scores.get(job)))
        return MarkHistory(_read(self.explored.earlier_file(job.id)), later)

    @contextmanager
    def keeping_marks(self, engine: Engine) -> Iterator[None]:
        """Writes the marks of the current round within the context, and at its end."""

        def keep(wait: Wait) -> None:
            while not wait(SECONDS):
                self._try(engine)

        try:
            with in_background("marks", keep, END_SECONDS):
                yield
        finally:
            self._try(engine)

    def _try(self, engine: Engine) -> None:
        if not self._lock.acquire(blocking=False):
            return  # a round is being made, of which these marks are a part already
        try:
            if self.explored.state == self._state:
                self._write(engine)
        except (OSError, DifficultyError) as error:
            structlog.get_logger().error("marks-not-written", reason=str(error))
        finally:
            self._lock.release()

    def _write(self, engine: Engine) -> None:
        """Writes the remembered marks where those of the current round have changed."""
        query = select(func.count(), func.max(MARKS.c.at)).where(
            MARKS.c.owner == OWNER, MARKS.c.job == self.current
        )
        with engine.connect() as connection:
            found = tuple(connection.execute(query).one())
        if found == self._written:
            return
        job = get_job(engine, OWNER, self.current)
        assert job is not None  # noqa: S101 - the explorer deletes none
        every = self._history(engine, job).composed().samples.values()
        ReviewFolder(self.explored.scores).remember(every)
        # Last, so that after a crash what was written looks like a change to the marks it is.
        write_marks(self.explored.written_file(self.current), every)
        self._written = found


def _next_round(explored: ExploredFile, history: MarkHistory, source: str) -> str:
    """Scores the features with marks, in place of the scores before; the id of the new round."""
    from difficulty_service.features.store import open_store
    from difficulty_service.scoring.pipeline import ScoreRequest, score_features

    assert explored.features is not None  # noqa: S101 - else there is an obstacle
    options = recorded_scoring(read_scores(explored.scores))
    weights = None if explored.weights is None else str(explored.weights)
    folder = ReviewFolder(explored.scores)
    review = Review(history, folder)
    request = ScoreRequest(explored.scores, options, review=review, weights=weights)
    score_features(open_store(explored.features), request)
    content = read_scores(explored.scores)
    job = add_round(explored, content, source)
    earlier = explored.earlier_file(job.id)
    earlier.parent.mkdir(exist_ok=True)
    write_marks(earlier, folder.remembered().samples.values())
    make_features_files(explored.settings.artifact_root, job, explored.features)
    return job.id


def add_round(explored: ExploredFile, content: ScoreFile, source: str | None = None) -> Job:
    """Makes what the score file holds a job of its explorer.

    `source` is the job whose marks the scores know.
    """
    errors = find_errors(explored.scores, content)
    with open_database(explored.settings) as engine:
        artifacts = open_artifacts(explored.settings.artifact_root)
        job = import_scores(engine, artifacts, content, explored.location, errors, source)
        if source is None:
            reconcile(engine, explored, content, job)
    return job


def _replace_scores(kept: Path, scores: Path) -> None:
    """Writes scores of another round in place of those before, in the format of these."""
    content = read_scores(kept)
    write_scores(scores, content.table, content.provenance)
