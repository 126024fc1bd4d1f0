"""Bodies of the routes about the service itself."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Health(BaseModel):
    """The server is running."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"status": "ok"}]})

    status: Literal["ok"] = "ok"


class Part(BaseModel):
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
                    },
                }
            ]
        }
    )

    ready: bool
    missing: list[str] = Field(description="Names of the parts that are not ready")
    parts: dict[str, Part] = Field(description="database, artifacts, workers")


class BackbonePublic(BaseModel):
    """An encoder that turns images or texts into features."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "clip-vit-b16",
                    "description": "CLIP ViT-B/16 by OpenAI, 224 px",
                    "feature_dim": 768,
                    "weights": "cached",
                    "default": True,
                    "modality": "image",
                }
            ]
        }
    )

    name: str = Field(description="Name for jobs; capitals stand for a name in the library")
    description: str
    feature_dim: int | None = Field(description="Length of its features; null for a whole library")
    weights: str = Field(
        description="`in the package`, `cached`, `to download`, or `any` for a whole library"
    )
    default: bool = Field(description="Whether jobs that name no backbone use this one")
    modality: str = Field(description="What it encodes: `image` or `text`")


class Backbones(BaseModel):
    """The backbones that jobs may use."""

    backbones: list[BackbonePublic]
