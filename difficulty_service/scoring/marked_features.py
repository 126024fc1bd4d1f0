"""Features with the labels that people decided on, and without the samples that they dropped.

A mark belongs to the sample of its id, as long as that has the content that was looked at, and else
to samples with that content: files are moved and renamed.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from difficulty_service.base.contract import given as known_fields
from difficulty_service.base.device_copies import send
from difficulty_service.base.errors import CleaningError
from difficulty_service.base.files import CONTENT_BYTES
from difficulty_service.base.tables import to_arrow
from difficulty_service.base.wording import count_of, did_you_mean, is_or_are, list_names
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.shard import OpenShard
from difficulty_service.features.source import FeatureSource
from difficulty_service.marks.mark_kinds import Mark, kinds_for
from difficulty_service.marks.record import (
    MARK_COLUMN,
    RANDOM,
    UNSEEN,
    MarkedSample,
    MarkHistory,
    refuse_marks_of_boxes,
)
from difficulty_service.scores.provenance import RandomCheck


class ChangedFeatures:
    """A feature source with other labels for its samples, of which some may be left out.

    Args:
        labels: Class index of each sample of the source. Shape (samples,).
        kept: Which of them are kept; None for all. Shape (samples,).
    """

    def __init__(self, source: FeatureSource, labels: Tensor, kept: Tensor | None = None) -> None:
        self._source, self._labels = source, labels
        self._kept = None if kept is None or bool(kept.all()) else kept
        self.description: FeatureDescription = source.description
        self.warnings: tuple[str, ...] = source.warnings
        self.class_names: tuple[str, ...] = source.class_names
        self.runs, self.num_shards, self.shard_rows = (
            source.runs,
            source.num_shards,
            source.shard_rows,
        )
        self.slices = source.slices
        lengths = [len(source.open_shard(shard, []).labels) for shard in range(source.num_shards)]
        self._starts = list(accumulate(lengths, initial=0))

    @property
    def device(self) -> torch.device:
        """Device on which the features are read."""
        return self._source.device

    def open_shard(
        self, shard: int, columns: Sequence[str] = ("sample_id", "run"), rows: slice | None = None
    ) -> OpenShard:
        """A shard, or some rows of it, with the other labels and without what is left out."""
        opened = self._source.open_shard(shard, columns, rows)
        first, end = self._starts[shard : shard + 2]
        start, stop, _ = (rows or slice(None)).indices(end - first)
        samples = torch.arange(first + start, first + max(start, stop)) // self.runs
        opened = replace(opened, labels=self._labels[samples])
        if self._kept is None or bool(self._kept[samples].all()):
            return opened
        chosen = self._kept[samples].nonzero().flatten()

        def read_chosen(rows: slice) -> Tensor:
            wanted = chosen[rows]
            if not len(wanted):
                return opened.read_features(slice(0, 0))
            span = slice(int(wanted[0]), int(wanted[-1]) + 1)
            return opened.read_features(span)[send(wanted - span.start, self.device)]

        return OpenShard(
            sample_ids=opened.sample_ids.take(to_arrow(chosen.numpy()))
            if len(opened.sample_ids)
            else opened.sample_ids,
            labels=opened.labels[chosen],
            runs=opened.runs[chosen] if len(opened.runs) else opened.runs,
            read_features=read_chosen,
        )

    def contents(self, shard: int) -> pa.FixedSizeBinaryArray | None:
        """Digest of what each sample of a shard was read from; see `FeatureSource`."""
        return self._of_kept(shard, self._source.contents(shard))

    def appearance(self, shard: int) -> pa.StructArray | None:
        """How the image of each sample of a shard looks; see `FeatureSource`."""
        return self._of_kept(shard, self._source.appearance(shard))

    def _of_kept(self, shard: int, column: pa.Array | None) -> pa.Array | None:
        """The values of the samples of a shard that are not left out."""
        if column is None or self._kept is None:
            return column
        first, end = (row // self.runs for row in self._starts[shard : shard + 2])
        return column.filter(pa.array(self._kept[first:end].numpy()))


@dataclass(frozen=True)
class AppliedMarks:
    """What came of the marks of a dataset.

    Attributes:
        remembered: Every mark, by the id that its sample has now, with what it was applied to.
        verified: Mark of each sample that is left; null where nobody decided. Shape (samples,).
        given: Class index that each of them had before, as far as it is known; -1 where nobody
            decided, and where the box is misplaced: that sample is fitted like any other. Shape
            (samples,).
        counts: Number of samples with each mark, those that were dropped included.
        round: Number of the round of scores that comes after the marks.
        check: What the latest samples say that were looked at in a random order; None without any.
        dropped_unseen: Number of samples that were dropped by a condition.
    """

    remembered: Mapping[str, MarkedSample]
    verified: pa.DictionaryArray
    given: Tensor
    counts: Mapping[str, int]
    round: int
    check: RandomCheck | None = None
    dropped_unseen: int = 0

    def describe(self) -> Mapping[str, Any]:
        """What a score file says of the marks."""
        return known_fields(marks=self.counts, round=self.round, random_check=self.check)


class MarkedFeatures(ChangedFeatures):
    """Features as the marks of people have them; made by `apply_marks`.

    Attributes:
        applied: What came of the marks.
        unmarked: Description of the features without the marks.
    """

    def __init__(self, source: FeatureSource, labels: Tensor, draft: "_AppliedDraft") -> None:
        names, kept = list(source.class_names), torch.ones(len(labels), dtype=torch.bool)
        indices = {name: index for index, name in enumerate(names)}
        labels, codes = labels.clone(), np.full(len(labels), -1, np.int8)
        given = torch.full_like(labels, -1)
        for sample, marked in draft.decided.values():
            # A misplaced box shows something else, from which no class is learned.
            if marked.mark is not Mark.MISPLACED:
                before = indices.get(marked.given_label or "", int(labels[sample.position]))
                given[sample.position] = before
            codes[sample.position] = tuple(Mark).index(marked.mark)
            kept[sample.position] = marked.mark is not Mark.DROP
            if marked.label is not None:
                if marked.label not in indices:
                    indices[marked.label] = len(names)
                    names.append(marked.label)
                labels[sample.position] = indices[marked.label]
        if not kept.any():
            raise CleaningError("the marks drop every sample", "keep some", parameter="marks")
        super().__init__(source, labels, kept)
        counts = Counter(marked.mark for _, marked in draft.decided.values())
        left = codes[kept.numpy()]
        verified = pa.DictionaryArray.from_arrays(
            pa.array(left, mask=left < 0), pa.array([mark.value for mark in Mark])
        )
        by_name = {mark.value: counts[mark] for mark in kinds_for(boxes=source.description.boxes)}
        marks = [marked for _, marked in draft.decided.values()]
        self.applied = AppliedMarks(
            remembered=draft.remembered,
            verified=verified,
            given=given[kept],
            counts=by_name,
            round=1 + max((each.number for each in marks), default=0),
            check=_random_check(marks, len(labels)),
            dropped_unseen=sum(each.mark is Mark.DROP and each.order == UNSEEN for each in marks),
        )
        self.warnings = (*source.warnings, *draft.warnings(source.class_names))
        self.class_names = tuple(names)
        self.unmarked = known = source.description
        self.description = known.model_copy(
            update={
                "class_names": self.class_names,
                "num_samples": known.num_samples - counts[Mark.DROP],
                "fingerprint": draft.fingerprint(known.fingerprint),
            }
        )


def _random_check(marks: Sequence[MarkedSample], num_samples: int) -> RandomCheck | None:
    """What the latest round in a random order says, if there is one.

    Who marks several samples at once, or in another order, does not tell about the others.
    """
    latest = max((each.number for each in marks if each.order == RANDOM), default=None)
    if latest is None:
        return None
    looked_at = [each for each in marks if each.order == RANDOM and each.number == latest]
    others = [each for each in marks if each.order != RANDOM or each.number != latest]
    since = [each for each in others if each.number >= latest]
    beside = [each for each in since if each.number == latest]
    return RandomCheck(
        checked=len(looked_at),
        wrong=sum(each.mark.kind.is_wrong for each in looked_at),
        among=num_samples - (len(others) - len(since)),
        since=sum(each.mark.kind.is_wrong for each in since),
        beside=len(beside),
        wrong_beside=sum(each.mark.kind.is_wrong for each in beside),
    )


def apply_marks(source: FeatureSource, marks: MarkHistory) -> MarkedFeatures:
    """Features with the labels of marks, without the samples that are marked to be dropped.

    Marks whose sample is not there, or has changed since, are remembered, and a warning tells of
    them.

    Raises:
        CleaningError: None of the later marks is of a sample of these features, the marks drop
            every sample, or they are of boxes and the samples are none.
    """
    earlier, later = marks.earlier, marks.later
    for each in (earlier, later):
        refuse_marks_of_boxes(each.samples, boxes=source.description.boxes)
    by_id, labels = find_samples(source, marks.ids)
    marked = (*earlier.samples.values(), *later.samples.values())
    found = [*(each.content for each in by_id.values()), *(each.content for each in marked)]
    contents = {content for content in found if content is not None}
    own = {**earlier.samples, **later.samples}
    draft = _AppliedDraft(
        by_id,
        {each for each, sample in by_id.items() if _is_about(own[each], sample)},
        _find_contents(source, contents) if contents else {},
        [*earlier.warnings, *later.warnings],
    )
    num_applied = 0
    for sample_id in marks.ids:
        before, now = earlier.samples.get(sample_id), later.samples.get(sample_id)
        is_before = _is_about(before, by_id.get(sample_id))
        if before is not None and (now is None or not is_before):
            draft.add(sample_id, before)
        if now is not None:
            decided = marks.numbered(now).after(before if is_before else None)
            num_applied += draft.add(sample_id, decided)
    if later.samples and not num_applied:
        raise CleaningError(
            f"none of {count_of(len(later.samples), 'marked sample')} is in the dataset as it was: "
            f"marked ids look like {list(later.samples)[:3]}, those of the dataset like "
            f"{_first_ids(source)}",
            parameter="marks",
        )
    return MarkedFeatures(source, labels, draft)


def with_marks(rows: pa.RecordBatch, marks: pa.DictionaryArray) -> pa.RecordBatch:
    """Rows of scores with the marks of their samples, about whose labels there is no doubt left."""
    verified = marks.is_valid()
    for name, value in (("suspicion", None), ("p_wrong", 0.0)):
        if name in rows.schema.names:
            decided = pa.scalar(value, rows[name].type)
            column = pc.if_else(verified, decided, rows[name])
            rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows.append_column(MARK_COLUMN, marks)


@dataclass(frozen=True)
class _Sample:
    """A sample of the features, with its label there."""

    sample_id: str
    position: int
    label: str
    content: str | None  # digest in hexadecimal digits, as in `MarkedSample`


def _is_about(marked: MarkedSample | None, sample: _Sample | None) -> bool:
    """Whether a sample has the content that was marked, as far as that is known."""
    return marked is not None and sample is not None and marked.is_about(sample.content)


@dataclass
class _AppliedDraft:
    """What marks decide, by the position of each sample.

    Attributes:
        claimed: Ids of the samples that have marks of their own.
    """

    by_id: Mapping[str, _Sample]
    claimed: Collection[str]
    by_content: Mapping[str, Sequence[_Sample]]
    notes: list[str]
    decided: dict[int, tuple[_Sample, MarkedSample]] = field(default_factory=dict)
    remembered: dict[str, MarkedSample] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    relabelled: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)

    def add(self, sample_id: str, marked: MarkedSample) -> bool:
        """Decides about the samples of a mark; false where there are none."""
        sample = self.by_id.get(sample_id)
        if sample is not None and _is_about(marked, sample):
            return self._decide(sample, marked)
        moved = [
            each
            for each in self.by_content.get(marked.content or "", ())
            if each.sample_id not in self.claimed
        ]
        if moved:
            self.moved.append(sample_id)
            return sum(self._decide(each, marked) for each in moved) > 0
        self.remembered.setdefault(sample_id, marked)
        if sample is not None:
            self.changed.append(sample_id)
        elif marked.mark is not Mark.DROP:  # what was dropped and is gone is as it should be
            self.absent.append(sample_id)
        return False

    def _decide(self, sample: _Sample, marked: MarkedSample) -> bool:
        if marked.mark is not Mark.DROP and sample.label not in {
            marked.given_label or sample.label,
            marked.label,
        }:
            self.relabelled.append(sample.sample_id)
            self.remembered.setdefault(sample.sample_id, marked)
            return False
        content = sample.content or marked.content
        if marked.mark is Mark.DROP and len(self.by_content.get(content or "", ())) > 1:
            content = None  # a copy of it is kept, which the mark is not about
        given = marked.given_label or sample.label
        self.remembered[sample.sample_id] = replace(
            marked, sample_id=sample.sample_id, given_label=given, content=content
        )
        self.decided[sample.position] = sample, marked
        return True

    def warnings(self, names: Sequence[str]) -> list[str]:
        """Sentences about what could not be applied, and about classes that are new."""
        sentences = list(self.notes)
        marked_again = {sample.sample_id for sample, _ in self.decided.values()}
        for listed, why in (
            (self.absent, "not in the dataset"),
            (self.changed, "of samples that have changed since, and are not applied"),
            (self.relabelled, "of samples that have another label since, and are not applied"),
        ):
            if ids := [each for each in listed if each not in marked_again]:
                number = count_of(len(ids), "mark")
                sentences.append(f"{number} {is_or_are(len(ids))} {why}: {list_names(ids)}")
        if self.moved:
            moved = count_of(len(self.moved), "mark")
            sentences.append(
                f"{moved} {is_or_are(len(self.moved))} of samples that have another id now: "
                f"{list_names(self.moved)}"
            )
        labels = [marked.label for _, marked in self.decided.values() if marked.label is not None]
        for name, size in Counter(each for each in labels if each not in names).items():
            sentence = f"the marks give {count_of(size, 'sample')} the new class {name!r}"
            meant = did_you_mean(name, names).strip()
            sentences.append(f"{sentence}; {meant}" if meant else sentence)
        return sentences

    def fingerprint(self, fingerprint: str) -> str:
        """That of the features, changed by what was decided."""
        if not self.decided:
            return fingerprint
        decided = sorted(
            (sample.sample_id, marked.mark, marked.label)
            for sample, marked in self.decided.values()
        )
        return hashlib.sha256(f"{fingerprint}{json.dumps(decided)}".encode()).hexdigest()


def find_samples(source: FeatureSource, ids: Sequence[str]) -> tuple[dict[str, _Sample], Tensor]:
    """The samples with some ids that there are, and the class index of each sample."""
    wanted = pa.array(ids, pa.string())
    found: dict[str, _Sample] = {}
    labels: list[Tensor] = []
    for start, opened, contents in _opened(source):
        labels.append(opened.labels[:: source.runs])
        here = pc.is_in(opened.sample_ids[:: source.runs], value_set=wanted)
        for sample in _samples(source, start, opened, contents, here):
            found[sample.sample_id] = sample
    return found, torch.cat(labels)


def _find_contents(
    source: FeatureSource, contents: Collection[str]
) -> Mapping[str, Sequence[_Sample]]:
    """All samples with some contents, by these."""
    wanted = pa.array(map(bytes.fromhex, contents), pa.binary(CONTENT_BYTES))
    found: dict[str, list[_Sample]] = defaultdict(list)
    for start, opened, digests in _opened(source):
        if digests is not None:
            here = pc.is_in(digests, value_set=wanted)
            for sample in _samples(source, start, opened, digests, here):
                found[sample.content or ""].append(sample)
    return found


def _first_ids(source: FeatureSource) -> list[str]:
    for _, opened, _ in _opened(source):
        if len(opened.sample_ids):
            return list(opened.sample_ids[:3].to_pylist())
    return []


def _opened(
    source: FeatureSource,
) -> Iterator[tuple[int, OpenShard, pa.FixedSizeBinaryArray | None]]:
    """Number of samples before each shard, the shard, and the contents of its samples."""
    start = 0
    for shard in range(source.num_shards):
        opened = source.open_shard(shard, ["sample_id"])
        yield start, opened, source.contents(shard)
        start += len(opened.labels) // source.runs


def _samples(
    source: FeatureSource,
    start: int,
    opened: OpenShard,
    contents: pa.FixedSizeBinaryArray | None,
    chosen: pa.BooleanArray,
) -> Iterator[_Sample]:
    """Those samples of a shard that are chosen."""
    for row in np.flatnonzero(chosen.to_numpy(zero_copy_only=False)).tolist():
        yield _Sample(
            opened.sample_ids[row * source.runs].as_py(),
            start + row,
            source.class_names[int(opened.labels[row * source.runs])],
            _hexadecimal(contents, row),
        )


def _hexadecimal(contents: pa.FixedSizeBinaryArray | None, row: int) -> str | None:
    digest = None if contents is None else contents[row].as_py()
    return None if digest is None else digest.hex()
