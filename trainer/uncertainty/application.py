"""Applies a trained head to features of other samples, shard by shard.

The file of uncertainties has one row per sample, and says which head and features they are of.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from difficulty_service.base.errors import DatasetError, TrainingError
from difficulty_service.base.files import replacing, require_output_file
from difficulty_service.base.json_text import parse_json
from difficulty_service.base.tables import (
    UNREADABLE,
    open_parquet,
    parquet_writer,
    strings_to_arrow,
    to_arrow,
)
from difficulty_service.features.source import FeatureSource
from trainer.uncertainty.cached_features import CachedFeatures, open_source, read_shards
from trainer.uncertainty.head import TrainedHead
from trainer.uncertainty.retrieval import CHEAP_SAMPLES, Retrieval, evaluate_retrieval
from trainer.uncertainty.training import predict_uncertainties

SCHEMA_VERSION = 1
METADATA_KEY = b"uncertainty"

SCHEMA = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("label", pa.int32(), nullable=False),
        pa.field("uncertainty", pa.float32(), nullable=False),
    ]
)
"""Columns of the file; larger is more uncertain."""


@dataclass(frozen=True)
class UncertaintyFile:
    """The contents of a file of uncertainties."""

    table: pa.Table
    provenance: Mapping[str, Any]


def require_uncertainty_file_name(path: Path) -> None:
    """Raises TrainingError where `write_uncertainties` could not write to a path."""
    require_output_file(path, (".parquet",), TrainingError)


def write_uncertainties(
    path: Path, shards: Iterable[pa.Table], provenance: Mapping[str, Any]
) -> None:
    """Writes a file of uncertainties; it appears whole or not at all."""
    require_uncertainty_file_name(path)
    description = {"schema_version": SCHEMA_VERSION, **provenance}
    described = json.dumps(description, sort_keys=True, allow_nan=False)
    schema = SCHEMA.with_metadata({METADATA_KEY: described.encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, parquet_writer(temporary, schema) as write:
        for shard in shards:
            write(shard)


def read_uncertainties(path: Path) -> UncertaintyFile:
    """Reads a file that `write_uncertainties` wrote."""
    try:
        with open_parquet(path) as file:
            described = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
            description = None if described is None else parse_json(described)
            table = file.read(SCHEMA.names)
    except FileNotFoundError:
        raise TrainingError(f"there is no file {path}") from None
    except UNREADABLE as error:
        raise TrainingError(
            f"{path} is damaged: {error}", "make it again with `difficulty uncertainty`"
        ) from error
    if description is None or len(table.column_names) != len(SCHEMA):
        raise TrainingError(
            f"{path} is not a file of uncertainties", "make one with `difficulty uncertainty`"
        )
    return UncertaintyFile(table.replace_schema_metadata(None), description)


@dataclass(frozen=True)
class Application:
    """The result of applying a head."""

    num_samples: int
    retrieval: Retrieval | None
    warnings: tuple[str, ...]


@dataclass
class _Seen:
    """What is kept of the shards for a search for nearest neighbours."""

    limit: int
    num_samples: int = 0
    uncertainties: list[Tensor] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)
    labels: list[Tensor] = field(default_factory=list)

    def add(self, shard: CachedFeatures, uncertainties: Tensor) -> None:
        self.num_samples += len(shard.labels)
        if self.num_samples > self.limit:
            for kept in (self.uncertainties, self.features, self.labels):
                kept.clear()
            return
        self.uncertainties.append(uncertainties)
        self.features.append(shard.features[:, 0])
        self.labels.append(shard.labels)

    def retrieval(self) -> Retrieval | None:
        labels = torch.cat(self.labels) if self.labels else torch.empty(0)
        if len(labels.unique()) < 2:  # noqa: PLR2004 - neighbours of the same class say nothing
            return None
        return evaluate_retrieval(torch.cat(self.uncertainties), torch.cat(self.features), labels)


def apply_head(
    trained: TrainedHead,
    location: str,
    out: Path,
    *,
    device: torch.device,
    r_auroc: bool | None = None,
) -> Application:
    """Writes the uncertainty of every sample of a store or file, in the order of the features.

    The R-AUROC keeps all features in memory; None computes it for up to `CHEAP_SAMPLES` samples.
    """
    source = open_source(location)
    trained.require_same_features(source.description, location)
    limit = CHEAP_SAMPLES if r_auroc is None else (2**63 if r_auroc else 0)
    seen = _Seen(limit)
    trained.head.to(device)
    tables = _tables(trained, source, location, seen)
    first = next(tables, None)
    if first is None:
        raise DatasetError(f"{location!r} holds no features: none of its images could be read")
    provenance = {"head": dict(trained.description), **source.description.origin()}
    write_uncertainties(out, chain([first], tables), provenance)
    mixed = source.description.precision_warnings(trained.features, "the head")
    return Application(seen.num_samples, seen.retrieval(), (*source.warnings, *mixed))


def _tables(
    trained: TrainedHead, source: FeatureSource, location: str, seen: _Seen
) -> Iterator[pa.Table]:
    """The rows of each shard; `seen` sees each of them."""
    device = trained.head.mean.device
    for shard in read_shards(source, location):
        uncertainties = predict_uncertainties(trained.head, shard.features.to(device)).cpu()
        seen.add(shard, uncertainties)
        columns = [
            strings_to_arrow(shard.sample_ids),
            to_arrow(shard.labels.int().numpy()),
            to_arrow(uncertainties.numpy()),
        ]
        yield pa.table(columns, schema=SCHEMA)
