"""What the pages of an explored score file need its features for: a map and similar images."""

import tempfile
from pathlib import Path

import pyarrow as pa

from api.jobs.files import SCORES_FILE, VECTORS_FILE, attempt_prefix
from api.jobs.rows import Job
from api.jobs.stored_files import open_stored_parquet
from api.storage.artifacts import Artifacts, open_artifacts
from difficulty_service.errors import ConfigError
from difficulty_service.feature_store.description import is_store, read_description
from difficulty_service.runtime.apart import call_apart

SOURCE_FILE = "features.txt"
"""File that names the folder of the features that the other files were made of."""


def add_features(artifact_root: str, job: Job, folder: Path) -> None:
    """Adds the map and the vectors of a job's images, unless they are made of this folder already.

    They are made in another process, since that takes torch, which the server does without.

    Args:
        artifact_root: Folder or URI of the results of jobs.
        job: Job of a score file.
        folder: Folder of the features.

    Raises:
        ConfigError: The folder holds no features, or none of these images.
        FeatureStoreError: They are incomplete or damaged.
        StatisticsError: No Gaussian can be fitted to them.
    """
    if not is_store(folder):
        raise ConfigError(
            f"{folder} holds no features",
            "`difficulty score` keeps them beside the scores when it is given a dataset",
            parameter="features",
        )
    artifacts = open_artifacts(artifact_root)
    source = f"{folder.absolute()} {read_description(folder).fingerprint}"
    if _read(artifacts, f"{attempt_prefix(job)}/{SOURCE_FILE}") != source:
        call_apart(_add_files, artifact_root, job, folder, source)


def _add_files(artifact_root: str, job: Job, folder: Path, source: str) -> None:
    from api.worker.page_files import write_page_files
    from difficulty_service.feature_store.store import open_store
    from difficulty_service.scoring.fit_store import fit_store
    from difficulty_service.statistics.fit_options import FitOptions

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
        (local / SOURCE_FILE).write_text(source)
        for file in (*files, local / SOURCE_FILE):
            artifacts.put(file, f"{prefix}/{file.name}")


def _read(artifacts: Artifacts, key: str) -> str:
    try:
        with artifacts.open(key) as file:
            return str(file.read().decode())
    except FileNotFoundError:
        return ""
