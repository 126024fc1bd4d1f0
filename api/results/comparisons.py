"""What is asked of finished jobs together: copies across them, what changed, what to choose.

It is found by the features that the jobs keep, in a process of its own, and stored beside the
scores of the job that it was asked of, until either is deleted.
"""

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from pydantic import BaseModel
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from api.http.principals import Principal
from api.http.problems import Problem, conflict, not_found
from api.http.public_text import hide_paths, public_names
from api.jobs import comparisons
from api.jobs.comparisons import OtherJob, StoredComparison
from api.jobs.failures import as_field_or_variable
from api.jobs.files import (
    COMPARISONS_FOLDER,
    CONTENTS_FILE,
    FEATURES_FILE,
    KIND_FILE,
    SCORES_FILE,
    count_result,
    open_stored,
    scratch,
)
from api.jobs.kept_features import KeptFiles, open_split
from api.jobs.store import Job
from api.results.one_by_one import OneByOne, Refusal, Work, answer
from api.settings import Settings
from api.storage.artifacts import Artifacts, save
from api.storage.space import require_space
from api.uploads.quota import find_usage, require_room
from difficulty_service.base.checksums import DamagedFile
from difficulty_service.base.contract import Found
from difficulty_service.base.errors import DifficultyError
from difficulty_service.base.plugins import function_of
from difficulty_service.base.tables import write_parquet
from difficulty_service.bodies.comparison_kinds import Compared, ComparedJob, Tell
from difficulty_service.bodies.comparisons import (
    COMPARISONS,
    ComparisonCreate,
    ComparisonPublic,
    Result,
    comparison_of,
)

MAX_MEMORY = 4 << 30
"""Bytes of data of the process that compares; features are mapped and do not count."""

LONGEST = 900.0
"""Seconds that a comparison may take."""

MOST_WAITING, MOST_OF_ONE = 32, 4
"""Comparisons that wait or are being made, and those of the jobs of one key."""

RETRY_AFTER = 30  # seconds

TOLD_EVERY = 3.0
"""Seconds after which a server tells others how far its comparisons are."""

RESULT_FILE, TABLE_FILE, CLASSES_FILE = "result.json", "table.parquet", "classes.parquet"

MARKS_FILE = "marks-{}.parquet"


@dataclass(frozen=True)
class Asked:
    """What is asked, and the finished jobs that it is about, the job of the address first.

    Attributes:
        before: The earlier choice that it goes on from, whose jobs it is about, too.
    """

    body: ComparisonCreate
    jobs: Sequence[Job]
    before: StoredComparison | None = None

    @property
    def job(self) -> Job:
        """The job that it is asked of."""
        return self.jobs[0]

    @property
    def id(self) -> str:
        """The same for the same request."""
        text = json.dumps([self.job.id, self.body.model_dump(mode="json")], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def begun(self) -> StoredComparison:
        """The comparison, of which nothing is found yet."""
        others = {each.id: OtherJob.of(each) for each in self.jobs[1:]}
        earlier = () if self.before is None else self.before.others
        others = {each.id: each for each in earlier} | others
        request = self.body.model_dump(mode="json")
        return StoredComparison(self.job.id, self.id, list(others.values()), request, "running")


@dataclass
class Comparisons:
    """Makes one comparison at a time, stores it, and tells how far each of them is."""

    engine: Engine
    settings: Settings
    artifacts: Artifacts
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _owners: dict[str, str] = field(default_factory=dict)
    _work: OneByOne = field(default_factory=lambda: OneByOne("comparison", MOST_WAITING))
    _closed: threading.Event = field(default_factory=threading.Event)
    _teller: threading.Thread | None = None

    def request(self, viewer: Principal, asked: Asked) -> ComparisonPublic:
        """The comparison, which is begun if it is neither stored nor being made.

        Raises:
            Problem: A job has no features, too many comparisons wait, or the owner or the job
                keeps all that it may.
            OSError: There is no space for it.
        """
        present = comparisons.find(self.engine, viewer, asked.job.id, asked.id)
        if present is not None and present.state != "failed":
            return self._public(asked.job, present)
        require_space(self.settings)
        if self.settings.takes_jobs:
            require_room(find_usage(self.engine, self.settings, asked.job.owner))
        for job in asked.jobs:
            self._require_features(job)
        begun, maker = asked.begun(), uuid4().hex
        with self._lock:
            self._owners = {each: self._owners[each] for each in self._work.pending()}
            owners = list(self._owners.values())
            own = owners.count(asked.job.owner)
            is_full = len(owners) >= MOST_WAITING or own >= MOST_OF_ONE
            if not is_full and comparisons.begin(self.engine, begun, maker):
                self._owners[maker] = asked.job.owner
                self._work.begin(maker, lambda: self._make(asked, maker))
                self._tell()
        if is_full:
            raise Problem(
                429,
                "too-many-comparisons",
                f"{own} comparisons of this key wait or are being made"
                if own >= MOST_OF_ONE
                else "as many comparisons wait as may",  # how many others have is not told
                "wait for one of them",
                headers={"Retry-After": str(RETRY_AFTER)},
            )
        return self.get(viewer, asked.job, asked.id)

    def get(self, viewer: Principal, job: Job, comparison_id: str) -> ComparisonPublic:
        """A comparison that was asked of a job.

        Raises:
            Problem: There is none with this id all of whose jobs the caller sees.
        """
        return self._public(job, self.find(viewer, job, comparison_id))

    def find(self, viewer: Principal, job: Job, comparison_id: str) -> StoredComparison:
        """A comparison without its result; arguments and errors as of `get`."""
        found = comparisons.find(self.engine, viewer, job.id, comparison_id)
        if found is None or not _is_known(found):
            raise not_found("comparison", comparison_id)
        return found

    def list(self, viewer: Principal, job: Job) -> Sequence[StoredComparison]:
        """What was asked of a job and is not deleted, the latest first, without results."""
        return [
            each for each in comparisons.list_of(self.engine, viewer, job.id) if _is_known(each)
        ]

    def delete(self, viewer: Principal, job: Job, comparison_id: str) -> None:
        """Deletes a comparison; one that is being made is stopped. Errors as of `get`."""
        self.find(viewer, job, comparison_id)
        comparisons.delete(self.engine, job.id, comparison_id)
        self._stop_unwanted()
        self.artifacts.delete_prefix(f"{_folder(job)}/{comparison_id}")
        count_result(self.engine, self.artifacts, job)

    def open(self, viewer: Principal, job: Job, comparison_id: str, name: str) -> pa.NativeFile:
        """A file of a stored comparison.

        Raises:
            Problem: The comparison is not there, not ready or damaged, or has no such file.
        """
        if self.find(viewer, job, comparison_id).state != "succeeded":
            raise conflict("the comparison has no result yet", "ask for it until it has succeeded")
        return self._open(job, comparison_id, name)

    def _open(self, job: Job, comparison_id: str, name: str) -> pa.NativeFile:
        if self.artifacts.size(f"{_folder(job)}/{comparison_id}/{name}") is None:
            raise conflict(
                f"the comparison has no {name}", "see the links of the comparison for what it has"
            )
        return open_stored(self.artifacts, job, f"{COMPARISONS_FOLDER}/{comparison_id}/{name}")

    def close(self) -> None:
        """Ends the comparison that is being made; those that wait can be asked for again."""
        self._closed.set()
        waiting = self._work.pending()
        self._work.close()
        for maker in waiting:
            comparisons.finish(self.engine, maker, failure=comparisons.ENDED)

    def _tell(self) -> None:
        """Begins to tell other servers that this one is at work, if it does not yet."""
        if self._teller is None:
            self._teller = threading.Thread(target=self._tell_others, daemon=True)
            self._teller.start()

    def _tell_others(self) -> None:
        while not self._closed.wait(TOLD_EVERY):
            try:
                self._stop_unwanted()
            except (SQLAlchemyError, Problem) as error:
                structlog.get_logger().warning("comparisons-untold", exc_info=error)

    def _stop_unwanted(self) -> None:
        """Tells how far comparisons are; stops those that were deleted, here or elsewhere."""
        progress = {maker: self._work.known(maker) for maker in self._work.pending()}
        shares = {maker: each.share for maker, each in progress.items() if each is not None}
        for maker in comparisons.heard_of(self.engine, shares) if shares else ():
            self._work.stop(maker)

    def _public(self, job: Job, found: StoredComparison) -> ComparisonPublic:
        public = described(job, found)
        if found.state != "succeeded":
            return public
        with self._open(job, found.id, RESULT_FILE) as file:
            stored = Stored.model_validate_json(file.read())
        return public.model_copy(update=dict(stored))

    def _require_features(self, job: Job) -> None:
        if any(self.artifacts.size(job.key(name)) is None for name in (FEATURES_FILE, KIND_FILE)):
            judged = "it judged tags" if job.wanted.tags else "they were not kept"
            raise conflict(
                f"job {job.id} has no features to compare: {judged}",
                "name another job" if job.wanted.tags else "score its dataset again",
            )

    def _make(self, asked: Asked, maker: str) -> str | None:
        """Why there is no comparison; None once it is stored."""
        failure: str | None = "the server could not make it"
        summary = None
        try:
            found = self._find(asked, maker)
            failure = found.reason if isinstance(found, Refusal) else None
            if not isinstance(found, Refusal):
                summary = comparison_of(asked.body).summary(asked.body, found)
        finally:
            is_wanted = comparisons.finish(self.engine, maker, summary=summary, failure=failure)
            if not is_wanted and not comparisons.is_kept(self.engine, asked.job.id, asked.id):
                # It was deleted meanwhile, and nobody makes it again.
                self.artifacts.delete_prefix(f"{_folder(asked.job)}/{asked.id}")
            count_result(self.engine, self.artifacts, asked.job)
        return failure

    def _find(self, asked: Asked, maker: str) -> Result | Refusal:
        """What is found, once it is stored with its tables."""
        with scratch(self.settings) as folder:
            files = [self._fetch(job, folder) for job in asked.jobs]
            earlier = self._fetch_earlier(asked, folder)
            work = Work(serve, (asked.body, files, earlier, folder), MAX_MEMORY, LONGEST)
            found: Result | Refusal = self._work.run(maker, work)
            if isinstance(found, Refusal):
                reason = hide_paths(found.reason, public_names(self.settings))
                structlog.get_logger().info("comparison-refused", job=asked.job.id, reason=reason)
                return Refusal(reason)
            links = _links(asked.job.id, asked.id)
            base = links["self"]
            for job in asked.jobs:
                if (folder / MARKS_FILE.format(job.id)).exists():
                    links[f"marks of {job.id}"] = f"{base}/marks.parquet?job={job.id}"
            links["table"] = f"{base}/table.parquet"
            if (folder / CLASSES_FILE).exists():
                links["classes"] = f"{base}/classes.parquet"
            stored = Stored(result=found, links=links)
            (folder / RESULT_FILE).write_text(stored.model_dump_json())
            place = f"{_folder(asked.job)}/{asked.id}"
            for path in (*sorted(folder.glob("*.parquet")), folder / RESULT_FILE):
                self.artifacts.put(path, f"{place}/{path.name}")
            return found

    def _fetch(self, job: Job, folder: Path) -> KeptFiles:
        """Local files of a job, which are copied where they are in another storage."""
        own = folder / job.id
        own.mkdir(exist_ok=True)

        def local(name: str) -> Path:
            path = self.artifacts.local_path(job.key(name))
            if path is None:
                path = own / name
                save(open_stored(self.artifacts, job, name), path)
            return path

        has_contents = self.artifacts.size(job.key(CONTENTS_FILE)) is not None
        return KeptFiles(
            name=f"job {job.id}",
            scores=local(SCORES_FILE),
            features=local(FEATURES_FILE),
            kind=local(KIND_FILE),
            contents=local(CONTENTS_FILE) if has_contents else None,
        )

    def _fetch_earlier(self, asked: Asked, folder: Path) -> Path | None:
        """Table of an earlier answer that the request goes on from."""
        if asked.before is None:
            return None
        path = folder / asked.job.id / "earlier.parquet"
        save(self._open(asked.job, asked.before.id, TABLE_FILE), path)
        return path


def _is_known(found: StoredComparison) -> bool:
    """Whether there still is the analysis that was asked; its package may be gone."""
    return found.request["kind"] in COMPARISONS


def _folder(job: Job) -> str:
    return job.key(COMPARISONS_FOLDER)


class Stored(BaseModel):
    """What is stored of a comparison beside its tables."""

    result: Result
    links: dict[str, str]


def described(job: Job, found: StoredComparison) -> ComparisonPublic:
    """A comparison without its result."""
    return ComparisonPublic(
        id=found.id,
        kind=found.request["kind"],
        state=found.state,
        share=found.share,
        failure=found.failure,
        summary=found.summary,
        request=dict(found.request),
        result=None,
        links=_links(job.id, found.id),
    )


def _links(job_id: str, comparison_id: str) -> dict[str, str]:
    return {"self": f"/v1/jobs/{job_id}/comparisons/{comparison_id}"}


def serve(
    connections: Sequence[Connection],
    body: ComparisonCreate,
    files: Sequence[KeptFiles],
    earlier: Path | None,
    folder: Path,
) -> None:
    """Compares jobs in a process of its own; writes tables into the folder, sends the result."""

    def find(tell: Tell) -> Found | Refusal:
        try:
            job, *others = [ComparedJob(open_split(each), each.scores) for each in files]
            asked = comparison_of(body)
            before = None if earlier is None else pq.read_table(earlier)
            found: Compared = function_of(asked.find)(body, job, others, before, tell)
            write_parquet(folder / TABLE_FILE, found.table)
            for name, marks in found.marks.items():
                write_parquet(folder / MARKS_FILE.format(name.removeprefix("job ")), marks)
            if found.classes is not None:
                write_parquet(folder / CLASSES_FILE, found.classes)
        except DifficultyError as error:
            remedy = error.remedy_text(as_field_or_variable)
            return Refusal(f"{error.problem}; {remedy}" if remedy else error.problem)
        except (DamagedFile, OSError) as error:
            return Refusal(f"the files of a job cannot be read ({type(error).__name__})")
        except MemoryError:
            return Refusal("it takes more memory than the server gives it")
        return found.result

    answer(connections, find)
