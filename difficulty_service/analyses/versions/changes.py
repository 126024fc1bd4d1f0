"""What differs between two versions of a dataset: samples, labels, and how classes lie.

Samples are matched by what they were read from, or by their features to the last bit where that is
not known of both versions, and by their ids.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.analyses.versions.shift import (
    area_under_curve,
    gaussian_shift,
    permuted_differences,
    two_class_scores,
)
from difficulty_service.analyses.versions.version_matches import (
    ADDED,
    CHANGED,
    KEPT,
    KINDS,
    MOVED,
    REMOVED,
    Matches,
    Rows,
    match_versions,
)
from difficulty_service.base.errors import DatasetError, FeatureStoreError
from difficulty_service.base.tables import save_table
from difficulty_service.base.wording import Noun, list_names
from difficulty_service.features.description import FeatureDescription
from difficulty_service.gaussians.gaussian import covariance_within, covariances
from difficulty_service.gaussians.moments import Moments, compute_moments, pilot_of
from difficulty_service.scores.measures import scores_of
from difficulty_service.scoring.fitted_gaussians import FittedGaussians
from difficulty_service.scoring.splits import LEFT_OUT, Split, require_same_kind

FOLDS = 5
"""Parts of the samples, each of which is told apart by a classifier of the others."""

FEW_PER_DIMENSION = 10
"""Samples for each number of a feature vector below which covariances are mostly noise."""

FEWEST_ADDED = 10
"""Added samples from which on a classifier tells them from the old ones."""

SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("relabelled", pa.bool_(), nullable=False),
        pa.field("old_id", pa.string()),
        pa.field("old_label", pa.string()),
        pa.field("new_id", pa.string()),
        pa.field("new_label", pa.string()),
        pa.field("novelty", pa.float64()),
        pa.field("score", pa.float64()),
    ]
)
"""Columns of a table of changes."""

CLASS_SCHEMA = pa.schema(
    [
        pa.field("class", pa.string(), nullable=False),
        pa.field("old", pa.int64(), nullable=False),
        pa.field("new", pa.int64(), nullable=False),
        pa.field("frechet", pa.float64()),
        pa.field("frechet_by_chance_low", pa.float64()),
        pa.field("frechet_by_chance_high", pa.float64()),
        pa.field("kl", pa.float64()),
        pa.field("kl_by_chance_low", pa.float64()),
        pa.field("kl_by_chance_high", pa.float64()),
        pa.field("p_value", pa.float64()),
    ]
)
"""Columns of a table of classes; the last row is of all samples, and its class is empty."""


@dataclass(frozen=True)
class ChangeReport:
    """What differs between two versions of a dataset.

    Attributes:
        old: What the user calls the old version.
        new: What the user calls the new one.
        noun: What a sample is in a word.
        num_old: Number of samples of the old version.
        num_new: Number of samples of the new one.
        counts: Number of samples of each of KINDS; None where there are moments only.
        relabelled: Number of samples in both versions whose labels differ; None as well.
        table: All samples that are not kept with their label, with the columns of SCHEMA:
            relabelled ones first, then changed, added, moved and removed ones; added ones by their
            novelty. None as well.
        classes: How far each class is from where it was, with the columns of CLASS_SCHEMA.
        separability: Probability that a classifier finds an added sample newer than an old one:
            1/2 where they are alike; None where too few are added.
        permutations: Number of permutations by which the values by chance were found.
        warnings: What to know of all that, one sentence each.
    """

    old: str
    new: str
    noun: Noun
    num_old: int
    num_new: int
    counts: Mapping[str, int] | None
    relabelled: int | None
    table: pa.Table | None = field(repr=False)
    classes: pa.Table = field(repr=False)
    separability: float | None
    permutations: int
    warnings: tuple[str, ...]

    def save(self, path: Path) -> None:
        """Writes the changes as .parquet, .csv or .jsonl; the file appears whole or not at all."""
        assert self.table is not None  # noqa: S101 - checked where moments are compared
        save_table(path, self.table, SCHEMA)


@dataclass(frozen=True)
class _Version:
    """The samples of a version that count.

    Attributes:
        ids: Their ids. Shape (samples,).
        labels: Names of their classes; None without a label. Shape (samples,).
        contents: What tells their contents; None where nothing does. Shape (samples,).
    """

    split: Split
    ids: Sequence[str]
    labels: Sequence[str | None]
    contents: Sequence[bytes | None]


def find_changes(
    old: Split, new: Split, permutations: int = 200, seed: int = 0, scores: pa.Table | None = None
) -> ChangeReport:
    """Compares two versions of a dataset, with features of the same kind.

    Args:
        permutations: Number of permutations for the values by chance; 0 for none.
        seed: Seed of the permutations and folds.
        scores: Columns `sample_id` and `score` of the new version, larger is harder.

    Raises:
        FeatureStoreError: Features are of another network or preparation, or damaged.
        ScoreFileError: The scores are of none of the samples.
        StatisticsError: A feature is not finite.
    """
    require_same_kind(old, new)
    for each in (old, new):
        if not each.num_samples:
            raise DatasetError(f"{each.name} has no samples to compare")
    by_content = all(_knows_contents(each) for each in (old, new))
    one, other = (_version(each, by_content=by_content) for each in (old, new))
    hardness = (
        np.full(len(other.ids), np.nan)
        if scores is None
        else scores_of(pa.array(other.ids, pa.string()), scores, new.name)
    )
    matches = match_versions(one.ids, other.ids, one.contents, other.contents)
    vectors = old.vectors(unit=False), new.vectors(unit=False)
    is_added = np.ones(len(other.ids), np.bool_)
    is_added[matches.new[[kind != CHANGED for kind in matches.kinds]]] = False
    novelty, separability = _novelty(*vectors, is_added, _groups(one, other), seed)
    table = _table(one, other, matches, novelty, hardness)
    counts = Counter(matches.kinds)
    counts |= {ADDED: len(other.ids) - len(matches.new), REMOVED: len(one.ids) - len(matches.old)}
    relabelled = int(np.sum(table["relabelled"].to_numpy(zero_copy_only=False)))
    names = _class_names(old, new)
    moments = [
        _moments(rows, each, names) for rows, each in zip(vectors, (one, other), strict=True)
    ]
    classes = _ClassChanges(names, *moments)
    chance = _chance(classes, vectors, (one, other), matches, permutations, seed)
    return ChangeReport(
        old=old.name,
        new=new.name,
        noun=new.noun,
        num_old=len(one.ids),
        num_new=len(other.ids),
        counts={kind: counts.get(kind, 0) for kind in KINDS},
        relabelled=relabelled,
        table=table,
        classes=classes.table(chance),
        separability=separability,
        permutations=permutations,
        warnings=tuple(
            dict.fromkeys(
                [*_warnings(old, new, by_content=by_content), *classes.warnings(old.name, new.name)]
            )
        ),
    )


def compare_moments(
    old: FittedGaussians, new: FittedGaussians, paths: Sequence[Path]
) -> ChangeReport:
    """Compares the moments of two versions, which tell where classes lie and nothing of samples.

    Raises:
        FeatureStoreError: They were fitted to other features.
    """
    names = (f"in {paths[0]}", f"in {paths[1]}")
    if different := old.description.kind_differences(new.description, names):
        raise FeatureStoreError(
            f"{paths[0]} and {paths[1]} were fitted to other features ({'; '.join(different)})",
            "fit both to features of the same backbone and preparation",
        )
    classes = list(dict.fromkeys([*old.description.class_names, *new.description.class_names]))
    compared = _ClassChanges(
        classes,
        *(_with_classes(each.gaussians.moments, each.description, classes) for each in (old, new)),
    )
    runs = [max(1, each.gaussians.options.runs) for each in (old, new)]
    return ChangeReport(
        old=str(paths[0]),
        new=str(paths[1]),
        noun=new.description.noun,
        num_old=old.gaussians.moments.num_samples // runs[0],
        num_new=new.gaussians.moments.num_samples // runs[1],
        counts=None,
        relabelled=None,
        table=None,
        classes=compared.table({}),
        separability=None,
        permutations=0,
        warnings=(
            "Gaussians tell how far classes moved, but neither which samples differ nor how far "
            "classes move by chance: name features for that",
            *compared.warnings(*map(str, paths)),
        ),
    )


class _ClassChanges:
    """The moments of both versions, by the same classes."""

    def __init__(self, names: Sequence[str], old: Moments, new: Moments) -> None:
        self.names, self.old, self.new = names, old, new
        self.within = gaussian_shift(covariance_within(old), covariance_within(new))
        self.everyone = gaussian_shift(covariances(old)[1], covariances(new)[1])
        means = [each.class_sums / each.counts[:, None] + each.pilot for each in (old, new)]
        totals = [each.class_sums.sum(dim=0) / each.num_samples + each.pilot for each in (old, new)]
        self.differences, self.total = means[1] - means[0], totals[1] - totals[0]

    def warnings(self, old: str, new: str) -> Iterator[str]:
        """What to know of the distances, by the names of both versions."""
        for name, moments in ((old, self.old), (new, self.new)):
            if moments.num_samples < FEW_PER_DIMENSION * moments.dim:
                yield (
                    f"{name} has only {moments.num_samples / moments.dim:.2g} samples for each of "
                    f"the {moments.dim} numbers of a feature vector, so the distances between "
                    "Gaussians are mostly noise; compare them with their values by chance"
                )

    def table(self, chance: Mapping[int, tuple[Tensor, Tensor]]) -> pa.Table:
        """Columns of CLASS_SCHEMA.

        Args:
            chance: Of a class or -1 for all, the results of `squares` for the difference of the
                means and for those after each permutation.
        """
        rows = [self._row(label, name, chance.get(label)) for label, name in enumerate(self.names)]
        return pa.Table.from_pylist([*rows, self._row(-1, "", chance.get(-1))], CLASS_SCHEMA)

    def _row(
        self, label: int, name: str, chance: tuple[Tensor, Tensor] | None
    ) -> dict[str, object]:
        shift = self.everyone if label < 0 else self.within
        difference = self.total if label < 0 else self.differences[label]
        numbers = [
            each.num_samples if label < 0 else int(each.counts[label])
            for each in (self.old, self.new)
        ]
        row: dict[str, object] = {"class": name, "old": numbers[0], "new": numbers[1]}
        if 0 in numbers:
            return row
        plain, white = shift.squares(difference[None])
        row |= {"frechet": float(shift.frechet_of(plain)), "kl": float(shift.kl_of(white))}
        if chance is None:
            return row
        for column, values in (
            ("frechet", shift.frechet_of(chance[0])),
            ("kl", shift.kl_of(chance[1])),
        ):
            low, high = np.quantile(values[1:].numpy(), (0.025, 0.975)).tolist()
            row |= {f"{column}_by_chance_low": low, f"{column}_by_chance_high": high}
        # Rounding must not make a permutation that changes nothing look smaller.
        as_large = int((chance[1] >= chance[1][0] * (1 - 1e-9)).sum())
        return row | {"p_value": as_large / len(chance[1])}


def _chance(
    classes: _ClassChanges,
    vectors: tuple[Tensor, Tensor],
    versions: tuple[_Version, _Version],
    matches: Matches,
    permutations: int,
    seed: int,
) -> dict[int, tuple[Tensor, Tensor]]:
    """How far means are apart when it is drawn anew which samples are in which version.

    A sample in both is one: as many samples as there are remain in both, only the old and only the
    new version. One with other bytes is two.
    """
    if not permutations:
        return {}
    places = {name: place for place, name in enumerate(classes.names)}
    old, new = (
        np.array([-1 if name is None else places[name] for name in each.labels], np.int64)
        for each in versions
    )
    same = np.array([kind != CHANGED for kind in matches.kinds], np.bool_)
    in_old = np.full(len(new), -1)
    in_old[matches.new[same]] = matches.old[same]
    only_new = np.flatnonzero(in_old < 0)
    found = {}
    for label in (-1, *range(len(classes.names))):
        olds = np.ones(len(old), np.bool_) if label < 0 else old == label
        news = np.ones(len(new), np.bool_) if label < 0 else new == label
        if not olds.any() or not news.any():
            continue
        weights = np.where(olds, -1 / olds.sum(), 0.0)
        both = np.flatnonzero(news & (in_old >= 0))
        weights[in_old[both]] += 1 / news.sum()
        member = olds.copy()
        member[in_old[both]] = True
        rows, added = np.flatnonzero(member), only_new[news[only_new]]
        every = np.concatenate([weights[rows], np.full(len(added), 1 / news.sum())])
        features = torch.cat(
            [vectors[0][torch.from_numpy(rows)], vectors[1][torch.from_numpy(added)]]
        )
        shift = classes.everyone if label < 0 else classes.within
        drawn = permuted_differences(features, every, permutations, seed)
        found[label] = shift.squares(drawn)
    return found


def _knows_contents(split: Split) -> bool:
    """Whether it is known of all samples what they were read from."""
    source = split.source
    return all(source.contents(shard) is not None for shard in range(source.num_shards))


def _version(split: Split, *, by_content: bool) -> _Version:
    rows = np.flatnonzero(split.labels != LEFT_OUT)
    ids = split.sample_ids.take(pa.array(rows)).to_pylist()
    names = [*split.names, None]
    labels = [names[label] for label in split.labels[rows].tolist()]  # NO_LABEL is the last one
    contents: list[bytes | None] = []
    for block in split.blocks():
        if by_content and block.contents is not None:
            contents += [row.tobytes() for row in block.contents]
        else:
            known = zip(block.hashes, block.is_known, strict=True)
            contents += [number.tobytes() if is_known else None for number, is_known in known]
    return _Version(split, ids, labels, contents)


def _class_names(old: Split, new: Split) -> list[str]:
    known = [each.names for each in (old, new) if each.has_labels]
    return list(dict.fromkeys(name for names in known for name in names))


def _moments(rows: Tensor, version: _Version, names: Sequence[str]) -> Moments:
    """Moments by the classes; samples without a label are of a class of their own, the last."""
    places = {name: place for place, name in enumerate(names)} | {None: len(names)}
    labels = torch.tensor([places[name] for name in version.labels], dtype=torch.int64)
    return compute_moments(rows, labels, pilot_of(rows), len(names) + 1, matmul_dtype=torch.float64)


def _with_classes(
    moments: Moments, description: FeatureDescription, names: Sequence[str]
) -> Moments:
    """The same moments, with the classes in another order and others without samples."""
    places = torch.tensor([names.index(name) for name in description.class_names])
    counts = torch.zeros(len(names), dtype=torch.int64)
    sums = torch.zeros(len(names), moments.dim, dtype=torch.float64)
    counts[places], sums[places] = moments.counts, moments.class_sums
    return Moments(moments.pilot, counts, sums, moments.scatter)


def _groups(old: _Version, new: _Version) -> tuple[Rows, Rows]:
    """The class of each sample as a number, the same in both versions."""
    places = {name: row for row, name in enumerate(dict.fromkeys([*old.labels, *new.labels]))}
    one, other = (np.array([places[name] for name in each.labels], np.int64) for each in (old, new))
    return one, other


def _novelty(
    old: Tensor, new: Tensor, is_added: NDArray[np.bool_], groups: tuple[Rows, Rows], seed: int
) -> tuple[NDArray[np.float64], float | None]:
    """How much newer than the old samples each added one is; NaN for the others."""
    novelty = np.full(len(new), np.nan)
    if is_added.sum() < FEWEST_ADDED or len(old) < FEWEST_ADDED:
        return novelty, None
    features = torch.cat([old, new[torch.from_numpy(np.flatnonzero(is_added))]])
    is_second = np.arange(len(features)) >= len(old)
    labels = np.concatenate([groups[0], groups[1][is_added]])
    scores = two_class_scores(features, torch.from_numpy(is_second), labels, FOLDS, seed)
    novelty[is_added] = scores[len(old) :]
    return novelty, area_under_curve(scores, is_second)


def _table(
    old: _Version,
    new: _Version,
    matches: Matches,
    novelty: NDArray[np.float64],
    scores: NDArray[np.float64],
) -> pa.Table:
    """The changes, with the columns of SCHEMA."""
    added = np.setdiff1d(np.arange(len(new.ids)), matches.new)
    removed = np.setdiff1d(np.arange(len(old.ids)), matches.old)
    changes: list[tuple[str, int | None, int | None]] = [
        *zip(matches.kinds, matches.old.tolist(), matches.new.tolist(), strict=True),
        *((ADDED, None, row) for row in added.tolist()),
        *((REMOVED, row, None) for row in removed.tolist()),
    ]
    listed = []
    for kind, before, after in changes:
        labels = [
            None if row is None else version.labels[row]
            for row, version in ((before, old), (after, new))
        ]
        relabelled = None not in labels and labels[0] != labels[1]
        if kind == KEPT and not relabelled:
            continue
        order = novelty[after] if kind in (ADDED, CHANGED) and after is not None else np.nan
        listed.append(
            (
                (not relabelled, _ORDER[kind], -order if order == order else np.inf),  # noqa: PLR0124 - NaN
                {
                    "kind": kind,
                    "relabelled": relabelled,
                    "old_id": None if before is None else old.ids[before],
                    "old_label": labels[0],
                    "new_id": None if after is None else new.ids[after],
                    "new_label": labels[1],
                    "novelty": None if np.isnan(order) else float(order),
                    "score": _number(scores, after),
                },
            )
        )
    listed.sort(key=lambda each: each[0])
    return pa.Table.from_pylist([row for _, row in listed], SCHEMA)


_ORDER = {KEPT: 0, CHANGED: 1, ADDED: 2, MOVED: 3, REMOVED: 4}


def _number(scores: NDArray[np.float64], row: int | None) -> float | None:
    return None if row is None or np.isnan(scores[row]) else float(scores[row])


def _warnings(old: Split, new: Split, *, by_content: bool) -> Iterator[str]:
    yield from old.warnings()
    yield from new.warnings()
    is_extracted = any(each.source.description.backbone is not None for each in (old, new))
    if is_extracted and not by_content:
        yield (
            "the contents of the samples are not known in both versions, so samples are matched by "
            "identical features"
        )
    names = [set(each.names) for each in (old, new) if each.has_labels]
    if len(names) == 2:  # noqa: PLR2004 - both have labels
        if gone := sorted(names[0] - names[1]):
            yield f"classes of {old.name} only: {list_names(gone)}"
        if fresh := sorted(names[1] - names[0]):
            yield f"classes of {new.name} only: {list_names(fresh)}"
