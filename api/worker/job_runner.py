"""One attempt of a job: a dataset in, files out, which become visible once the job succeeds."""

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from api.http.problems import Problem
from api.jobs.dataset import DatasetLocation, find_dataset, open_job_dataset
from api.jobs.failures import hide_paths, public_names
from api.jobs.files import GAUSSIANS_FILE, SCORES_FILE, attempt_prefix, work_folder
from api.jobs.queue import Progress
from api.jobs.rows import Job
from api.jobs.store import get_job
from api.settings import Settings
from api.storage.artifacts import Artifacts
from difficulty_service.atomic_file import replacing
from difficulty_service.backbones import Loader, load_backbone
from difficulty_service.backbones.backbone import BackboneOptions, best_precision, choose_device
from difficulty_service.engines.cluster import ClusterOptions
from difficulty_service.errors import FeatureStoreError
from difficulty_service.extraction.batches import ExtractOptions
from difficulty_service.extraction.shards import Progress as BatchProgress
from difficulty_service.parallel import num_workers
from difficulty_service.pipeline import Extracted, ExtractRequest, Watch, extract_dataset
from difficulty_service.scorers.faiss_package import load_faiss
from difficulty_service.scoring.fit_store import fit_store, write_store_scores
from difficulty_service.scoring.score_store import Scored
from difficulty_service.statistics.fitting import FitRequest
from difficulty_service.statistics.gaussian import Gaussians
from difficulty_service.statistics.gaussian_file import load_gaussians, save_gaussians

FEATURES_FOLDER = "features"

Check = Callable[[Progress], None]
"""Called with every batch and between the stages; raises if the job must stop."""

Fitted = tuple[Gaussians, Mapping[str, Any]]
"""Gaussians, and the description of the features they were fitted to."""


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
    if {"kmeans", "knn"} & set(job.request["scorers"]):
        load_faiss()  # fails now if it is missing, not after hours of extraction
    with work_folder(settings.work_dir, job.id, job.attempt) as folder:
        location = find_dataset(job, settings, engine)
        fitted = _fetch_gaussians(job, engine, artifacts, folder)
        request = _extraction(job, settings, location, folder / FEATURES_FOLDER)
        if fitted is not None:
            request = replace(request, fitted_on=fitted[1])
        with _made_anew_if_unusable(request.out):
            dataset = open_job_dataset(job, location)
            extracted = extract_dataset(dataset, request, _watch(check), load)
            scored, files = _score(job, extracted, fitted, folder, check)
        bad_images = [
            replace(bad, reason=hide_paths(bad.reason, public_names(settings)))
            for bad in extracted.bad_images
        ]
        files.append(extracted.store.write_errors(bad_images))
        for file in files:
            artifacts.put(file, f"{attempt_prefix(job)}/{file.name}")
        return _result(job, extracted, scored, folder / SCORES_FILE)


def _fetch_gaussians(job: Job, engine: Engine, artifacts: Artifacts, folder: Path) -> Fitted | None:
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
    return load_gaussians(copy)


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
            workers=num_workers(),
            device=device,
            precision=precision,
        ),
        cluster=cluster,
    )


@contextmanager
def _made_anew_if_unusable(features: Path) -> Iterator[None]:
    """Leaves no features to the next attempt that it could not use either."""
    try:
        yield
    except FeatureStoreError:
        shutil.rmtree(features, ignore_errors=True)
        raise


def _watch(check: Check) -> Watch:
    """Lets `check` see every batch."""

    @contextmanager
    def watch(total: int, done: int, bad: int) -> Iterator[BatchProgress]:
        began, done_before = time.monotonic(), done
        progress = Progress(done, total, bad, rate=None)
        check(progress)

        def advance(images: int, bad_images: int) -> None:
            nonlocal progress
            done, bad = progress.done + images, progress.bad + bad_images
            # One batch is never done in no time, but a clock may be too coarse to tell.
            rate = (done - done_before) / max(time.monotonic() - began, 1e-3)
            progress = Progress(done, total, bad, rate)
            check(progress)

        yield advance

    return watch


def _score(
    job: Job, extracted: Extracted, fitted: Fitted | None, folder: Path, check: Check
) -> tuple[Scored, list[Path]]:
    """Scores against the Gaussians given, or against those of the features themselves.

    Returns:
        The scores and the files to publish.
    """
    store = extracted.store
    total = int(store.description["num_samples"])
    complete = Progress(total, total, len(extracted.bad_images), rate=None)
    check(complete)
    files = [folder / SCORES_FILE]
    if fitted is None:
        request = FitRequest(shrinkage=job.request["shrinkage"], runs=store.runs)
        fitted = fit_store(store, request), store.description
        files.append(folder / GAUSSIANS_FILE)
        save_gaussians(files[-1], *fitted)
        check(complete)
    gaussians, fitted_on = fitted
    scored = write_store_scores(store, files[0], gaussians, dict(fitted_on), job.request["scorers"])
    check(complete)
    return scored, files


def _result(job: Job, extracted: Extracted, scored: Scored, scores: Path) -> dict[str, Any]:
    with scores.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "prefix": attempt_prefix(job),
        "num_samples": int(extracted.store.description["num_samples"]),
        "num_scored": scored.num_scored,
        "num_bad_images": len(extracted.bad_images),
        "scores_bytes": scores.stat().st_size,
        "scores_sha256": digest,
        "warnings": list(scored.warnings),
        "class_names": list(extracted.store.class_names),
    }
