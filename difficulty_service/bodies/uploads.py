"""Bodies of the routes of uploads."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

LARGEST = 1 << 62
LONGEST_NAME = 200
NAME_PATTERN = r"^[^\x00-\x1f\x7f]+$"
"""One line or less, which every database stores."""

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
    name: Annotated[str, Field(max_length=LONGEST_NAME, pattern=NAME_PATTERN)] | None = Field(
        default=None, description="Name of the file, which is that of jobs without another one"
    )


class UploadPublic(BaseModel):
    """An upload and the number of bytes received."""

    id: str
    name: str | None = None
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
