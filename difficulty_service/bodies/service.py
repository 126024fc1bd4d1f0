"""Bodies of the routes about the service itself, and of its problems."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Health(BaseModel):
    """The server is running."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"status": "ok"}]})

    status: Literal["ok"] = "ok"


class ServicePart(BaseModel):
    """Something that the service needs."""

    ready: bool
    detail: str = Field(description="Its condition, and what to do where it is not ready")


class Readiness(BaseModel):
    """Whether jobs can be accepted, kept and run."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "ready": False,
                    "missing": ["workers"],
                    "parts": {
                        "database": {"ready": True, "detail": "answers"},
                        "artifacts": {"ready": True, "detail": "can be read"},
                        "workers": {
                            "ready": False,
                            "detail": "no heartbeat in the last 60 s; run `difficulty worker`",
                        },
                        "space": {"ready": True, "detail": "at least 256 MiB are free"},
                    },
                }
            ]
        }
    )

    ready: bool
    missing: list[str] = Field(description="Names of the parts that are not ready")
    parts: dict[str, ServicePart] = Field(description="database, artifacts, workers, space")


class Usage(BaseModel):
    """What a key keeps in the service, and how much it may; sizes are in bytes."""

    upload_bytes: int = Field(description="Uploads; an open one with the size that was announced")
    result_bytes: int = Field(description="Results of finished jobs, with tables of columns")
    feature_bytes: int = Field(description="Features that are kept for later jobs")
    total_bytes: int
    max_bytes: int = Field(description="Above which nothing more is taken")
    open_uploads: int = Field(description="Number of uploads that are not complete")
    max_open_uploads: int


class BackbonePublic(BaseModel):
    """An encoder that turns images or texts into features."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "clip-vit-b16",
                    "description": "CLIP ViT-B/16 by OpenAI",
                    "feature_dim": 768,
                    "weights": "cached",
                    "default": True,
                    "modality": "image",
                    "size": 224,
                    "parameters": 85.8,
                    "gmacs": 17.6,
                    "licence": "mit",
                }
            ]
        }
    )

    name: str = Field(description="Name for jobs; capitals stand for a name in the library")
    description: str
    feature_dim: int | None = Field(description="Length of its features; null for a whole library")
    weights: str = Field(description="`in the package`, `cached`, `to download`, or `any`")
    default: bool = Field(description="Whether jobs that name no backbone use this one")
    modality: str = Field(description="What it encodes: `image` or `text`")
    size: int | None = Field(description="Side of its square image in pixels; null if not known")
    parameters: float | None = Field(description="Number of parameters in millions")
    gmacs: float | None = Field(description="Multiply-adds for one image, in billions")
    licence: str | None = Field(description="Licence of its weights, as the hub calls it")


class Backbones(BaseModel):
    """The backbones that jobs may use."""

    backbones: list[BackbonePublic]


class FolderEntry(BaseModel):
    """A root, folder, table, tar, zip, file of JSON or of boxes; `path` is that of a job, or null.

    It is null where a job cannot name it.
    """

    name: str
    path: str | None
    kind: str
    hint: str  # what a folder holds


class FolderPage(BaseModel):
    """The roots, or the folders, then the tables and archives in a folder of one, each by name."""

    root: str
    path: str
    hint: str
    start: int  # number of entries before this page
    more: int  # and after it
    entries: list[FolderEntry]


class ProblemSchema(BaseModel):
    """An error (RFC 9457)."""

    model_config = ConfigDict(
        title="Problem",
        json_schema_extra={
            "examples": [
                {
                    "type": "/problems/invalid-request",
                    "title": "A field of the request is wrong",
                    "status": 422,
                    "detail": "limit: Input should be greater than or equal to 1",
                    "remedy": "correct the fields named; /openapi.json has their schema",
                    "field": "limit",
                }
            ]
        },
    )

    type: str = Field(description="Stable name of the kind of problem")
    title: str
    status: int
    detail: str = Field(description="What is wrong, with the value")
    remedy: str = Field(description="What to do about it")
    field: str | None = Field(default=None, description="Field of the request that is at fault")
