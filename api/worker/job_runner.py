"""One attempt of a job: a dataset in, files out, which become visible once the job succeeds."""

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from sqlalchemy import Engine

from api.http.problems import Problem
from api.jobs.applied_marks import applied_marks, apply_marks
from api.jobs.dataset import DatasetLocation, find_dataset, open_job_dataset
from api.jobs.failures import hide_paths, public_names
from api.jobs.files import GAUSSIANS_FILE, MAP_FILE, SCORES_FILE, attempt_prefix, work_folder
from api.jobs.queue import Progress
from api.jobs.rows import Job
from api.jobs.store import get_job
from api.settings import MEBIBYTE, Settings
from api.storage.artifacts import Artifacts
from api.worker.feature_cache import FeatureCache
from difficulty_service.backbones import Loader, load_backbone
from difficulty_service.backbones.backbone import BackboneOptions, best_precision, choose_device
from difficulty_service.engines.cluster import ClusterOptions
from difficulty_service.errors import FeatureStoreError, ImageError
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.feature_store.errors_file import write_errors
from difficulty_service.feature_store.store import FeatureStore
from difficulty_service.files.atomic_file import replacing
from difficulty_service.pipeline import (
    Callbacks,
    ExtractedDataset,
    ExtractProgress,
    ExtractRequest,
    ScoredDataset,
    ScoreRequest,
    score_dataset,
)
from difficulty_service.reporting.map import place_samples
from difficulty_service.scoring.fitted_gaussians import FittedGaussians
from difficulty_service.statistics.fit_options import FitOptions

FEATURES_FOLDER = "features"
MAX_UNREADABLE = 10_000  # images, before their share counts
UNREADABLE_SHARE = 0.9

Check = Callable[[Progress], None]
"""Called with every batch and between the stages; raises if the job must stop."""


def run_job(
    job: Job,
    settings: Settings,
    engine: Engine,
    artifacts: Artifacts,
    check: Check,
    load: Loader = load_backbone,
) -> dict[str, Any]:
    """Extracts, fits and scores; resumes where an earlier attempt ended.

    Args:
        job: Job as it was claimed.
        settings: Settings with work folder and device.
        engine: Database with uploads and other jobs.
        artifacts: Storage for the files, in a folder of this attempt.
        check: Ends the attempt by raising.
        load: Loads the backbone.

    Returns:
        The result of the job: the folder of its files, sizes, counts and warnings.

    Raises:
        Problem: The request cannot be met.
        DifficultyError: The dataset, the backbone or the statistics fail; the message may name
            paths of this server.
        OSError: Storage fails.
    """
    with work_folder(settings.work_dir, job.id, job.attempt) as folder:
        location = find_dataset(job, settings, engine)
        extraction = _extraction(job, settings, location, folder / FEATURES_FOLDER)
        scoring = ScoreRequest(
            folder / SCORES_FILE,
            job.request["scorers"],
            FitOptions(shrinkage=job.request["shrinkage"]),
            _fetch_gaussians(job, engine, artifacts, folder),
        )
        cache = FeatureCache(
            settings.feature_cache_dir, settings.feature_cache_mb * MEBIBYTE, job.owner
        )
        extraction = replace(extraction, lend=cache.lend)
        files = [scoring.out]
        used = [scoring.fitted]
        reporter = _Reporter(check)

        def save_gaussians(fitted: FittedGaussians) -> None:
            used.append(fitted)
            files.append(folder / GAUSSIANS_FILE)
            fitted.save(files[-1])
            reporter.between_stages()

        def keep_features(extracted: ExtractedDataset) -> None:
            if extracted.reuse is None or extracted.reuse.num_new:
                cache.keep(extracted.store, job.id)
            reporter.between_stages()

        callbacks = Callbacks(reporter.update, keep_features, save_gaussians)
        with _deleted_if_unusable(extraction.out):
            dataset = open_job_dataset(job, location, settings)
            if marks := applied_marks(engine, job):
                dataset = apply_marks(dataset, marks, job.request["marks"])
            scored = score_dataset(extraction, scoring, callbacks, dataset, load)
        reporter.between_stages()
        extracted = scored.extracted
        errors = [
            replace(error, reason=hide_paths(error.reason, public_names(settings)))
            for error in (*extracted.skipped, *extracted.bad_images)
        ]
        files.append(write_errors(extracted.store.folder, errors))
        files += _write_map(extracted.store, used[-1], folder / MAP_FILE)
        reporter.between_stages()
        for file in files:
            artifacts.put(file, f"{attempt_prefix(job)}/{file.name}")
        return _result(job, scored, scoring.out)


def _write_map(store: FeatureStore, fitted: FittedGaussians | None, out: Path) -> list[Path]:
    """Positions of the images on a map, which the features are needed for; no file without one."""
    placed = None if fitted is None else place_samples(store, fitted.gaussians)
    if placed is None:
        return []
    with replacing(out) as temporary:
        pq.write_table(placed, temporary, compression="zstd")
    return [out]


def _fetch_gaussians(
    job: Job, engine: Engine, artifacts: Artifacts, folder: Path
) -> FittedGaussians | None:
    """The Gaussians of the job that this one names, if it names one.

    Raises:
        Problem: That job has no Gaussians.
    """
    source_id = job.request.get("gaussians")
    if source_id is None:
        return None
    source = get_job(engine, job.owner, source_id)
    key = f"{source.result['prefix']}/{GAUSSIANS_FILE}" if source and source.result else None
    if key is None or artifacts.size(key) is None:
        raise Problem(
            409,
            "conflict",
            f"job {source_id!r} has no Gaussians: it does not exist, did not succeed, or "
            "used those of another job",
            "name a job that succeeded with Gaussians of its own",
            field="gaussians",
        )
    copy = folder / f"given-{GAUSSIANS_FILE}"
    with artifacts.open(key) as stored, replacing(copy) as temporary, temporary.open("wb") as file:
        shutil.copyfileobj(stored, file)
    return FittedGaussians.load(copy)


def _extraction(job: Job, settings: Settings, source: DatasetLocation, out: Path) -> ExtractRequest:
    cluster = None
    if settings.engine == "ray":
        from difficulty_service.engines.ray_cluster import choose_on_cluster

        cluster = ClusterOptions(settings.ray_address)
        device, precision = choose_on_cluster(settings.device, cluster)
    else:
        device = choose_device(settings.device)
        precision = best_precision(device)
    return ExtractRequest(
        location=source.name,
        out=out,
        backbone=job.request.get("backbone") or settings.default_backbone,
        network=BackboneOptions(device=device, precision=precision),
        options=ExtractOptions(
            augment_runs=job.request["augment_runs"],
            seed=job.request["seed"],
            max_pixels=settings.max_pixels,
            stop_on_error=job.request["on_error"] == "stop",
        ),
        cluster=cluster,
    )


@contextmanager
def _deleted_if_unusable(features: Path) -> Iterator[None]:
    """Deletes features that the next attempt could not use either."""
    try:
        yield
    except FeatureStoreError:
        shutil.rmtree(features, ignore_errors=True)
        raise


class _Reporter:
    """Calls the check of a job with its progress.

    Args:
        check: The check; whatever it raises ends the attempt.
    """

    def __init__(self, check: Check) -> None:
        self._check = check
        self._began = 0.0
        self._first: ExtractProgress | None = None
        self._last = Progress(done=0, total=None, bad=0, rate=None)

    def update(self, progress: ExtractProgress) -> None:
        """Reports the progress of the extraction, and the rate of this attempt."""
        rate = None
        if self._first is None:
            self._began, self._first = time.monotonic(), progress
        else:
            # One batch always takes some time, but a clock may be too coarse to measure it.
            seconds = max(time.monotonic() - self._began, 1e-3)
            rate = (progress.done - self._first.done) / seconds
        self._last = Progress(progress.done, progress.total, progress.bad, rate)
        self._check(self._last)
        _refuse_unreadable(progress)

    def between_stages(self) -> None:
        """Reports that no image is being extracted."""
        self._last = replace(self._last, rate=None)
        self._check(self._last)


def _refuse_unreadable(progress: ExtractProgress) -> None:
    """Ends a job of which hardly any image can be read, rather than try millions in vain.

    Raises:
        ImageError: More than 10,000 images, and nine in ten, cannot be read.
    """
    if progress.bad > MAX_UNREADABLE and progress.bad > UNREADABLE_SHARE * progress.done:
        raise ImageError(
            f"{progress.bad:,} of the first {progress.done:,} images cannot be read",
            "check that the dataset holds images; a job with a small limit lists the reasons",
        )


def _result(job: Job, scored: ScoredDataset, scores: Path) -> dict[str, Any]:
    with scores.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    store = scored.extracted.store
    return {
        "prefix": attempt_prefix(job),
        "num_samples": int(store.description["num_samples"]),
        "num_scored": scored.scores.num_scored,
        "num_doubtful": scored.scores.num_doubtful,
        "num_duplicates": scored.scores.num_duplicates,
        "num_bad_images": len(scored.extracted.bad_images),
        "num_skipped": len(scored.extracted.skipped),
        "scores_bytes": scores.stat().st_size,
        "scores_sha256": digest,
        "warnings": list(scored.scores.warnings),
        "class_names": list(store.class_names),
    }
