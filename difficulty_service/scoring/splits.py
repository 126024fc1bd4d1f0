"""The samples of a training or a test set, as features or a score file have them."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import (
    FeatureStoreError,
    NoScores,
    Setting,
    StatisticsError,
)
from difficulty_service.base.tables import bytes_of, to_numpy
from difficulty_service.base.wording import Noun, count_of, is_or_are
from difficulty_service.datasets.sample import has_labels
from difficulty_service.features.array_files import is_array_file, open_features
from difficulty_service.features.arrays import ArrayFeatures
from difficulty_service.features.description import FeatureDescription, is_store
from difficulty_service.features.source import FeatureSource
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample, to_table
from difficulty_service.scores.file import read_scores
from difficulty_service.scoring.duplicates import hash_rows

ROWS_AT_ONCE = 1 << 11
"""Rows of features that are read at a time."""

HELD_BYTES = 1 << 31
"""Features that `Split.vectors` holds in memory; more of them wait in a temporary file."""

NO_LABEL, LEFT_OUT = -1, -2
"""In place of the place of a class: a sample without a label, and one that does not count."""

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Some samples of a split.

    Attributes:
        positions: Positions among the samples of the features, ascending. Shape (samples,).
        labels: Place of each class in `Split.names`, or NO_LABEL. Shape (samples,).
        features: Of unit length, float32; a row of zeros stays one. Shape (samples, dim).
        lengths: What the features were divided by, float32. Shape (samples,).
        is_known: Whether a row is not all zeros, as that of a text without known words. Shape
            (samples,).
        hashes: `hash_rows` of the features as they are. Shape (samples,).
        contents: Digest of what each sample was read from; None where that is not known. Shape
            (samples, bytes), uint8.
    """

    positions: Rows
    labels: Rows
    features: Tensor
    lengths: Tensor
    is_known: NDArray[np.bool_]
    hashes: NDArray[np.int64]
    contents: NDArray[np.uint8] | None

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True)
class Split:
    """The samples of a training or a test set.

    Attributes:
        name: What the user calls it.
        given: Columns `sample_id` and `label_name` of a score file, whose samples and labels count;
            None for those of the features.
        ignores_labels: Whether the labels say nothing that another set could say otherwise.
    """

    name: str
    source: FeatureSource
    given: pa.Table | None = None
    ignores_labels: bool = False

    @cached_property
    def sample_ids(self) -> pa.StringArray:
        """Id of each sample of the features, whether it counts or not."""
        ids = [
            self.source.open_shard(shard, ["sample_id"]).sample_ids[:: self.source.runs]
            for shard in range(self.source.num_shards)
        ]
        return pa.chunked_array(ids, pa.string()).combine_chunks()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the classes."""
        if self.given is None:
            return self.source.class_names
        return tuple(pc.unique(self.given["label_name"].cast(pa.string())).to_pylist())

    @property
    def has_labels(self) -> bool:
        """Whether the samples have labels to compare with those of another set."""
        return has_labels(self.names) and not self.ignores_labels

    @cached_property
    def labels(self) -> Rows:
        """Place of the class of each sample of the features in `names`, NO_LABEL or LEFT_OUT."""
        if self.given is None:
            labels = _labels_of(self.source)
        else:
            rows = pc.index_in(self.sample_ids, value_set=self.given["sample_id"].combine_chunks())
            texts = self.given["label_name"].cast(pa.string()).combine_chunks()
            places = pc.index_in(texts, value_set=pa.array(self.names)).cast(pa.int64())
            labels = to_numpy(places.take(rows).fill_null(LEFT_OUT)).copy()
        if not self.has_labels:
            labels[labels != LEFT_OUT] = NO_LABEL
        return labels

    @property
    def num_samples(self) -> int:
        """Number of samples that count."""
        return int((self.labels != LEFT_OUT).sum())

    @property
    def dim(self) -> int | None:
        """Length of a feature vector; None without any sample."""
        for shard in range(self.source.num_shards):
            if len(rows := self.source.open_shard(shard, [], slice(0, 1)).features()):
                return rows.shape[1]
        return None

    @property
    def noun(self) -> Noun:
        """What a sample is in a word."""
        return self.source.description.noun

    def warnings(self) -> Sequence[str]:
        """What to know of the samples, one sentence each."""
        left_out = len(self.labels) - self.num_samples
        warnings = []
        if isinstance(self.source, ArrayFeatures):  # of a store, `extract` has told
            warnings += [f"{self.name}: {warning}" for warning in self.source.warnings]
        if left_out:
            samples = f"{count_of(left_out, self.noun)} of {self.name} {is_or_are(left_out)}"
            warnings.append(f"{samples} left out, which have features but no scores")
        if self.given is not None and (lost := len(self.given) - self.num_samples):
            samples = f"{count_of(lost, self.noun)} of {self.name} {is_or_are(lost)}"
            warnings.append(f"{samples} left out, which have scores but no features")
        if self.ignores_labels:
            warnings.append(
                f"the labels of {self.name} are clusters, which are not compared with other labels"
            )
        return warnings

    def blocks(self) -> Iterator[Block]:
        """All samples that count, some at a time.

        Raises:
            StatisticsError: A feature is not finite.
        """
        source, start, first, before = self.source, 0, 0, 0
        for shard, rows in source.slices(ROWS_AT_ONCE):
            first, before = (first, shard) if shard == before else (0, shard)
            opened = source.open_shard(shard, [], rows)
            size = len(opened.labels) // source.runs
            if not size:
                continue
            contents = source.contents(shard)
            if contents is not None:
                contents = contents.slice(first, size)
            block = self._block(start, opened.features(), contents)
            if len(block):
                yield block
            start, first = start + size, first + size

    def _block(self, start: int, rows: Tensor, contents: pa.FixedSizeBinaryArray | None) -> Block:
        features = rows.float()
        if self.source.runs > 1:
            features = features.view(-1, self.source.runs, rows.shape[1]).mean(dim=1)
        labels = self.labels[start : start + len(features)]
        chosen = np.flatnonzero(labels != LEFT_OUT)
        features = features if len(chosen) == len(features) else features[torch.from_numpy(chosen)]
        lengths = torch.linalg.vector_norm(features, dim=1, dtype=torch.float64)
        if not torch.isfinite(lengths).all():
            bad = int((~torch.isfinite(features)).any(dim=1).nonzero()[0])
            raise StatisticsError(
                f"the features of {self.sample_ids[start + chosen[bad]]} in {self.name} hold NaN "
                "or infinity",
                "extract the features again, with ",
                Setting("precision", "fp32"),
                " if it was bf16",
            )
        is_known = lengths > 0
        lengths = lengths.masked_fill(~is_known, 1).float()
        return Block(
            positions=start + chosen,
            labels=labels[chosen],
            features=features / lengths[:, None],
            lengths=lengths,
            is_known=is_known.numpy(),
            hashes=hash_rows(features).numpy(),
            contents=None if contents is None else bytes_of(contents)[chosen],
        )

    def vectors(self, *, unit: bool) -> Tensor:
        """Features of all samples that count, float32. Shape (samples, dim).

        More than HELD_BYTES are in a file without a name, mapped into memory.

        Args:
            unit: Whether they are of unit length, or as they are.

        Raises:
            StatisticsError: A feature is not finite.
        """
        shape = (self.num_samples, self.dim or 0)
        if 4 * shape[0] * shape[1] <= HELD_BYTES:
            vectors = torch.empty(shape)
        else:
            with tempfile.TemporaryFile() as file:
                file.truncate(4 * shape[0] * shape[1])
                vectors = torch.from_numpy(np.memmap(file, np.float32, "r+", shape=shape))
        start = 0
        for block in self.blocks():
            rows = block.features if unit else block.features * block.lengths[:, None]
            vectors[start : start + len(block)] = rows
            start += len(block)
        return vectors

    def samples_at(self, positions: Rows) -> pa.Table:
        """Columns `sample_id`, `label` (text, or null) and `content` of some samples, ascending."""
        ids = self.sample_ids.take(pa.array(positions, pa.int64()))
        labels = self.labels[positions]
        known = pa.array(np.where(labels < 0, 0, labels), pa.int64(), mask=labels < 0)
        contents: list[bytes | None] = []
        start = 0
        for shard in range(self.source.num_shards):
            size = len(self.source.open_shard(shard, []).labels) // self.source.runs
            rows = positions[slice(*np.searchsorted(positions, (start, start + size)))] - start
            column = self.source.contents(shard) if len(rows) else None
            contents += [None] * len(rows) if column is None else column.take(rows).to_pylist()
            start += size
        columns = {
            "sample_id": ids,
            "label": pa.array(self.names, pa.string()).take(known),
            "content": pa.array(contents, pa.binary()),
        }
        return pa.table(columns)

    def marks_to_drop(self, positions: Rows) -> pa.Table:
        """Marks that drop some samples, ascending; `difficulty clean` and `ds.score` take them."""
        columns = self.samples_at(positions).to_pydict().values()
        return to_table(
            MarkedSample(sample_id, Mark.DROP, given_label=label, content=content and content.hex())
            for sample_id, label, content in zip(*columns, strict=True)
        )


def _labels_of(source: FeatureSource) -> Rows:
    labels = [
        source.open_shard(shard, []).labels[:: source.runs].long()
        for shard in range(source.num_shards)
    ]
    everyone: Rows = torch.cat(labels).numpy() if labels else np.empty(0, np.int64)
    return everyone


def open_split(path: Path, like: Split | None = None) -> Split:
    """The split of a folder or file of features, or of a score file with its features beside it.

    Args:
        like: Split whose backbone an error names, so that the features go together; None for none.

    Raises:
        FeatureStoreError: It is neither; or the features are incomplete, damaged or not there.
        ScoreFileError: The score file is damaged, or lacks a column.
    """
    if is_store(path) or is_array_file(path):
        return Split(str(path), open_features(path))
    if path.is_dir() or not path.exists():
        raise _no_features(path, f"{path} holds no features", like)
    try:
        scores = read_scores(path, ["sample_id", "label_name"])
    except NoScores as error:
        raise _no_features(path, error.problem, like) from error
    folder = path.with_suffix(".features")
    if not is_store(folder):
        raise _no_features(path, f"{path} has no features beside it, in {folder}", like)
    return Split(
        str(path),
        open_features(folder),
        scores.table,
        ignores_labels=scores.provenance.has_clusters,
    )


def _no_features(path: Path, problem: str, like: Split | None) -> FeatureStoreError:
    known = None if like is None else like.source.description.backbone
    chosen = "" if known is None else f" --backbone {known}"
    dataset = path if path.is_dir() else "DATASET"
    return FeatureStoreError(
        problem,
        f"make them with `difficulty extract {dataset}{chosen} --out "
        f"{path.with_suffix('.features')}`, with the same backbone for both sets, and name that "
        "folder",
    )


def require_same_kind(train: Split, test: Split) -> None:
    """Raises FeatureStoreError where the features of two sets cannot be compared."""
    one, other = train.source.description, test.source.description
    names = (f"in {train.name}", f"in {test.name}")
    compare = one.known_differences if is_unknown(one, other) else one.kind_differences
    different = compare(other, names)
    lengths = (train.dim, test.dim)
    if not different and None not in lengths and lengths[0] != lengths[1]:
        different = [f"{lengths[0]} numbers {names[0]}, {lengths[1]} {names[1]}"]
    if different:
        raise FeatureStoreError(
            f"{train.name} and {test.name} have different features ({'; '.join(different)}), and "
            "so cannot be compared",
            "extract both with the same backbone and preparation",
        )


def is_unknown(one: FeatureDescription, other: FeatureDescription) -> bool:
    """Whether nobody knows what made one of two sets of features."""
    return None in (one.backbone, other.backbone)
