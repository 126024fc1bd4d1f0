"""Settings for operators, from environment variables that begin with `DIFFICULTY_`."""

import ipaddress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from difficulty_service.options import RunOptions

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=1024)]


def _check_network(text: str) -> str:
    ipaddress.ip_network(text)  # raises a ValueError that says what is wrong
    return text


Network = Annotated[str, AfterValidator(_check_network)]

MEBIBYTE = 1 << 20


class Settings(BaseSettings):
    """Settings that the server and its workers share.

    Attributes:
        roots: Folders or URIs that jobs may read, by their names in requests.
        data_dir: Folder for uploads and features, and for database and results unless these are
            set.
        database_url: URL in SQLAlchemy's form; None for a SQLite file in `data_dir`.
        artifacts: Folder or URI for results; None for a folder in `data_dir`.
        host: Address to listen on; without keys, a loopback address only.
        port: Port to listen on.
        allowed_hosts: Names by which browsers and others may address the service, `*.` for any
            subdomain; empty allows all, or without keys those of this machine alone.
        trusted_proxies: Addresses and networks of proxies, whose `X-Forwarded-For` names the
            client.
        max_connections: Maximum number of open connections; fewer where the limit of file
            descriptors is low.
        max_connections_per_address: Maximum number of those of one client, by its address or IPv6
            network; proxies may have any number.
        max_header_bytes: Maximum number of bytes of a request's address, headers and trailers.
        header_timeout: Seconds in which they must arrive.
        body_timeout: Seconds over which the rate of a body is averaged.
        answer_timeout: Seconds over which the rate is averaged at which a client takes an answer.
        min_rate: Minimum number of bytes per second of both.
        backbones: Backbones that jobs may use; empty allows all.
        default_backbone: Backbone of jobs that name none.
        device: Device of workers and of the encoder of single images.
        engine: Engine that runs the shards of a job.
        ray_address: Address of the Ray cluster; None for `RAY_ADDRESS`, or this machine alone.
        remote_images: Whether tables may refer to images by https URLs.
        max_body_bytes: Maximum number of bytes of a request that is not an upload.
        max_upload_bytes: Maximum number of bytes of an upload.
        max_images_per_request: Maximum number of images or texts in a request that scores single
            ones.
        max_vectors_per_request: Maximum number of feature vectors in a request.
        max_image_bytes: Maximum number of bytes of an image.
        max_pixels: Maximum number of pixels of an image.
        max_rows: Maximum number of rows of the tables of a job.
        max_text_bytes: Maximum number of bytes of labels and ids of a Parquet file in memory.
        max_classes: Maximum number of classes of a job.
        takes_jobs: Whether jobs may be submitted.
        max_queued_jobs: Maximum number of queued jobs of one key.
        max_pending_thumbnails: Maximum number of thumbnails of one key or address that are made or
            wait for it.
        max_pending_scorings: Maximum number of requests of one key or address that score single
            samples or wait for it.
        rate_limit: Maximum rate of requests of one key or address, in the notation of the package
            `limits`: `600/minute`, `10/second;10000/day`.
        lease: Seconds without a heartbeat after which another worker may claim a job.
        heartbeat: Seconds between heartbeats of a worker.
        poll: Seconds between polls of an idle worker for a job.
        max_attempts: Number of attempts before a job fails.
        retry_delay: Seconds before a failed attempt is retried, doubled each time.
        grace: Seconds that a worker has to finish its job once it is told to stop.
        listing_seconds: Seconds that listing the dataset of a job may take.
        upload_check_seconds: Seconds that the check of a complete upload may take.
        image_seconds: Seconds that reading and decoding one image may take.
        stage_seconds: Seconds that a job may go on without any progress in all other stages.
        keep_jobs: Seconds until finished jobs and their files are deleted.
        feature_cache_mb: Megabytes of features that are kept for later jobs of the same owner; 0
            to keep none.
        keep_uploads: Seconds until unused uploads are deleted.
        log_format: One JSON object or one readable line per event.
        log_level: Least severe level that is logged.
    """

    model_config = SettingsConfigDict(env_prefix="DIFFICULTY_", extra="ignore", frozen=True)

    roots: dict[str, str] = Field(default_factory=dict)
    data_dir: Path = Path("difficulty-data")
    database_url: SecretStr | None = None
    artifacts: str | None = None
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[Network, ...] = ()
    max_connections: Count = 512
    max_connections_per_address: Count = 128
    max_header_bytes: Size = 64 << 10
    header_timeout: Seconds = 10.0
    body_timeout: Seconds = 30.0
    answer_timeout: Seconds = 120.0
    min_rate: Annotated[float, Field(ge=0)] = 1024.0
    backbones: tuple[str, ...] = ()
    default_backbone: str = "clip-vit-b16"
    device: str = "auto"
    engine: Literal["local", "ray"] = "local"
    ray_address: str | None = None
    remote_images: bool = False
    max_body_bytes: Count = 8 * MEBIBYTE
    max_upload_bytes: Count = 64 << 30
    max_images_per_request: Count = 256
    max_vectors_per_request: Count = 10_000
    max_image_bytes: Count = 32 * MEBIBYTE
    max_pixels: Count = 50_000_000
    max_rows: Count = 5_000_000
    max_text_bytes: Count = 256 * MEBIBYTE
    max_classes: Count = 25_000
    takes_jobs: bool = True
    max_queued_jobs: Count = 100
    max_pending_thumbnails: Count = 128
    max_pending_scorings: Count = 16
    rate_limit: str = "600/minute"
    lease: Seconds = 60.0
    heartbeat: Seconds = 10.0
    poll: Seconds = 1.0
    max_attempts: Count = 3
    retry_delay: Annotated[float, Field(ge=0)] = 5.0
    grace: Seconds = 30.0
    listing_seconds: Seconds = 600.0
    upload_check_seconds: Seconds = 300.0
    image_seconds: Seconds = 30.0
    stage_seconds: Seconds = 3600.0
    keep_jobs: Seconds = 30 * 86400.0
    feature_cache_mb: Annotated[int, Field(ge=0)] = 2048
    keep_uploads: Seconds = 2 * 86400.0
    log_format: Literal["json", "text"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @cached_property
    def resolved_database_url(self) -> SecretStr:
        """URL of the database."""
        if self.database_url is not None:
            return self.database_url
        return SecretStr(f"sqlite:///{(self.data_dir / 'difficulty.sqlite').resolve()}")

    @property
    def machine(self) -> RunOptions:
        """What the operator chose of the options of a run."""
        return RunOptions(
            device=self.device,
            max_pixels=self.max_pixels,
            engine=self.engine,
            ray_address=self.ray_address,
        )

    @cached_property
    def artifact_root(self) -> str:
        """Folder or URI for results."""
        return self.artifacts or str((self.data_dir / "artifacts").resolve())

    @property
    def upload_dir(self) -> Path:
        """Folder for uploads."""
        return self.data_dir / "uploads"

    @property
    def feature_cache_dir(self) -> Path:
        """Folder for features of earlier jobs."""
        return self.data_dir / "feature-cache"

    @property
    def work_dir(self) -> Path:
        """Folder for the work of running jobs, such as features."""
        return self.data_dir / "work"
