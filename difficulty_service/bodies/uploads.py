"""Bodies of the routes of uploads."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

LARGEST = 1 << 62
UploadFormat = Literal["tar", "zip", "parquet"]


class UploadCreate(BaseModel):
    """A dataset to be uploaded as one file, which is never unpacked.

    A tar or zip holds a folder per class, or a tar the samples of a WebDataset; Parquet holds
    encoded images and labels.
    """

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"format": "zip", "size": 1048576}]}
    )

    format: UploadFormat
    size: Annotated[int, Field(ge=1, le=LARGEST)] | None = Field(
        default=None, description="Number of bytes, if known, with which the upload is complete"
    )


class UploadPublic(BaseModel):
    """An upload and the number of bytes received."""

    id: str
    format: str
    size: int | None
    received: int
    state: Literal["open", "complete"]
    sha256: str | None
    created_at: datetime
    links: dict[str, str]


class UploadList(BaseModel):
    """Uploads, newest first."""

    uploads: list[UploadPublic]
