"""Settings for operators, from environment variables that begin with `DIFFICULTY_`."""

import ipaddress
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from difficulty_service.base.wording import did_you_mean
from difficulty_service.settings.machine import RunOptions

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=1024)]


def _check_network(text: str) -> str:
    ipaddress.ip_network(text)  # raises a ValueError that says what is wrong
    return text


Network = Annotated[str, AfterValidator(_check_network)]

MEBIBYTE = 1 << 20

PREFIX = "DIFFICULTY_"

SQLITE_FILE = "difficulty.sqlite"
"""The database in the folder of a service, where no other is named."""

SECRETS = Path("/run/secrets")
"""Folder where containers have secrets as files: `difficulty_database_url` has that setting."""

OTHERS = ("DIFFICULTY_KEY", "DIFFICULTY_SHARED")
"""Variables with the prefix that the client, and tests and benchmarks read."""


class Settings(BaseSettings):
    """Settings that the server and its workers share.

    `python docs/settings.py` makes the table in docs/api.md from these sentences.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    roots: dict[str, str] = Field(default_factory=dict)
    """Folders or URIs that jobs may read, by name."""
    data_dir: Path = Path("difficulty-data")
    """Folder for database, uploads, results and features."""
    database_url: SecretStr | None = None
    """SQLAlchemy URL, such as `postgresql+psycopg://…` (extra `postgresql`); none for SQLite in
    `DATA_DIR`."""
    artifacts: str | None = None
    """Folder or URI for results; none for a folder in `DATA_DIR`."""
    host: str = "127.0.0.1"
    """Address to listen on; without API keys, loopback only."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on."""
    allowed_hosts: tuple[str, ...] = ()
    """Names of the service, such as `["scores.example.org"]` or `["*.example.org"]`; none allows
    all, or without API keys only this machine's."""
    trusted_proxies: tuple[Network, ...] = ()
    """Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` count, such as `["172.18.0.0/16"]`.
    """
    max_connections: Count = 512
    """Requests at once, and open connections with 16 more; fewer where file descriptors are few."""
    max_connections_per_address: Count = 128
    """The same of one address or IPv6 /64; not of trusted proxies."""
    max_header_bytes: Size = 16 << 10
    """Size of address, headers (32 bytes more each) and trailers."""
    header_timeout: Seconds = 10.0
    """Seconds for the first address and headers to arrive; 30 s after an answer."""
    body_timeout: Seconds = 30.0
    """Seconds that a body may fall behind its rate."""
    answer_timeout: Seconds = 120.0
    """Seconds that the taking of an answer may fall behind its rate, or stand still."""
    min_rate: Annotated[float, Field(ge=0)] = 1024.0
    """Bytes per second at which clients must send bodies and take answers; 0 for any."""
    backbones: tuple[str, ...] = ()
    """Backbones that jobs may use; none for all that have a name of their own."""
    more_backbones: tuple[str, ...] = ()
    """Further ones, of the libraries, such as `["timm:resnet18.a1_in1k"]`: their weights are
    downloaded and run."""
    max_download_bytes: Size = 8 << 30
    """Size of the weights of a backbone that are downloaded."""
    default_backbone: str | None = None
    """Backbone of jobs of images that name none; none for `clip-vit-b16`, or `builtin-photos` where
    its weights are not cached and cannot be downloaded when the service starts."""
    device: str = "auto"
    """Device of workers and for single samples; `all` GPUs share the shards of a job."""
    engine: Literal["local", "ray"] = "local"
    """`local` or `ray`."""
    ray_address: str | None = None
    """Ray cluster; none for Ray's own `RAY_ADDRESS`, or this machine."""
    remote_images: bool = False
    """Whether tables may name images at https addresses."""
    max_body_bytes: Count = 8 * MEBIBYTE
    """Size of a request that is no upload."""
    max_upload_bytes: Count = 64 << 30
    """Size of an upload."""
    max_stored_bytes: Size = 256 << 30
    """Uploads, results and kept features of a key together."""
    max_open_uploads: Count = 100
    """Uploads of a key that are not complete."""
    max_table_bytes: Count = 256 * MEBIBYTE
    """Size of a table with columns beside the scores of a job."""
    max_images_per_request: Count = 256
    """Images or texts that are scored at once."""
    max_vectors_per_request: Count = 10_000
    """Feature vectors in a request."""
    max_image_bytes: Count = 32 * MEBIBYTE
    """Size of an encoded image."""
    max_pixels: Count = 50_000_000
    """Pixels of an image."""
    max_rows: Count = 5_000_000
    """Rows of the tables of a job, or of a table beside its scores."""
    max_text_bytes: Count = 256 * MEBIBYTE
    """Labels, ids and columns beside the scores of a file in memory."""
    max_classes: Count = 25_000
    """Classes of a job; of integer labels, the largest counts."""
    takes_jobs: bool = True
    """Whether jobs may be submitted, or only finished ones shown."""
    max_queued_jobs: Count = 100
    """Queued jobs of a key."""
    max_pending_thumbnails: Count = 128
    """Thumbnails of a key or address in progress or waiting."""
    max_pending_scorings: Count = 16
    """Scoring requests of a key or address in progress or waiting."""
    max_event_streams: Count = 20
    """Event streams of a key at once; of all keys together ten times as many."""
    rate_limit: str = "600/minute"
    """Requests of a key or address; several limits with `;` between."""
    lease: Seconds = 60.0
    """Seconds without a heartbeat until another worker takes a job."""
    heartbeat: Seconds = 10.0
    """Seconds between heartbeats of a worker."""
    poll: Seconds = 1.0
    """Seconds between polls of an idle worker."""
    max_attempts: Count = 3
    """Attempts before a job fails."""
    retry_delay: Annotated[float, Field(ge=0)] = 5.0
    """Seconds before the second attempt, doubled for each further one."""
    grace: Seconds = 30.0
    """Seconds that a worker takes to stop, at most."""
    listing_seconds: Seconds = 600.0
    """Seconds for listing a dataset."""
    filter_seconds: Seconds = 10.0
    """Seconds for finding the samples of a list with conditions on texts, columns or an area."""
    upload_check_seconds: Seconds = 300.0
    """Seconds for checking a complete upload."""
    image_seconds: Seconds = 30.0
    """Seconds for reading an image, and 1 more for each augmented run; not on Ray."""
    stage_seconds: Seconds = 3600.0
    """Seconds without progress in any other stage."""
    job_seconds: Seconds | None = None
    """Seconds of work on a job, in all its attempts together; none for any."""
    min_free_bytes: Annotated[int, Field(ge=0)] = 256 * MEBIBYTE
    """Free space that uploads and new jobs leave on each disk of the service; deletions need some.
    """
    keep_jobs: Seconds = 30 * 86400.0
    """Seconds until finished jobs and unused features are deleted."""
    feature_cache_mb: Annotated[int, Field(ge=0)] = 2048
    """Megabytes of features kept for later jobs of the same key; 0 for none."""
    keep_uploads: Seconds = 2 * 86400.0
    """Seconds until unused uploads are deleted."""
    contact: Annotated[str, Field(max_length=200)] | None = None
    """Whom people ask for a key, such as an e-mail address; the page to sign in names it."""
    log_format: Literal["auto", "json", "text"] = "auto"
    """`json`, `text`, or `auto`: text on a terminal, otherwise JSON."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """`debug`, `info`, `warning` or `error`."""
    audit_log: Path | None = None
    """Local file for a line of JSON about each change, of which rotation may move the old one away;
    none for lines of the log."""

    @cached_property
    def resolved_database_url(self) -> SecretStr:
        """URL of the database."""
        if self.database_url is not None:
            return self.database_url
        return SecretStr(f"sqlite:///{(self.data_dir / SQLITE_FILE).resolve()}")

    @property
    def machine(self) -> RunOptions:
        """What the operator chose of the options of a run."""
        return RunOptions(
            device=self.device,
            max_pixels=self.max_pixels,
            max_download_bytes=self.max_download_bytes,
            engine=self.engine,
            ray_address=self.ray_address,
        )

    @property
    def sample_device(self) -> str:
        """Device for what is encoded one at a time: the first one of `all`."""
        return "cuda" if self.device == "all" else self.device

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


def unknown_variables(names: Iterable[str]) -> Iterator[str]:
    """A sentence about each environment variable that looks like a setting and is none."""
    known = [f"{PREFIX}{name.upper()}" for name in Settings.model_fields]
    for name in sorted(names):
        if name.upper().startswith(PREFIX) and name.upper() not in (*known, *OTHERS):
            yield f"the variable {name} is no setting; {did_you_mean(name.upper(), known)}".rstrip(
                "; "
            )
