"""One attempt of a job: a dataset in, files out, which become visible once the job succeeds."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from sqlalchemy import Engine

from api.http.problems import Problem
from api.http.public_text import hide_paths, public_names
from api.jobs.dataset import find_dataset, open_job_dataset, open_job_tags
from api.jobs.failures import as_field_or_variable
from api.jobs.files import (
    COLUMNS_FILE,
    GAUSSIANS_FILE,
    SCORES_FILE,
    TAGS_FILE,
    attempt_prefix,
    open_stored,
    work_folder,
)
from api.jobs.marks import JobMarks
from api.jobs.page_files import write_page_files
from api.jobs.store import Job, get_job
from api.jobs.stored_result import StoredResult
from api.results.score_columns import write_columns
from api.settings import MEBIBYTE, Settings
from api.storage.artifacts import Artifacts, save
from api.worker.feature_cache import FeatureCache
from api.worker.job_messages import Stage
from api.worker.job_observer import Observer, Reporter
from api.worker.missing_regions import require_boxes, write_missing
from difficulty_service.backbones import Loader, load_backbone
from difficulty_service.base.analyses import ability
from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.base.files import file_sha256
from difficulty_service.base.tables import write_parquet
from difficulty_service.datasets.tags import TagTable
from difficulty_service.datasets.tags.decisions import class_names
from difficulty_service.features.errors_file import spelled, write_errors
from difficulty_service.features.source import FeatureSource
from difficulty_service.marks.review_folder import Review
from difficulty_service.scores.file import read_score_schema, read_scores
from difficulty_service.scores.samples import columns_to_read
from difficulty_service.scoring.fitted_gaussians import FittedGaussians
from difficulty_service.scoring.judged_tags import ScoredTags, TagReport
from difficulty_service.scoring.pipeline import (
    Callbacks,
    ExtractedDataset,
    ScoredDataset,
    ScoreRequest,
    make_plan,
    score_dataset,
)

FEATURES_FOLDER = "features"


def run_job(
    job: Job,
    settings: Settings,
    engine: Engine,
    artifacts: Artifacts,
    observer: Observer,
    load: Loader = load_backbone,
) -> StoredResult:
    """Extracts, fits and scores; resumes where an earlier attempt ended.

    Returns:
        The result of the job, for `queue.succeed`.

    Raises:
        Problem: The request cannot be met.
        DifficultyError: The dataset, the backbone or the statistics fail; the message may name
            paths of this server.
        OSError: Storage fails.
    """
    with work_folder(settings.work_dir, job.id, job.attempt) as folder:
        location = find_dataset(job.wanted.dataset, job.owner, settings, engine)
        reporter = Reporter(observer)
        plan = make_plan(
            replace(
                job.wanted.run,
                machine=settings.machine,
                source=location.name,
                features=folder / FEATURES_FOLDER,
            )
        ).reporting(reporter.download)
        gaussians = _fetch_gaussians(job, engine, artifacts, folder)
        applied = JobMarks(engine, job.id, job.attempt)
        review = Review(applied.read(), applied)
        before = _fetch_earlier(job, engine, artifacts, folder)
        scoring = ScoreRequest(
            folder / SCORES_FILE, job.wanted.run.scoring, gaussians, review, before
        )
        cache = FeatureCache(
            settings.feature_cache_dir, settings.feature_cache_mb * MEBIBYTE, job.owner
        )
        plan = replace(plan, lend=cache.lend, watch=observer.images)
        files = [scoring.out]
        used, scored_features = [scoring.fitted], list[FeatureSource]()

        def save_gaussians(fitted: FittedGaussians) -> None:
            used.append(fitted)
            files.append(folder / GAUSSIANS_FILE)
            fitted.save(files[-1])
            reporter.enter(Stage.SCORING)

        def keep_features(extracted: ExtractedDataset) -> None:
            scored_features.append(extracted.store)
            if extracted.reuse is None or extracted.reuse.num_new:
                cache.keep(extracted.store, job.id)
            reporter.enter(Stage.FITTING)

        callbacks = Callbacks(
            progress=reporter.update,
            extracted=keep_features,
            ready=scored_features.append,
            marked=scored_features.append,
            fitted=save_gaussians,
        )
        with _deleted_if_unusable(plan.out):
            observer.enter(Stage.LISTING)
            dataset = open_job_dataset(job.wanted, location, settings)
            require_boxes(job.wanted, dataset)
            execute = _score_or_judge(scoring, open_job_tags(job.wanted, location, settings))
            observer.enter(Stage.EXTRACTING)
            scored = execute(plan, callbacks=callbacks, dataset=dataset, load=load)
        if job.wanted.missing_boxes is not None:
            reporter.enter(Stage.SEARCHING)
            searching = Callbacks(progress=reporter.update)
            boxes = scored_features[-1]
            files.append(write_missing(job, boxes, dataset, plan, searching, load))
        reporter.enter(Stage.PUBLISHING)
        extracted = scored.extracted
        names = public_names(settings)
        errors = [
            replace(error, reason=hide_paths(spelled(error.reason, as_field_or_variable), names))
            for error in (*extracted.skipped, *extracted.bad_images)
        ]
        files.append(write_errors(extracted.store.folder, errors))
        files += _write_tables(scored, scoring.out, folder)
        if (fitted := used[-1]) is not None:
            num_rows = scored.found.num_samples
            files += write_page_files(scored_features[-1], fitted.gaussians, folder, num_rows)
        reporter.enter(Stage.PUBLISHING)
        for file in files:
            artifacts.put(file, f"{attempt_prefix(job)}/{file.name}")
        result = _result(job, scored, scored_features[-1], scoring.out, names)
        stored_bytes = sum(file.stat().st_size for file in files)
        return result.model_copy(update={"stored_bytes": stored_bytes})


def _score_or_judge(
    scoring: ScoreRequest, tags: TagTable | None
) -> Callable[..., ScoredDataset | ScoredTags]:
    """What makes the scores of a dataset, of its labels or of its tags."""
    if tags is None:
        return partial(score_dataset, scoring=scoring)
    return partial(ability("tags", "judge"), tags=tags, out=scoring.out)


def _write_tables(scored: ScoredDataset | ScoredTags, scores: Path, folder: Path) -> list[Path]:
    """Writes the columns of the scores that pages show, and the numbers of each tag."""
    columns = columns_to_read(read_score_schema(scores).names)
    files = [write_columns(folder / COLUMNS_FILE, read_scores(scores, columns))]
    if isinstance(scored.found, TagReport):
        files.append(folder / TAGS_FILE)
        write_parquet(files[-1], scored.found.tags)
    return files


def _fetch_gaussians(
    job: Job, engine: Engine, artifacts: Artifacts, folder: Path
) -> FittedGaussians | None:
    """The Gaussians of the job that this one names, if it names one.

    Raises:
        Problem: That job has no Gaussians.
    """
    source_id = job.wanted.gaussians
    if source_id is None:
        return None
    source = get_job(engine, job.owner, source_id)
    key = f"{source.result.prefix}/{GAUSSIANS_FILE}" if source and source.result else None
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
    save(artifacts.open(key), copy)
    return FittedGaussians.load(copy)


def _fetch_earlier(job: Job, engine: Engine, artifacts: Artifacts, folder: Path) -> Path | None:
    """The scores of the job whose marks this one applies; None without marks, or if it is gone."""
    source = None if job.wanted.marks is None else get_job(engine, job.owner, job.wanted.marks)
    if source is None or source.result is None:
        return None
    copy = folder / f"earlier-{SCORES_FILE}"
    with suppress(Problem, OSError):  # it may be deleted meanwhile
        save(open_stored(artifacts, source, SCORES_FILE), copy)
        return copy
    return None


@contextmanager
def _deleted_if_unusable(features: Path) -> Iterator[None]:
    """Deletes features that the next attempt could not use either."""
    try:
        yield
    except FeatureStoreError:
        shutil.rmtree(features, ignore_errors=True)
        raise


def _result(
    job: Job,
    scored: ScoredDataset | ScoredTags,
    features: FeatureSource,
    scores: Path,
    names: Mapping[str, str],
) -> StoredResult:
    found, extracted = scored.found, scored.extracted
    num_readable = extracted.num_samples - len(extracted.bad_images)
    warnings = [hide_paths(warning, names) for warning in found.warnings]
    if isinstance(found, TagReport):
        num_duplicates = 0
        classes = class_names(found.tags["tag"].to_pylist())
    else:
        num_duplicates = found.num_duplicates
        classes = features.class_names
        if found.round is not None:
            warnings.insert(0, f"{found.round}, by the marks of job {job.wanted.marks}")
    return StoredResult(
        prefix=attempt_prefix(job),
        num_samples=features.description.num_samples,
        num_scored=found.num_scored,
        num_doubtful=found.num_doubtful,
        num_duplicates=num_duplicates,
        num_bad_images=len(extracted.bad_images),
        num_skipped=len(extracted.skipped),
        num_reused=0 if extracted.reuse is None else num_readable - extracted.reuse.num_new,
        scores_bytes=scores.stat().st_size,
        scores_sha256=file_sha256(scores),
        warnings=tuple(warnings),
        class_names=classes,
    )
