"""A score file as a finished job, whose pages a person looks at without a service."""

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine, insert, select

from api.jobs.files import (
    COLUMNS_FILE,
    COMPARISONS_FOLDER,
    CONTENTS_FILE,
    FEATURES_FILE,
    KIND_FILE,
    MAP_FILE,
    SCORES_FILE,
    TSNE_FOLDER,
    VECTORS_FILE,
    attempt_prefix,
    open_stored_parquet,
)
from api.jobs.store import Job, encode, job_of
from api.jobs.stored_result import StoredResult
from api.results.score_columns import write_columns
from api.storage.artifacts import Artifacts, open_artifacts
from api.storage.database import now, write_transaction
from api.storage.tables import JOBS, id_of
from difficulty_service.base.apart import call_apart
from difficulty_service.base.errors import ConfigError, FeatureStoreError
from difficulty_service.base.wording import count_of
from difficulty_service.cleaning.exports.samples import class_list
from difficulty_service.cli.wrong_call import as_option
from difficulty_service.datasets.storage import is_uri
from difficulty_service.features.description import is_store, read_description
from difficulty_service.features.errors_file import (
    ERRORS_FILE,
    BadImage,
    read_errors,
    spelled,
    write_errors,
)
from difficulty_service.scores.file import ScoreFile, write_scores
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.samples import ScoredSamples, columns_to_read, to_samples
from difficulty_service.scoring.image_faults import count_faults
from difficulty_service.settings.options import ReadingOptions

SOURCE_FILE = "features.txt"
"""File that names the folder of the features that the other files were made of."""

LONGEST_SOURCE = 10_000  # bytes


def add_features(artifact_root: str, job: Job, folder: Path) -> None:
    """Adds the map and the vectors of a job's images, unless they are made of this folder already.

    They are made in another process, since that takes torch, which the server does without.
    """
    if not is_store(folder):
        raise ConfigError(
            f"{folder} holds no features",
            "`difficulty score` keeps them beside the scores when it is given a dataset",
            parameter="features",
        )
    if not has_features_of(artifact_root, job, folder):
        call_apart(make_features_files, artifact_root, job, folder)


def has_features_of(artifact_root: str, job: Job, folder: Path) -> bool:
    """Whether the map and the vectors of a job's images are made of the features in a folder."""
    key = f"{attempt_prefix(job)}/{SOURCE_FILE}"
    return open_artifacts(artifact_root).read_text(key, LONGEST_SOURCE) == _source(folder)


def remove_features_files(artifacts: Artifacts, job: Job) -> None:
    """Removes all that was made of a job's features, which are perhaps other ones now."""
    prefix = attempt_prefix(job)
    artifacts.delete_prefix(f"{prefix}/{TSNE_FOLDER}")
    artifacts.delete_prefix(f"{prefix}/{COMPARISONS_FOLDER}")
    for name in (SOURCE_FILE, MAP_FILE, VECTORS_FILE, FEATURES_FILE, KIND_FILE, CONTENTS_FILE):
        artifacts.delete(f"{prefix}/{name}")


def _source(folder: Path) -> str:
    return f"{folder.absolute()} {read_description(folder).fingerprint}"


def make_features_files(artifact_root: str, job: Job, folder: Path) -> None:
    """Makes the map and the vectors of a job's images from the features in a folder."""
    from api.jobs.page_files import write_page_files
    from difficulty_service.features.store import open_store
    from difficulty_service.gaussians.fit_options import FitOptions
    from difficulty_service.scoring.fit_store import fit_store

    artifacts, prefix = open_artifacts(artifact_root), attempt_prefix(job)
    store = open_store(folder)
    gaussians = fit_store(store, FitOptions("auto", "auto")).gaussians
    with open_stored_parquet(artifacts, job, SCORES_FILE) as file:
        ids = file.read(["sample_id"])["sample_id"].cast(pa.string())
    with tempfile.TemporaryDirectory() as name:
        local = Path(name)
        files = write_page_files(store, gaussians, local, len(ids), ids.combine_chunks())
        if local / VECTORS_FILE not in files:
            raise ConfigError(
                f"the features in {folder} are of none of the images in the score file",
                "name the folder of the features that were scored",
                parameter="features",
            )
        remove_features_files(artifacts, job)
        (local / SOURCE_FILE).write_text(_source(folder))
        for file in (*files, local / SOURCE_FILE):
            artifacts.put(file, f"{prefix}/{file.name}")


def root_and_path(location: str) -> tuple[tuple[str, str], str]:
    """Name and folder of a root that holds a dataset, and the path of the dataset below it."""
    if is_uri(location):
        return ("dataset", location), ""
    path = Path(location).absolute()
    return (path.parent.name or "dataset", str(path.parent)), path.name


def import_scores(
    engine: Engine,
    artifacts: Artifacts,
    content: ScoreFile,
    location: str,
    errors: Sequence[BadImage] = (),
    marks_of: str | None = None,
) -> Job:
    """Makes a score file the result of a finished job; the same file is the same job.

    `marks_of` is the id of the job whose marks the scores know, which the new one is a round after.
    """
    provenance = _completed(content)
    content = ScoreFile(content.table, provenance)
    (root, _), path = root_and_path(location)
    columns_shown = content.table.select(columns_to_read(content.table.column_names))
    shown = ScoreFile(columns_shown, content.provenance)
    recorded = content.provenance.dataset_options
    options = {} if recorded is None else recorded.options()
    request = {
        "dataset": {"root": root, "path": path},
        "backbone": content.provenance.backbone,
        **{name: options[name] for name in ReadingOptions.model_fields if name in options},
    }
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / SCORES_FILE
        write_scores(local, content.table, provenance)
        digest = hashlib.sha256(local.read_bytes())
        job = _job(engine, id_of(digest.digest()), request | {"marks": marks_of})
        request["marks"] = job.request.get("marks")
        prefix = attempt_prefix(job)
        artifacts.put(local, f"{prefix}/{SCORES_FILE}")
        columns = f"{prefix}/{COLUMNS_FILE}"
        if artifacts.size(columns) is None:
            artifacts.put(write_columns(Path(folder) / COLUMNS_FILE, shown), columns)
        artifacts.put(write_errors(Path(folder), errors), f"{prefix}/errors.parquet")
        result = _result(
            content, to_samples(shown), prefix, local.stat().st_size, digest.hexdigest()
        )
    with write_transaction(engine) as connection:
        changed = JOBS.update().where(JOBS.c.id == job.id)
        values = {"request": encode(request), "result": encode(result.to_json())}
        return job_of(connection.execute(changed.values(values).returning(*JOBS.c)).one())


def _completed(content: ScoreFile) -> Provenance:
    """Where scores come from, with what their columns tell of it if another program lost it."""
    known = content.provenance
    counted: dict[str, object] = {}
    if not known.class_names:
        counted["class_names"] = class_list(content)
    if known.image_faults is None and (faults := count_faults(content)) is not None:
        counted["image_faults"] = dict(faults)
    return known.updated(Provenance.of(counted)) if counted else known


def _job(engine: Engine, job_id: str, request: Mapping[str, Any]) -> Job:
    """The job with this id, which is created if there is none."""
    with write_transaction(engine) as connection:
        row = connection.execute(select(JOBS).where(JOBS.c.id == job_id)).one_or_none()
        if row is None:
            body = encode(request)
            at = now(connection)
            values = {
                "id": job_id,
                "owner": "",
                "state": "succeeded",
                "request": body,
                "root": request.get("dataset", {}).get("root"),
                "request_sha256": hashlib.sha256(body.encode()).hexdigest(),
                "created_at": at,
                "run_after": at,
                "finished_at": at,
                "attempt": 1,
                "max_attempts": 1,
            }
            row = connection.execute(insert(JOBS).values(values).returning(*JOBS.c)).one()
        return job_of(row)


def _result(
    content: ScoreFile, samples: ScoredSamples, prefix: str, scores_bytes: int, scores_sha256: str
) -> StoredResult:
    """What the file says of itself, with counts of its rows where it does not."""
    known = content.provenance
    copies = content.table["duplicate_of"] if "duplicate_of" in content.table.schema.names else None
    num_duplicates = len(samples) - copies.null_count if copies else 0

    def first(recorded: int | None, counted: int) -> int:
        return counted if recorded is None else recorded

    return StoredResult(
        prefix=prefix,
        num_samples=first(known.num_samples, len(samples)),
        num_scored=first(known.num_scored, int((~np.isnan(samples.rmd)).sum())),
        num_doubtful=int(samples.is_doubtful.sum()),
        num_duplicates=first(known.num_duplicates, num_duplicates),
        num_bad_images=known.num_bad_images or 0,
        num_skipped=0,
        scores_bytes=scores_bytes,
        scores_sha256=scores_sha256,
        warnings=known.warnings,
        class_names=tuple(samples.names.values()),
    )


def find_errors(scores: Path, content: ScoreFile) -> Sequence[BadImage]:
    """What of the dataset has no score, from the `errors.parquet` that belongs to a score file.

    It may be beside the score file or beside its features. Where there is none, one entry has the
    number of images and where the file would be.
    """
    number = content.provenance.num_bad_images or 0
    features = scores.with_suffix(".features")
    why = f"there is no {features / ERRORS_FILE} of this dataset, which `difficulty score` writes"
    for folder in (features, scores.parent):
        try:
            found = read_errors(folder)
        except FeatureStoreError as error:
            why = str(error)
            continue
        if not found:
            continue
        ids = pa.array([error.sample_id for error in found], pa.string())
        scored = pc.is_in(ids, value_set=content.table["sample_id"].combine_chunks())
        # The file of another dataset may be there.
        if len(found) >= number and not pc.any(scored).as_py():
            return [replace(each, reason=spelled(each.reason, as_option)) for each in found]
    unknown = "their names and reasons are not known"
    return [BadImage(count_of(number, "unreadable image"), f"{unknown}: {why}")] if number else []
