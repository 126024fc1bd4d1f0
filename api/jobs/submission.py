"""Validation of a job when it is submitted, rather than when a worker claims it."""

from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from api.http.principals import Principal
from api.http.problems import conflict, forbidden, invalid
from api.jobs.backbones import is_offered, offered_backbones
from api.jobs.dataset import resolve_dataset, root_boundary
from api.jobs.store import Job, SubmitLimits, own_job
from api.settings import Settings
from api.storage.space import require_space
from api.uploads.quota import quota_of
from api.uploads.store import Upload, get_upload
from difficulty_service.backbones import DEFAULT_BACKBONE, find_loader, is_clip
from difficulty_service.backbones.text_encoders import (
    BUILTIN_TEXT,
    require_modality,
)
from difficulty_service.backbones.weights_files import PACKAGED_WEIGHTS
from difficulty_service.base.errors import BackboneError, DatasetError, as_keyword
from difficulty_service.bodies.jobs import JobCreate, JobDataset
from difficulty_service.datasets.file_search import expand_braces, parse_glob

WILDCARDS = frozenset("*?[")


def validate_submission(
    body: JobCreate, settings: Settings, engine: Engine, key: Principal
) -> dict[str, Any]:
    """Checks everything that can be checked before an image is read.

    Gives the request to store with the job, with defaults filled in but for the scorers: a job
    whose scorers nobody named may leave one out.
    """
    if not settings.takes_jobs:
        raise forbidden(
            "this server only shows finished jobs",
            "score with `difficulty score`, or submit the job to a service that takes jobs",
        )
    is_text = body.modality == "text"
    default = BUILTIN_TEXT if is_text else settings.default_backbone or DEFAULT_BACKBONE
    if body.needs_words and default in PACKAGED_WEIGHTS:
        default = DEFAULT_BACKBONE  # as for the command: no network of the package knows words
    backbone = body.backbone or default
    _check_backbone(backbone, body.modality, settings)
    if body.needs_words and not is_clip(backbone):
        what = "classes" if body.class_list else f"the scorer {body.scorer_of_words}"
        raise invalid(
            f"{backbone} cannot compare images with names of classes",
            f"name a CLIP, such as {DEFAULT_BACKBONE}, or leave out {what}",
            "backbone",
        )
    upload = _check_dataset(body.dataset, key.within(settings), engine, key.owner)
    if body.gaussians is not None:
        _check_gaussians(body.gaussians, backbone, own_job(engine, key, body.gaussians))
    unnamed = set() if body.names_scorers else {"scorers"}
    unnamed |= {"marks_of"} if body.marks is None or body.marks_of == "own" else set()
    return body.model_dump(mode="json", exclude=unnamed) | {
        "name": body.name or (upload and upload.name),
        "backbone": backbone,
        "dataset": body.dataset.as_request(),
    }


def submit_limits(engine: Engine, settings: Settings, owner: str) -> SubmitLimits:
    """The limits for the next job of a key.

    Raises:
        OSError: There is no space for one.
    """
    require_space(settings)
    quota = quota_of(engine, settings, owner)
    return SubmitLimits(settings.max_queued_jobs, settings.max_attempts, quota)


def _check_backbone(name: str, modality: str, settings: Settings) -> None:
    if not is_offered(name, settings):
        names = ", ".join(offered_backbones(settings))
        setting = "BACKBONES" if settings.backbones else "MORE_BACKBONES"
        raise invalid(
            f"backbone {name!r} is not offered here; these are: {names}",
            f"name one of them, or have the operator add it to DIFFICULTY_{setting}",
            "backbone",
        )
    try:
        require_modality(name, modality)
        find_loader(name)
    except BackboneError as error:
        raise invalid(error.problem, "see GET /v1/backbones", "backbone") from None


def _check_dataset(
    dataset: JobDataset, settings: Settings, engine: Engine, owner: str
) -> Upload | None:
    """The upload that the dataset is, if it is one."""
    if "upload" in dataset.model_fields_set:
        return _complete_upload(dataset.upload, engine, owner)
    location = resolve_dataset(settings, dataset.root, dataset.path)
    try:
        parse_glob(dataset.path)
        is_several = expand_braces(dataset.path) != [dataset.path]
    except DatasetError as error:
        remedy = error.remedy_text(as_keyword)
        raise invalid(error.problem, remedy, "dataset.path") from None
    boundary = root_boundary(settings, dataset.root)
    if not boundary.is_local or is_several or WILDCARDS & set(dataset.path):
        return None
    try:
        exists = Path(boundary.require(location, is_local=True)).exists()
    except (OSError, ValueError):  # outside of the root, or not a path
        exists = False
    if not exists:
        raise invalid(
            f"there is no {dataset.path!r} in the root {dataset.root!r}",
            "name a folder, a file or files with wildcards below the root",
            "dataset.path",
        )
    return None


def _complete_upload(upload_id: str, engine: Engine, owner: str) -> Upload:
    upload = get_upload(engine, owner, upload_id)
    if upload is None:
        raise invalid(
            f"there is no upload {upload_id!r}", "GET /v1/uploads lists all", "dataset.upload"
        )
    if upload.state != "complete":
        raise conflict(
            f"the upload {upload_id} is incomplete: {upload.received:,} bytes have arrived",
            "send the rest with PUT, then submit the job again",
            field="dataset.upload",
        )
    return upload


def _check_gaussians(job_id: str, backbone: str, source: Job | None) -> None:
    if source is None:
        raise invalid(f"there is no job {job_id!r}", "GET /v1/jobs lists all", "gaussians")
    if source.state != "succeeded" or not source.wanted.fits_gaussians:
        raise conflict(
            f"job {job_id} has no Gaussians: it is {source.state}, used those of another job, or "
            "judged tags",
            "name a job that succeeded with Gaussians of its own",
            field="gaussians",
        )
    fitted_on = source.wanted.backbone
    if fitted_on != backbone:
        raise invalid(
            f"job {job_id} used the backbone {fitted_on!r}, this one would use {backbone!r}",
            f"set backbone to {fitted_on!r}",
            "gaussians",
        )
