"""Bodies of the routes about the service itself."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Health(BaseModel):
    """The server answers."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"status": "ok"}]})

    status: Literal["ok"] = "ok"


class Part(BaseModel):
    """One thing that the service needs."""

    ready: bool
    detail: str = Field(description="What was found; what to do where it is not ready")


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
                            "detail": "none was heard of in the last 60 s; run `difficulty worker`",
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
    """A network that turns images into features."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "clip-vit-b16",
                    "description": "CLIP ViT-B/16 by OpenAI, 224 px",
                    "feature_dim": 768,
                    "weights": "cached",
                    "default": True,
                }
            ]
        }
    )

    name: str = Field(description="What a job names; capitals stand for a name of the library's")
    description: str
    feature_dim: int | None = Field(description="Numbers per image; null for a whole library")
    weights: str = Field(
        description="`in the package`, `cached`, `to download`, or `any` for a whole library"
    )
    default: bool = Field(description="Whether jobs that name none get this one")


class Backbones(BaseModel):
    """The networks that jobs may ask for."""

    backbones: list[BackbonePublic]
