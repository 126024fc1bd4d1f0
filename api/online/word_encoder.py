"""Puts words and the images of a job into the space that a CLIP gives both; in its own process."""

import json
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from api.bounded_cache import BoundedCache
from api.jobs import files
from api.jobs.store import Job
from api.settings import Settings
from api.storage.artifacts import Artifacts
from difficulty_service.backbones.backbone import BackboneOptions, choose_device
from difficulty_service.backbones.clip_space import load_projection
from difficulty_service.backbones.clip_text import ClipTextEncoder, load_text_encoder
from difficulty_service.backbones.downloads import Downloads
from difficulty_service.base.checksums import DamagedFile
from difficulty_service.base.errors import BackboneError, Setting
from difficulty_service.base.float32_products import full_float32
from difficulty_service.features.description import FeatureKind
from difficulty_service.reports.similar import ROWS_AT_ONCE, map_vectors, write_rows

MAX_ENCODERS = 2
MAX_PLACED = 64


@dataclass
class SharedEncoder:
    """A text tower that one thread at a time may use."""

    encoder: ClipTextEncoder
    lock: threading.Lock = field(default_factory=threading.Lock)


class WordEncoder:
    """Text towers that are loaded on first use, and features of jobs that lie beside words."""

    def __init__(self, settings: Settings, artifacts: Artifacts) -> None:
        self._settings = settings
        self._artifacts = artifacts
        self._device = choose_device(settings.sample_device)
        self._encoders: BoundedCache[tuple[str, str | None], SharedEncoder]
        self._encoders = BoundedCache(MAX_ENCODERS)
        self._placed: BoundedCache[str, Path] = BoundedCache(MAX_PLACED)

    def encode(self, job: Job, text: str, weights: str | None) -> tuple[NDArray[np.float32], Path]:
        """A text as a vector of unit length, and the file with such vectors of a job's images.

        The file is made when a job is first asked for. `weights` is the file of the CLIP that made
        the features; None for that of the hub.

        Raises:
            BackboneError: The CLIP cannot be loaded or is another one, or the text is too long.
            Problem: The files of the job are gone or damaged.
        """
        content = self._read_kind(job)
        kind = FeatureKind.of(json.loads(content))
        name = str(kind.backbone)
        downloads = Downloads(self._settings.max_download_bytes)
        options = BackboneOptions(weights, str(kind.features), self._device, downloads=downloads)
        shared = self._encoders.get(
            (name, weights), lambda: SharedEncoder(load_text_encoder(name, options))
        )
        require_same_weights(shared.encoder, kind, weights)
        with shared.lock:
            if shared.encoder.is_cut(text):
                raise BackboneError(f"the text is longer than what {name} reads", "use fewer words")
            vector: NDArray[np.float32] = shared.encoder.encode([text])[0].numpy()
        path = files.words_file(self._settings, job, content)
        with files.noticing_deletion(job):
            placed = self._placed.get(str(path), lambda: self._place(job, name, options, path))
        return vector, placed

    def _read_kind(self, job: Job) -> bytes:
        try:
            with self._artifacts.open(job.key(files.KIND_FILE)) as file:
                return bytes(file.read())
        except FileNotFoundError:
            raise files.files_gone(job) from None

    def _place(self, job: Job, name: str, options: BackboneOptions, path: Path) -> Path:
        """Writes the images' vectors, unless an earlier process has done so."""
        try:
            map_vectors(path)
        except (FileNotFoundError, DamagedFile):
            projection = load_projection(name, options)
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                features = self._open_features(job, Path(folder))
                width = len(_projected(projection, features[:1])[0])
                parts = _parts(projection, features)
                write_rows(path, parts, (len(features), width))
        return path

    def _open_features(self, job: Job, folder: Path) -> NDArray[np.float16]:
        name = files.FEATURES_FILE
        try:
            return map_vectors(self._artifacts.local_copy(job.key(name), folder / name))
        except FileNotFoundError:
            raise files.files_gone(job) from None
        except DamagedFile as error:
            raise files.damaged(job, name) from error


def require_same_weights(encoder: ClipTextEncoder, kind: FeatureKind, weights: str | None) -> None:
    """Refuses a text tower of other weights than those that made the features."""
    if encoder.weights_sha256 != kind.weights_sha256:
        place = "the hub" if weights is None else weights
        raise BackboneError(
            f"the weights of {kind.backbone} from {place} are not those that made the features",
            "score the dataset again, or give the file of those weights as ",
            Setting("weights"),
            parameter="weights",
        )


def _projected(projection: torch.nn.Module, features: NDArray[np.float16]) -> NDArray[np.float32]:
    """Vectors of unit length in the space shared with words. Shape (samples, dim)."""
    with torch.inference_mode(), full_float32():
        placed = projection(torch.from_numpy(features.astype(np.float32)))
        vectors: NDArray[np.float32] = F.normalize(placed, dim=1).numpy()
        return vectors


def _parts(
    projection: torch.nn.Module, features: NDArray[np.float16]
) -> Iterator[tuple[pa.Array, NDArray[np.float32]]]:
    for start in range(0, len(features), ROWS_AT_ONCE):
        some = features[start : start + ROWS_AT_ONCE]
        yield pa.nulls(len(some), pa.string()), _projected(projection, some)
