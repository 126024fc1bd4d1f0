"""What is asked of finished jobs together: copies across them, what changed, what to choose.

It is found by the features that the jobs keep, in a process of its own, and stored beside the
scores of the job that it was asked of, until either is deleted.
"""

import hashlib
import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import structlog
from sqlalchemy import Engine

from api.http.problems import Problem, conflict, not_found
from api.http.public_text import hide_paths, public_names
from api.jobs.failures import as_field_or_variable
from api.jobs.files import (
    COMPARISONS_FOLDER,
    CONTENTS_FILE,
    FEATURES_FILE,
    KIND_FILE,
    SCORES_FILE,
    count_result,
    open_stored,
)
from api.jobs.kept_features import KeptFiles, open_split
from api.jobs.store import Job
from api.results.one_by_one import OneByOne, Progress, Refusal, Work, answer
from api.settings import Settings
from api.storage.artifacts import Artifacts, save
from api.storage.space import require_space
from api.uploads.quota import find_usage, require_room
from difficulty_service.base.checksums import DamagedFile
from difficulty_service.base.errors import DifficultyError
from difficulty_service.base.tables import write_parquet
from difficulty_service.bodies.comparisons import (
    ComparisonCreate,
    ComparisonPublic,
    DiffCreate,
    DiffResult,
    LeakResult,
    LeaksCreate,
    SelectCreate,
    SelectResult,
)

MAX_MEMORY = 4 << 30
"""Bytes of data of the process that compares; features are mapped and do not count."""

LONGEST = 900.0
"""Seconds that a comparison may take."""

MOST_WAITING, MOST_OF_ONE = 32, 4
"""Comparisons that wait or are being made, and those of the jobs of one key."""

RETRY_AFTER = 30  # seconds

RESULT_FILE, TABLE_FILE = "comparison.json", "table.parquet"
MARKS_FILE = "marks-{}.parquet"

Result: TypeAlias = LeakResult | DiffResult | SelectResult


@dataclass(frozen=True)
class Asked:
    """What is asked, and the finished jobs that it is about, the job of the address first."""

    body: ComparisonCreate
    jobs: Sequence[Job]

    @property
    def job(self) -> Job:
        """The job that it is asked of."""
        return self.jobs[0]

    @property
    def id(self) -> str:
        """The same for the same request."""
        text = json.dumps([self.job.id, self.body.model_dump(mode="json")], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def name(self) -> str:
        """Tells it from what is asked of other jobs."""
        return f"{self.job.id}/{self.id}"


@dataclass
class Comparisons:
    """Makes one comparison at a time, stores it, and tells how far each of them is."""

    engine: Engine
    settings: Settings
    artifacts: Artifacts
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _asked: dict[str, Asked] = field(default_factory=dict)
    _work: OneByOne = field(default_factory=lambda: OneByOne("comparison", MOST_WAITING))

    def request(self, asked: Asked) -> ComparisonPublic:
        """The comparison, which is begun if it is neither stored nor being made.

        Raises:
            Problem: A job has no features, too many comparisons wait, or the owner keeps all that
                it may.
            OSError: There is no space for it.
        """
        stored = self._stored(asked.job, asked.id)
        if stored is not None:
            return stored
        require_space(self.settings)
        if self.settings.takes_jobs:
            require_room(find_usage(self.engine, self.settings, asked.job.owner))
        for job in asked.jobs:
            self._require_features(job)
        with self._lock:
            for name in list(self._asked):
                if self._work.known(name) is None:  # it is stored
                    del self._asked[name]
            owners = [each.job.owner for each in self._waiting()]
            full = owners.count(asked.job.owner) >= MOST_OF_ONE and asked.name not in self._asked
            begun = not full and self._work.begin(asked.name, lambda: self._make(asked))
            if begun:
                self._asked[asked.name] = asked
        if not begun:
            raise Problem(
                429,
                "too-many-comparisons",
                f"{len(owners)} comparisons wait or are being made",
                "wait for one of them",
                headers={"Retry-After": str(RETRY_AFTER)},
            )
        return self._public(asked)

    def get(self, job: Job, comparison_id: str) -> ComparisonPublic:
        """A comparison that was asked of a job.

        Raises:
            Problem: There is none with this id.
        """
        asked = self._asked.get(f"{job.id}/{comparison_id}")
        if asked is not None and self._work.known(asked.name) is not None:
            return self._public(asked)
        stored = self._stored(job, comparison_id)
        if stored is None:
            raise not_found("comparison", comparison_id)
        return stored

    def list(self, job: Job) -> Sequence[ComparisonPublic]:
        """What was asked of a job and is not deleted: what is not stored first."""
        asked = [each for each in list(self._asked.values()) if each.job.id == job.id]
        begun = [each for each in asked if self._work.known(each.name) is not None]
        ids = [each.id for each in begun]
        found = [self._public(each) for each in begun]
        for folder in self.artifacts.list_folders(_folder(job)):
            stored_id = folder.rpartition("/")[2]
            stored = None if stored_id in ids else self._stored(job, stored_id)
            if stored is not None:
                found.append(stored)
        return found

    def delete(self, job: Job, comparison_id: str) -> None:
        """Deletes a comparison; one that is being made is stopped.

        Raises:
            Problem: There is none with this id.
        """
        self.get(job, comparison_id)
        name = f"{job.id}/{comparison_id}"
        with self._lock:
            self._work.stop(name)
            self._asked.pop(name, None)
        self.artifacts.delete_prefix(f"{_folder(job)}/{comparison_id}")
        count_result(self.engine, self.artifacts, job)

    def open(self, job: Job, comparison_id: str, name: str) -> pa.NativeFile:
        """A file of a stored comparison.

        Raises:
            Problem: The comparison is not there, not ready or damaged, or has no such file.
        """
        if self.get(job, comparison_id).state != "succeeded":
            raise conflict("the comparison has no result yet", "ask for it until it has succeeded")
        if self.artifacts.size(f"{_folder(job)}/{comparison_id}/{name}") is None:
            raise conflict(
                f"the comparison has no {name}", "see the links of the comparison for what it has"
            )
        return open_stored(self.artifacts, job, f"{COMPARISONS_FOLDER}/{comparison_id}/{name}")

    def close(self) -> None:
        """Ends the comparison that is being made."""
        self._work.close()

    def _waiting(self) -> Iterator[Asked]:
        for name in self._work.pending():
            asked = self._asked.get(name)
            if asked is not None:
                yield asked

    def _public(self, asked: Asked) -> ComparisonPublic:
        progress = self._work.known(asked.name)
        stored = self._stored(asked.job, asked.id) if progress is None else None
        if stored is not None:
            return stored
        return _described(asked, progress or Progress())

    def _stored(self, job: Job, comparison_id: str) -> ComparisonPublic | None:
        try:
            with self.artifacts.open(f"{_folder(job)}/{comparison_id}/{RESULT_FILE}") as file:
                return ComparisonPublic.model_validate_json(file.read())
        except FileNotFoundError:
            return None

    def _require_features(self, job: Job) -> None:
        assert job.result is not None  # noqa: S101 - because it succeeded
        keys = [f"{job.result.prefix}/{name}" for name in (FEATURES_FILE, KIND_FILE)]
        if any(self.artifacts.size(key) is None for key in keys):
            judged = "it judged tags" if job.wanted.tags else "they were not kept"
            raise conflict(
                f"job {job.id} has no features to compare: {judged}",
                "name another job" if job.wanted.tags else "score its dataset again",
            )

    def _make(self, asked: Asked) -> str | None:
        """Why there is no comparison; None once it is stored."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            files = [self._fetch(job, folder) for job in asked.jobs]
            chosen = self._chosen_before(asked, folder)
            work = Work(serve, (asked.body, files, chosen, folder), MAX_MEMORY, LONGEST)
            found = self._work.run(asked.name, work)
            if isinstance(found, Refusal):
                reason = hide_paths(found.reason, public_names(self.settings))
                structlog.get_logger().info("comparison-refused", job=asked.job.id, reason=reason)
                return reason
            with self._lock:
                is_wanted = asked.name in self._asked
            if not is_wanted:  # it was deleted meanwhile
                return None
            links = _links(asked.job, asked.id)
            base = links["self"]
            for job in asked.jobs:
                if (folder / MARKS_FILE.format(job.id)).exists():
                    links[f"marks of {job.id}"] = f"{base}/marks.parquet?job={job.id}"
            links["table"] = f"{base}/table.parquet"
            made = {"state": "succeeded", "result": found, "links": links}
            public = _described(asked, Progress(1.0)).model_copy(update=made)
            (folder / RESULT_FILE).write_text(public.model_dump_json())
            stored = f"{_folder(asked.job)}/{asked.id}"
            # The result comes last: with it the comparison is there.
            for path in (*sorted(folder.glob("*.parquet")), folder / RESULT_FILE):
                self.artifacts.put(path, f"{stored}/{path.name}")
        count_result(self.engine, self.artifacts, asked.job)
        return None

    def _fetch(self, job: Job, folder: Path) -> KeptFiles:
        """Local files of a job, which are copied where they are in another storage."""
        assert job.result is not None  # noqa: S101 - because it succeeded
        own = folder / job.id
        own.mkdir(exist_ok=True)

        def local(name: str) -> Path:
            key = f"{job.result.prefix}/{name}" if job.result else ""
            path = self.artifacts.local_path(key)
            if path is None:
                path = own / name
                save(open_stored(self.artifacts, job, name), path)
            return path

        has_contents = self.artifacts.size(f"{job.result.prefix}/{CONTENTS_FILE}") is not None
        return KeptFiles(
            name=f"job {job.id}",
            scores=local(SCORES_FILE),
            features=local(FEATURES_FILE),
            kind=local(KIND_FILE),
            contents=local(CONTENTS_FILE) if has_contents else None,
        )

    def _chosen_before(self, asked: Asked, folder: Path) -> Path | None:
        """Table of an earlier choice that the request goes on from."""
        earlier = asked.body.chosen if isinstance(asked.body, SelectCreate) else None
        if earlier is None:
            return None
        path = folder / asked.job.id / "chosen.parquet"
        save(self.open(asked.job, earlier, TABLE_FILE), path)
        return path


def _folder(job: Job) -> str:
    assert job.result is not None  # noqa: S101 - because it succeeded
    return f"{job.result.prefix}/{COMPARISONS_FOLDER}"


def _described(asked: Asked, progress: Progress) -> ComparisonPublic:
    """A comparison that is not there yet."""
    return ComparisonPublic(
        id=asked.id,
        kind=asked.body.kind,
        state="running" if progress.failure is None else "failed",
        share=progress.share,
        failure=progress.failure,
        request=asked.body.model_dump(mode="json"),
        result=None,
        links=_links(asked.job, asked.id),
    )


def _links(job: Job, comparison_id: str) -> dict[str, str]:
    return {"self": f"/v1/jobs/{job.id}/comparisons/{comparison_id}"}


def serve(
    connections: Sequence[Connection],
    body: ComparisonCreate,
    files: Sequence[KeptFiles],
    chosen: Path | None,
    folder: Path,
) -> None:
    """Compares jobs in a process of its own; writes tables into the folder, sends the result."""

    def find(tell: Callable[[float], None]) -> Result | Refusal:
        try:
            if isinstance(body, LeaksCreate):
                return _leaks(body, files, folder, tell)
            if isinstance(body, DiffCreate):
                return _diff(body, files, folder)
            return _select(body, files, chosen, folder, tell)
        except DifficultyError as error:
            remedy = error.remedy_text(as_field_or_variable)
            return Refusal(f"{error.problem}; {remedy}" if remedy else error.problem)
        except (DamagedFile, OSError) as error:
            return Refusal(f"the files of a job cannot be read ({type(error).__name__})")
        except MemoryError:
            return Refusal("it takes more memory than the server gives it")

    answer(connections, find)


def _share_of(total: int, tell: Callable[[float], None]) -> Callable[[int], None]:
    """Tells which share of all pairs of samples has been compared."""
    done = 0

    def add(compared: int) -> None:
        nonlocal done
        done += compared
        tell(min(1.0, done / max(1, total)))

    return add


def _write_marks(folder: Path, name: str, marks: pa.Table) -> None:
    write_parquet(folder / MARKS_FILE.format(name.removeprefix("job ")), marks)


def _leaks(
    body: LeaksCreate, files: Sequence[KeptFiles], folder: Path, tell: Callable[[float], None]
) -> LeakResult:
    from difficulty_service.bodies.comparisons import SetResult
    from difficulty_service.scores.leaks import find_leaks

    train, *tests = [open_split(each) for each in files]
    total = train.num_samples * sum(test.num_samples for test in tests)
    found = find_leaks(train, tests, body.cosine, _share_of(total, tell), body.search)
    write_parquet(folder / TABLE_FILE, found.pairs)
    _write_marks(folder, found.train, found.train_marks)
    for test in found.tests:
        _write_marks(folder, test.name, test.marks)
    return LeakResult.of(found, [SetResult.of(test) for test in found.tests])


def _diff(body: DiffCreate, files: Sequence[KeptFiles], folder: Path) -> DiffResult:
    from difficulty_service.scores.changes import find_changes
    from difficulty_service.scores.selection import read_measure

    new, old = (open_split(each) for each in files)
    scores = read_measure(files[0].scores, None)
    found = find_changes(old, new, body.permutations, body.seed, scores)
    assert found.table is not None  # noqa: S101 - there are samples
    write_parquet(folder / TABLE_FILE, found.table)
    return DiffResult.of(found)


def _select(
    body: SelectCreate,
    files: Sequence[KeptFiles],
    chosen: Path | None,
    folder: Path,
    tell: Callable[[float], None],
) -> SelectResult:
    from difficulty_service.scores.selection import (
        Known,
        SelectionRequest,
        read_ids,
        read_measure,
        select_samples,
    )

    pool = replace(open_split(files[0]), ignores_labels=False)
    known = Known(
        scores=read_measure(files[0].scores, body.by) if body.reads("scores") else None,
        labelled=open_split(files[1]) if body.labelled is not None else None,
        chosen=() if chosen is None else read_ids(chosen),
    )
    others = 0 if known.labelled is None else known.labelled.num_samples
    compared = pool.num_samples * (body.count + len(known.chosen) + others)
    selection = select_samples(pool, SelectionRequest.of(body), known, _share_of(compared, tell))
    write_parquet(folder / TABLE_FILE, selection.table)
    _write_marks(folder, selection.name, selection.other_marks)
    return SelectResult.of(selection)
