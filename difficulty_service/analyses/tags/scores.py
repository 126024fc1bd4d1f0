"""Scores of tags: which of those that samples have are wrong, and which are missing.

A row of the score file is the decision about one tag of one sample. Its label is the tag, or `not`
and the tag; that one is wrong is what `p_wrong` says. Only such decisions have a row as somebody
may want to look at: tags that are given, and missing ones that are not too improbable.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.analyses.tags.model import GivenTags, TagRule, fit_tags
from difficulty_service.base.errors import DatasetError, FeatureStoreError, ScoreFileError, Setting
from difficulty_service.base.tables import save_table, strings_to_arrow
from difficulty_service.base.threads import map_in_order, num_workers
from difficulty_service.base.wording import count_of, is_or_are, list_names
from difficulty_service.datasets.label_tables import (
    LabelColumns,
    LabelTable,
    label_table,
    sample_numbers,
)
from difficulty_service.datasets.sample import Revision
from difficulty_service.datasets.storage import resolve
from difficulty_service.datasets.tags import TagColumns, TagTable, open_tags
from difficulty_service.datasets.tags.decisions import (
    class_names,
    decision_id,
    possible_images,
    row_changes,
)
from difficulty_service.datasets.tags.revising import revised
from difficulty_service.datasets.tags.table import SEPARATOR
from difficulty_service.features.description import is_store
from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.label_noise import FEWEST
from difficulty_service.gaussians.products import BATCH_ROWS, BLOCK_ROWS, one_thread_per_product
from difficulty_service.scores.file import require_score_file_name, write_scores
from difficulty_service.scores.provenance import Provenance, TagSource
from difficulty_service.scores.tiers import ALMOST_CERTAIN, PROBABLE
from difficulty_service.scoring.fit_store import StoreBatches
from difficulty_service.scoring.judged_tags import TagReport
from difficulty_service.scoring.marked_features import ChangedFeatures
from difficulty_service.scoring.ranking import unranked_scores
from difficulty_service.scoring.store import ROWS_PER_GROUP, grouped

LEAST = 0.05
"""Probability from which a tag that is not given has a row."""

TAGS_SHOWN = 12

SUMS = 6
"""Numbers of each tag: errors expected, probable and almost certain, given tags before others."""


@dataclass(frozen=True)
class SampleTags:
    """The tags of samples.

    Attributes:
        names: Name of each tag.
        given: Tags of the samples that are kept.
        kept: Which samples of the features have tags. Shape (samples,).
        source: Where the tags are written; None for tags in memory.
        warnings: What is left out, one sentence each.
    """

    names: tuple[str, ...]
    given: GivenTags
    kept: Tensor
    source: TagSource | None = None
    warnings: tuple[str, ...] = ()


def by_tag_file(path: Path) -> Path:
    """The file of all tags beside the score file of decisions."""
    return path.with_name(f"{path.stem}.by-tag{path.suffix}")


def _rows(tags: TagTable, sample_ids: pa.StringArray) -> NDArray[np.int64]:
    """Row of each sample in a table of tags; -1 for none. Shape (samples,).

    Raises:
        DatasetError: Two rows are about a sample, or none is about any.
    """
    named = LabelColumns(sample_id=tags.wanted.sample_id)
    names = LabelTable(tags.location, (), pa.table({}).select, lambda: iter(tags.images or ()))
    keys = label_table(tags.location, [tags.file]) if tags.images is None else names
    numbers = sample_numbers(keys, named, tags.columns, sample_ids)
    rows = np.flatnonzero(numbers >= 0)
    found, counts = np.unique(numbers[rows], return_counts=True)
    if (counts > 1).any():
        sample = sample_ids[int(found[counts > 1][0])].as_py()
        raise DatasetError(
            f"two rows of {tags.location} are about the sample {sample!r}",
            "merge them, or name the column with the ids of the samples as ",
            Setting("id_column"),
            parameter="id_column",
        )
    row_of = np.full(len(sample_ids), -1, np.int64)
    row_of[numbers[rows]] = rows
    return row_of


def revise_tags(source: TagSource, changes: Mapping[str, str | None]) -> Revision:
    """The table of tags with some decisions in it, by their ids; see `row_changes`.

    Errors are those of `open_tags` and `tags_of_samples`.
    """
    location = str(source.table)
    columns = TagColumns(source.columns, source.separator, source.id_column)
    table, known = open_tags(location, columns), set(source.names)
    images = dict.fromkeys(
        image for decision in changes for image, _ in possible_images(decision, known)
    )
    rows = np.empty(0, np.int64)
    if images:
        rows = _rows(table, strings_to_arrow(list(images)))
    row_of = {image: row for image, row in zip(images, rows.tolist(), strict=True) if row >= 0}
    made = row_changes(changes, row_of, known, None if table.takes_others else table.names)
    warnings = []
    if made.refused:
        warnings.append(
            f"{count_of(len(made.refused), 'decision')} cannot be written, because the class "
            f"decides about another tag or has no column: {list_names(made.refused, TAGS_SHOWN)}"
        )
    place = resolve(location)
    content = revised(table, columns.separator or SEPARATOR, made.edits)
    return Revision(
        place.parent, {place.name: content}, (), made.unknown, warnings, is_one_file=True
    )


def tags_of_samples(tags: TagTable, sample_ids: pa.StringArray) -> SampleTags:
    """The tags of samples, from a table.

    Raises:
        DatasetError: Two rows are about a sample, or none is about any.
    """
    row_of = _rows(tags, sample_ids)
    has_row = row_of >= 0
    rows = row_of[has_row]
    number = tags.starts[rows + 1] - tags.starts[rows]
    starts = np.concatenate([[0], np.cumsum(number)])
    places = np.repeat(tags.starts[rows] - starts[:-1], number) + np.arange(starts[-1])
    given = GivenTags(
        torch.from_numpy(starts), torch.from_numpy(tags.tags[places]), len(tags.names)
    )
    others = len(row_of) - len(rows)
    warnings = [f"{tags.file.name!r} {tags.file.note}"] if tags.file.note else []
    if others:
        place = tags.location
        warnings.append(f"{count_of(others, 'sample')} without a row in {place} {_left(others)}")
    unknown = tags.file.num_rows - len(rows)
    if unknown:
        what = f"{count_of(unknown, 'row')} of {tags.location} without a sample"
        warnings.append(f"{what} {_left(unknown)}")
    source = TagSource(
        table=tags.location,
        columns=tags.wanted.columns,
        separator=tags.wanted.separator,
        id_column=tags.wanted.sample_id,
        names=tags.names,
    )
    return SampleTags(tags.names, given, torch.from_numpy(has_row), source, tuple(warnings))


def _left(number: int) -> str:
    return f"{is_or_are(number)} left out"


def require_place(out: Path) -> None:
    """Refuses a score file of decisions with another name, or beside features of samples.

    Raises:
        ScoreFileError: It is one of these.
    """
    require_score_file_name(out)
    if is_store(out.with_suffix(".features")):
        raise ScoreFileError(
            f"the features beside {out} would be mistaken for features of its rows, which are "
            "decisions about tags",
            "choose another name",
            parameter="out",
        )


def score_tags(
    store: FeatureSource, tags: SampleTags, out: Path, *, least: float = LEAST
) -> TagReport:
    """Scores the tags of samples, and writes a score file with a row for each decision.

    The memory does not grow with the features, but with the samples and their tags.

    Args:
        least: Probability from which a tag that is not given has a row.

    Raises:
        FeatureStoreError: The features have augmentation runs.
        StatisticsError: As for `fit_tags`.
    """
    require_place(out)
    if store.runs > 1:
        raise FeatureStoreError(
            f"the features have {store.runs} runs of each sample, but tags need a single one",
            "extract them without ",
            Setting("augment_runs"),
        )
    classes = class_names(tags.names)
    numbers = tags.kept.cumsum(0) - 1
    kept = ChangedFeatures(store, numbers.clamp(min=0), tags.kept)
    rule = fit_tags(StoreBatches(kept), tags.given, store.description.seed, torch.float32)
    totals = np.zeros((SUMS, len(rule.fitted)))
    with unranked_scores(out.parent) as unranked:
        num_rows = num_doubtful = 0
        for batch, added in _batches(kept, rule, tags.names, least):
            totals += added
            num_rows += len(batch)
            num_doubtful += int((batch["suspicion"].to_numpy() > 0).sum())
            if len(batch):
                unranked.append(batch)
        source = (tags.source or TagSource(names=tags.names)).updated(
            num_decisions=tags.given.num_samples * len(rule.fitted),
            least=least,
            wrong=rule.errors.wrong,
            missing=rule.errors.missing,
            ridge=rule.fit.ridge,
            tag_ridge=rule.fit.tag_ridge,
            scale=rule.fit.scale,
            likelihood=rule.fit.likelihood,
            landmarks=rule.fit.landmarks,
        )
        provenance = Provenance.of_features(store.description).updated(
            Provenance(
                class_names=classes, num_scored=num_rows, num_doubtful=num_doubtful, tags=source
            )
        )
        write_scores(out, grouped(unranked.ranked(), ROWS_PER_GROUP), provenance)
    table = _table_of_tags(tags, rule.fitted, totals)
    save_table(by_tag_file(out), table)
    rare = [
        name for name, number in zip(*_plain(table, "tag", "wrong"), strict=True) if number is None
    ]
    warnings = list(tags.warnings)
    if rare:
        warnings.append(
            f"{count_of(len(rare), 'tag')} {is_or_are(len(rare))} not judged, because fewer than "
            f"{FEWEST} samples have {'it' if len(rare) == 1 else 'them'}, or all but that many: "
            f"{list_names(rare, TAGS_SHOWN)}"
        )
    errors = rule.errors
    return TagReport(
        tags=table,
        wrong=errors.wrong,
        missing=errors.missing,
        num_samples=tags.given.num_samples,
        num_scored=num_rows,
        num_doubtful=num_doubtful,
        warnings=tuple(warnings),
    )


def _plain(table: pa.Table, *columns: str) -> list[list[object]]:
    return [table[name].to_pylist() for name in columns]


def _table_of_tags(tags: SampleTags, fitted: Tensor, totals: NDArray[np.float64]) -> pa.Table:
    names = [
        before + kind
        for kind in ("wrong", "missing")
        for before in ("", "probably_", "almost_certainly_")
    ]
    columns: dict[str, pa.Array] = {
        "tag": pa.array(tags.names, pa.string()),
        "given": pa.array(tags.given.counts().numpy()),
    }
    for name, total in zip(names, totals, strict=True):
        every = np.full(len(tags.names), np.nan)
        every[fitted.numpy()] = total
        kind = pa.float64() if name in {"wrong", "missing"} else pa.int64()
        columns[name] = pa.array(every, from_pandas=True).cast(kind)
    return pa.table(columns)


def _batches(
    store: FeatureSource, rule: TagRule, names: Sequence[str], least: float
) -> Iterator[tuple[pa.RecordBatch, NDArray[np.float64]]]:
    """Rows of the score file without their percentiles, and sums by tag, in order."""
    writer = _TagWriter(rule, names, least)

    def of_slice(where: tuple[int, slice]) -> tuple[pa.RecordBatch, NDArray[np.float64]]:
        opened = store.open_shard(where[0], ["sample_id"], where[1])
        found = [writer.empty()]
        sums = np.zeros((SUMS, len(rule.fitted)))
        for start in range(0, len(opened.labels), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            batch, added = writer.rows(
                opened.read_features(rows), opened.labels[rows].long(), opened.sample_ids[rows]
            )
            found.append(batch)
            sums += added
        table = pa.Table.from_batches(found).combine_chunks()
        return table.to_batches()[0] if len(table) else writer.empty(), sums

    with one_thread_per_product():
        yield from map_in_order(of_slice, store.slices(BATCH_ROWS), num_workers())


@dataclass(frozen=True)
class _TagWriter:
    """Makes the rows of decisions."""

    rule: TagRule
    names: Sequence[str]
    least: float

    def rows(
        self, features: Tensor, numbers: Tensor, ids: pa.StringArray
    ) -> tuple[pa.RecordBatch, NDArray[np.float64]]:
        """The decisions about some samples that have a row, and sums over all of them by tag."""
        batches, sums = [self.empty()], np.zeros((SUMS, len(self.rule.fitted)))
        for rows, judged in self.rule.judge(features, numbers):
            has = judged.has.numpy()
            p_wrong = judged.suspicion.sigmoid().numpy()
            for place, of in enumerate((has, ~has)):
                sums[3 * place] += np.where(of, p_wrong, 0).sum(axis=0)
                sums[3 * place + 1] += (of & (p_wrong > PROBABLE)).sum(axis=0)
                sums[3 * place + 2] += (of & (p_wrong > ALMOST_CERTAIN)).sum(axis=0)
            sample, tag = np.nonzero(has | (p_wrong >= self.least))
            chosen = [
                each.numpy()[sample, tag] for each in (judged.suspicion, judged.margin, judged.rmd)
            ]
            tags = self.rule.fitted.numpy()[tag]
            names = ids[rows].take(pa.array(sample)).to_pylist()
            decisions = [
                decision_id(image, self.names[each])
                for image, each in zip(names, tags.tolist(), strict=True)
            ]
            batches.append(self._batch(decisions, tags, has[sample, tag], chosen))
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0] if any(
            len(each) for each in batches
        ) else self.empty(), sums

    def empty(self) -> pa.RecordBatch:
        """No rows."""
        none = np.empty(0)
        return self._batch([], none.astype(np.int64), none.astype(bool), [none] * 3)

    def _batch(
        self,
        decisions: list[str],
        tags: NDArray[np.int64],
        has: NDArray[np.bool_],
        numbers: Sequence[NDArray[np.float64]],
    ) -> pa.RecordBatch:
        suspicion, margin, rmd = numbers
        with_tag, without = tags, tags + len(self.names)
        label, other = np.where(has, with_tag, without), np.where(has, without, with_tag)
        nearest = np.where(margin > 0, other, label)
        p_wrong = torch.from_numpy(suspicion).sigmoid().numpy()
        names = strings_to_arrow(class_names(self.names))

        def named(classes: NDArray[np.int64]) -> pa.DictionaryArray:
            return pa.DictionaryArray.from_arrays(pa.array(classes, pa.int32()), names)

        return pa.record_batch(
            {
                "sample_id": pa.array(decisions, pa.string()),
                "label": pa.array(label, pa.int32()),
                "label_name": named(label),
                "rmd": pa.array(rmd, pa.float64()),
                "nearest_label": pa.array(nearest, pa.int32()),
                "nearest_label_name": named(nearest),
                "label_margin": pa.array(margin, pa.float64()),
                "suspicion": pa.array(suspicion, pa.float64()),
                "p_wrong": pa.array(p_wrong, pa.float64()),
                "suggested_label": pa.array(other, pa.int32()),
                "suggested_label_name": named(other),
            }
        )
