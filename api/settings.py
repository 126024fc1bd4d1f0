"""Everything an operator may set, from environment variables that begin with `DIFFICULTY_`."""

from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]

MEBIBYTE = 1 << 20


class Settings(BaseSettings):
    """Settings of the server and of its workers; both read the same.

    Attributes:
        roots: Folders or URIs that jobs may read, by the name that requests use for them.
        data_dir: Folder for the database, uploads and features, where these have no place of
            their own.
        database_url: As SQLAlchemy takes it; None is a SQLite file in `data_dir`.
        artifacts: Folder or URI for results; None is a folder in `data_dir`.
        host: Address to listen on; only loopback as long as there is no key.
        port: Port to listen on.
        backbones: Names that jobs may ask for; empty allows all.
        default_backbone: Of jobs that name none.
        device: Of workers and of single images.
        engine: Who runs the shards of a job.
        ray_address: Of the cluster that the engine ray uses; None for `RAY_ADDRESS`, or this
            machine alone.
        remote_images: Whether tables may name https addresses of images.
        max_body_bytes: Of a request that is not an upload.
        max_upload_bytes: Of one upload.
        max_images_per_request: Of one call that scores single images.
        max_image_bytes: Of one image.
        max_pixels: Of one image.
        max_queued_jobs: Of one key, before more are refused.
        rate_limit: Maximum rate of requests of one key or address, in the notation of the package
            `limits`: `600/minute`, `10/second;10000/day`.
        lease: How long a worker may be silent before its job is given to another.
        heartbeat: How often a worker is heard of.
        poll: How often an idle worker looks for a job.
        max_attempts: After so many a job fails.
        retry_delay: Before a failed attempt is repeated, doubled each time.
        grace: How long a worker that is told to stop may go on with its job.
        keep_jobs: How long finished jobs and their files are kept.
        keep_uploads: How long uploads are kept after their last use.
        log_format: One JSON object or one readable line per event.
        log_level: Least severe kind of event that is logged.
    """

    model_config = SettingsConfigDict(env_prefix="DIFFICULTY_", extra="ignore", frozen=True)

    roots: dict[str, str] = Field(default_factory=dict)
    data_dir: Path = Path("difficulty-data")
    database_url: SecretStr | None = None
    artifacts: str | None = None
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    backbones: tuple[str, ...] = ()
    default_backbone: str = "clip-vit-b16"
    device: str = "auto"
    engine: Literal["local", "ray"] = "local"
    ray_address: str | None = None
    remote_images: bool = False
    max_body_bytes: Count = 8 * MEBIBYTE
    max_upload_bytes: Count = 64 << 30
    max_images_per_request: Count = 256
    max_image_bytes: Count = 32 * MEBIBYTE
    max_pixels: Count = 50_000_000
    max_queued_jobs: Count = 100
    rate_limit: str = "600/minute"
    lease: Seconds = 60.0
    heartbeat: Seconds = 10.0
    poll: Seconds = 1.0
    max_attempts: Count = 3
    retry_delay: Annotated[float, Field(ge=0)] = 5.0
    grace: Seconds = 30.0
    keep_jobs: Seconds = 30 * 86400.0
    keep_uploads: Seconds = 2 * 86400.0
    log_format: Literal["json", "text"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @cached_property
    def resolved_database_url(self) -> SecretStr:
        """Where the database is."""
        if self.database_url is not None:
            return self.database_url
        return SecretStr(f"sqlite:///{(self.data_dir / 'difficulty.sqlite').resolve()}")

    @cached_property
    def artifact_root(self) -> str:
        """Folder or URI for results."""
        return self.artifacts or str((self.data_dir / "artifacts").resolve())

    @property
    def upload_dir(self) -> Path:
        """Folder for uploads."""
        return self.data_dir / "uploads"

    @property
    def work_dir(self) -> Path:
        """Folder for what jobs have under way, features among them."""
        return self.data_dir / "work"
