"""From a feature store and Gaussians to a score file, a few thousand rows at a time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.base.contract import given
from difficulty_service.base.tables import to_numpy
from difficulty_service.base.wording import Noun, count_of, list_names
from difficulty_service.datasets.dropped import dropped_unseen
from difficulty_service.datasets.sample import has_labels
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.source import FeatureSource
from difficulty_service.marks.record import MARK_COLUMN
from difficulty_service.scores.file import ScoreFile, to_schema, write_scores
from difficulty_service.scores.label_counts import LabelCounts, shares_of_wrong
from difficulty_service.scores.provenance import FittedOn, LabelRuleFit, Provenance
from difficulty_service.scores.samples import AGNOSTIC, Decided
from difficulty_service.scores.score_columns import FAULT_COLUMN, OF_CLASSES, measure_of
from difficulty_service.scores.separation import Separation
from difficulty_service.scores.tiers import (
    ALMOST_CERTAIN_SUSPICION,
    CONDITIONS,
    PROBABLE_SUSPICION,
    Evidence,
    evidence_of,
)
from difficulty_service.scoring.duplicates import Duplicates, find_duplicates, find_near_duplicates
from difficulty_service.scoring.extremes import OTHER_CLASS, Extremes
from difficulty_service.scoring.fit_store import fit_store_posteriors
from difficulty_service.scoring.fitted_gaussians import FittedGaussians, require_same_features
from difficulty_service.scoring.image_faults import ImageFaults, find_image_faults
from difficulty_service.scoring.marked_features import MarkedFeatures, with_marks
from difficulty_service.scoring.ranking import difficulty_in, unranked_scores, with_percentiles
from difficulty_service.scoring.rounds import count_newly_doubtful
from difficulty_service.scoring.rows import (
    HASH_COLUMN,
    NO_RESOURCES,
    Classes,
    Resources,
    match_classes,
    score_rows,
)
from difficulty_service.settings.options import ScorerOptions

KINDS = {"duplicate_of": "an exact copy", "near_duplicate_of": "a near copy"}
"""What the columns of copies name, for people."""


@dataclass
class RowCounts:
    """Counts over the rows of a score file.

    Attributes:
        unlike: Number of rows that look more like another class: label margin above 0.
        doubtful: Number of those whose label nobody has verified.
        suspicious: Number of rows whose suspicion is above 0.
        verified: Number of rows whose label a person verified; these are never doubtful.
        judged: Number of rows that have a suspicion; 0 without that column.
        between: Number of those that are doubtful, but not suspicious.
        near_duplicates: None where they were not looked for.
        unscored: Number of rows without an RMD, by their label.
        class_sizes: Number of rows that are compared with other classes, by their label.
    """

    samples: int = 0
    unlike: int = 0
    doubtful: int = 0
    suspicious: int = 0
    certain: int = 0
    verified: int = 0
    judged: int = 0
    between: int = 0
    duplicates: int = 0
    near_duplicates: int | None = None
    unscored: Counter[int] = field(default_factory=Counter)
    class_sizes: Counter[int] = field(default_factory=Counter)

    @property
    def scored(self) -> int:
        """Number of rows that have an RMD."""
        return self.samples - self.unscored.total()

    @property
    def compared(self) -> int:
        """Number of rows that are compared with other classes, by a label margin."""
        return self.class_sizes.total()

    @property
    def evidence(self) -> Evidence:
        """Column that is above 0 where a row is to be checked."""
        return evidence_of(self.suspicious)

    @property
    def by_evidence(self) -> int:
        """Number of rows whose evidence is above 0."""
        return self.suspicious if self.evidence == "suspicion" else self.doubtful

    def update(self, batch: pa.RecordBatch) -> None:
        """Counts more rows."""
        self.samples += len(batch)
        if "label_margin" not in batch.schema.names:  # there is one class
            return
        margins = to_numpy(batch["label_margin"])
        verified = np.zeros(len(margins), bool)
        self.unlike += int((margins > 0).sum())
        if MARK_COLUMN in batch.schema.names:
            verified = batch[MARK_COLUMN].is_valid().to_numpy(zero_copy_only=False)
            self.verified += int(verified.sum())
            margins = np.where(verified, np.minimum(margins, 0), margins)  # what is not doubted
        self.doubtful += int((margins > 0).sum())
        if "suspicion" in batch.schema.names:
            suspicion = to_numpy(batch["suspicion"])
            self.suspicious += int((suspicion > PROBABLE_SUSPICION).sum())
            self.certain += int((suspicion > ALMOST_CERTAIN_SUSPICION).sum())
            self.judged += int((~np.isnan(suspicion) | verified).sum())
            self.between += int(((suspicion <= PROBABLE_SUSPICION) & (margins > 0)).sum())
        self.unscored.update(batch["label"].filter(batch["rmd"].is_null()).to_pylist())
        compared = to_numpy(batch["label"].filter(batch["label_margin"].is_valid()))
        labels, sizes = np.unique(compared, return_counts=True)
        self.class_sizes.update(dict(zip(labels.tolist(), sizes.tolist(), strict=True)))


def row_warnings(
    counts: RowCounts,
    classes: Classes,
    description: FeatureDescription,
    copies: Mapping[str, Duplicates],
) -> list[str]:
    """Sentences about samples without scores, a single class, and copies with different labels."""
    sentences, noun, store_names = [], description.noun, description.class_names
    if counts.unscored:
        names = list_names([classes.names[label] for label in sorted(counts.unscored)])
        sentences.append(
            f"no score for {counts.unscored.total():,} of {count_of(counts.samples, noun)}, "
            f"because the Gaussians were fitted to fewer than two {noun}s of their class: {names}"
        )
    if not counts.compared and counts.scored:
        why = "there is no second class" if has_labels(store_names) else "there are no labels"
        sentences.append(
            f"{why} to compare with: md_agnostic tells how unusual a sample is, and copies and "
            "faults of images are found; name classes, or let clusters be found, to have labels "
            "checked"
        )
    for column, found in copies.items():
        if found.conflict:
            first, second = found.conflict
            sentences.append(
                f"{count_of(found.num_conflicting, noun)} have {KINDS[column]} with another "
                f"label, the first are {first.sample_id} ({store_names[first.label]}) and "
                f"{second.sample_id} ({store_names[second.label]})"
            )
    return sentences


DEFAULT = ScorerOptions()
RMD_ONLY = ScorerOptions(scorers=("rmd",))
"""No column beside the Mahalanobis columns."""

MOST_CLASSES = 5_000
"""Number of classes up to which `suspicion` is computed where nobody named it: its memory grows
with the square of their number."""

ROWS_PER_GROUP = 1 << 16
"""Rows of a row group of the score file."""

EXTREMES_KEPT = 20
"""Number of samples at each end that the summary of a score file holds."""


@dataclass(frozen=True)
class ScoreSummary:
    """Summary of a score file.

    Attributes:
        has_labels: Whether the samples have labels.
        num_compared: Number of rows that are compared with other classes, by a label margin.
        evidence: Column by which labels are listed to be checked, see `evidence_of`.
        num_doubtful: Number of rows whose evidence is above 0.
        round: Number of the round and of each kind of decision, in words; None in the first.
        caution: What to know before anything else, which is among the warnings; None if nothing is.
        num_near_duplicates: None where they were not looked for.
        image_faults: Number of images with each fault, of those that occur; None where it is not
            known how the samples look.
        labels: How many labels are of which kind; None without suspicion.
        measure: Column of difficulty, see `measure_of`.
        hardest: The hardest samples, from hard to easy: sample_id, label_name, the measure.
        doubtful: The samples that look most like another class than their own, the clearest
            first: sample_id, label_name, the name of the other class, and the evidence.
    """

    num_samples: int
    num_scored: int
    num_compared: int
    evidence: Evidence
    round: str | None
    caution: str | None
    num_doubtful: int
    num_duplicates: int
    num_near_duplicates: int | None
    image_faults: Mapping[str, int] | None
    labels: LabelCounts | None
    noun: Noun
    has_labels: bool
    measure: str
    warnings: tuple[str, ...]
    hardest: pa.Table
    easiest: pa.Table
    doubtful: pa.Table

    @property
    def other_class(self) -> str:
        """Column with the name of the class that a doubtful sample looks like."""
        return OTHER_CLASS[self.evidence]


def score_store(
    store: FeatureSource,
    fitted: FittedGaussians,
    out: Path,
    options: ScorerOptions = DEFAULT,
    before: Path | None = None,
    resources: Resources = NO_RESOURCES,
) -> ScoreSummary:
    """Scores a store and writes the score file.

    The memory does not grow with the store, unless a scorer is asked for that needs all features at
    once, or near duplicates.

    Args:
        out: Score file to write; its folder also holds the unranked scores meanwhile.
        before: Scores of an earlier round; None for those in `out`, which are replaced.
        resources: For scorers that need all samples.
    """
    rows = _ScoreRows(store, fitted, options, before or out, resources)
    with unranked_scores(out.parent) as unranked:
        for batch in rows:
            unranked.append(batch)
        added, description = rows.finish()
        extremes = Extremes(EXTREMES_KEPT, rows.counts.evidence, rows.measure)
        tables = grouped(unranked.ranked(), ROWS_PER_GROUP)
        write_scores(out, _complete_tables(tables, added, extremes), description)
    counts, decided = rows.counts, Decided.of(description)
    return ScoreSummary(
        num_samples=counts.samples,
        num_scored=counts.scored,
        num_compared=counts.compared,
        evidence=extremes.evidence,
        round=decided.round,
        caution=rows.caution,
        num_doubtful=counts.by_evidence,
        num_duplicates=counts.duplicates,
        num_near_duplicates=counts.near_duplicates,
        image_faults=description.image_faults,
        labels=LabelCounts(
            counts.judged,
            counts.suspicious,
            counts.certain,
            counts.between,
            shares_of_wrong(description.suspicion),
            counts.verified,
            decided.num_relabelled,
            decided.check,
            description.dropped_unseen or 0,
        )
        if counts.judged
        else None,
        noun=description.noun,
        has_labels=has_labels(store.class_names),
        measure=rows.measure,
        warnings=description.warnings,
        hardest=extremes.hardest,
        easiest=extremes.easiest,
        doubtful=extremes.doubtful,
    )


def score_in_memory(
    store: FeatureSource, fitted: FittedGaussians, options: ScorerOptions = DEFAULT
) -> ScoreFile:
    """Like `score_store`, with the contents of the score file as the result."""
    rows = _ScoreRows(store, fitted, options)
    batches = list(rows)
    added, description = rows.finish()
    ordered = np.concatenate([to_numpy(difficulty_in(batch).drop_null()) for batch in batches])
    ordered.sort()
    table = pa.Table.from_batches(with_percentiles(batches, ordered))
    for name, found in added.items():
        table = table.append_column(name, found.column(0, len(table)))
    return ScoreFile(to_schema(table), description)


class _ScoreRows:
    """The rows of a score file but for their percentiles, copies and faults, and what all have."""

    def __init__(
        self,
        store: FeatureSource,
        fitted: FittedGaussians,
        options: ScorerOptions,
        before: Path | None = None,
        resources: Resources = NO_RESOURCES,
    ) -> None:
        store.description.require_scorable()
        require_same_features(store.description, fitted.description)
        self.counts = RowCounts()
        self._store, self._fitted, self._options = store, fitted, options
        self._classes = match_classes(store.class_names, fitted.description.class_names)
        self._hashes = bytearray()
        self._posteriors: Mapping[str, Any] = {}  # a LabelRuleFit each
        self._warnings: list[str] = []
        self._marked = store if isinstance(store, MarkedFeatures) else None
        self._before, self._resources = before, resources
        self._suspicious: list[pa.StringArray] = []  # ids
        self.caution: str | None = None
        # Without a second class, the columns that compare classes tell nothing.
        self.compares = int((fitted.gaussians.moments.counts > 0).sum()) > 1

    @property
    def measure(self) -> str:
        """Column of difficulty."""
        return measure_of(("rmd", AGNOSTIC) if self.compares else (AGNOSTIC,))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Batches of a few thousand rows, in the order of the store."""
        left_out = self._store.description.is_of_same_samples(self._fitted.description)
        gaussians, classes = self._fitted.gaussians, self._classes
        scorers = self._affordable_scorers()
        originals = None if self._marked is None else self._marked.applied.given
        posteriors = None
        if self.compares:
            posteriors = fit_store_posteriors(
                self._store, scorers, gaussians.matmul_dtype, originals
            )
        if posteriors is not None and posteriors.noise is None and not self._options.names_scorers:
            posteriors = None  # no label can be compared with another one
        fits = {} if posteriors is None else posteriors.description
        self._posteriors = {name: LabelRuleFit.of(fit) for name, fit in fits.items()}
        for batch in score_rows(
            self._store,
            gaussians,
            classes,
            scorers,
            left_out=left_out,
            posteriors=posteriors,
            resources=self._resources,
        ):
            if self._marked is not None:
                marks = self._marked.applied.verified.slice(self.counts.samples, len(batch))
                batch = with_marks(batch, marks)
                if "suspicion" in batch.schema.names:
                    suspicious = pc.greater(batch["suspicion"], PROBABLE_SUSPICION)
                    self._suspicious.append(batch["sample_id"].filter(suspicious))
            if not self.compares:
                batch = batch.drop_columns([*{*OF_CLASSES} & {*batch.schema.names}])
            self.counts.update(batch)
            if HASH_COLUMN in batch.schema.names:
                self._hashes += to_numpy(batch[HASH_COLUMN]).tobytes()
                batch = batch.drop_columns([HASH_COLUMN])
            yield batch

    def _dropped_unseen(self) -> int:
        """Number of samples that a condition dropped, before these features or by marks."""
        location = self._store.description.dataset
        number = 0 if location is None else dropped_unseen(location, frozenset(CONDITIONS))
        return number + (0 if self._marked is None else self._marked.applied.dropped_unseen)

    def _affordable_scorers(self) -> Sequence[str]:
        """The scorers to compute: one that nobody named is left out where it takes too much."""
        scorers, num_classes = self._options.scorers, len(self._store.class_names)
        if self._options.names_scorers or num_classes <= MOST_CLASSES:
            return scorers
        self._warnings.append(
            f"no suspicion of labels, whose memory grows with the square of the classes, here "
            f"{num_classes:,}: name the scorer suspicion to have it above {MOST_CLASSES:,}"
        )
        return [name for name in scorers if name != "suspicion"]

    def finish(self) -> tuple[dict[str, Duplicates | ImageFaults], Provenance]:
        """The columns that need all samples, by their names, and the metadata of the score file."""
        copies: dict[str, Duplicates] = {}
        if self._store.runs == 1:  # crops of copies differ
            hashes = np.frombuffer(self._hashes, np.int64)
            copies["duplicate_of"] = found = find_duplicates(self._store, hashes)
            self.counts.duplicates = len(found.positions)
        threshold = self._options.near_duplicates
        if threshold is not None:
            near = find_near_duplicates(self._store, self.counts.samples, threshold)
            copies["near_duplicate_of"] = near
            self.counts.near_duplicates = len(near.positions)
        faults = find_image_faults(self._store)
        separation = Separation.of(
            self.counts.unlike,
            self.counts.class_sizes.values(),
            shares_of_wrong(self._posteriors.get("suspicion")),
            self.counts.suspicious,
        )
        if separation is not None:
            self.caution = separation.caution(self._store.description)
        warnings = [
            *filter(None, [self.caution]),
            *self._store.warnings,
            *self._store.description.precision_warnings(self._fitted.description, "the Gaussians"),
            *self._fitted.gaussians.warnings,
            *self._warnings,
            *row_warnings(self.counts, self._classes, self._store.description, copies),
        ]
        features, counts, fitted = self._store.description, self.counts, self._fitted.description
        if self._marked is not None:
            # The images are those of the dataset, whatever was decided about them.
            of_dataset = {"fingerprint": self._marked.unmarked.fingerprint}
            if features.is_of_same_samples(fitted):
                fitted = fitted.model_copy(update=of_dataset)
            features = features.model_copy(update=of_dataset)
        provenance = Provenance.of_features(features).updated(
            Provenance(
                class_names=tuple(self._classes.names),
                fitted_on=FittedOn.of_features(fitted),
                **self._fitted.describe_fit(),
                **self._posteriors,
                **(self._marked.applied.describe() if self._marked else {}),
                num_scored=counts.scored,
                num_doubtful=counts.by_evidence,
                num_duplicates=counts.duplicates,
                near_duplicates=threshold,
                num_near_duplicates=counts.near_duplicates,
                image_faults=None if faults is None else faults.counts,
                **given(dropped_unseen=self._dropped_unseen() or None),
                num_bad_images=features.num_samples - counts.samples,
                warnings=tuple(warnings),
            )
        )
        added: dict[str, Duplicates | ImageFaults] = {**copies}
        if faults is not None:
            added[FAULT_COLUMN] = faults
        if self._before is None:
            return added, provenance
        suspicious = pa.chunked_array(self._suspicious, pa.string())
        newly_doubtful = count_newly_doubtful(self._before, suspicious, provenance)
        return added, provenance.updated(Provenance.of(given(newly_doubtful=newly_doubtful)))


def _complete_tables(
    tables: Iterable[pa.Table], added: Mapping[str, Duplicates | ImageFaults], extremes: Extremes
) -> Iterator[pa.Table]:
    """The row groups of a score file with all columns; `extremes` sees each of them."""
    start = 0
    for table in tables:
        num_rows = len(table)
        for name, found in added.items():
            table = table.append_column(name, found.column(start, num_rows))
        start += len(table)
        extremes.update(table)
        yield table


def grouped(batches: Iterable[pa.RecordBatch], num_rows: int) -> Iterator[pa.Table]:
    """Joins consecutive batches into tables of at least `num_rows` rows; the last may be short."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= num_rows:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)
