"""Several given labels per sample: consensus, annotators, and what is worth another label."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.analyses.annotators.annotator_labels import AnnotatorLabels, read_labels
from difficulty_service.analyses.annotators.given_labels import (
    agreement_with_others,
    error_rates,
    krippendorff_alpha,
    majority,
    sample_agreement,
)
from difficulty_service.analyses.annotators.model import (
    AnnotatorModel,
    fit_annotators,
    judge_samples,
)
from difficulty_service.base.errors import DatasetError
from difficulty_service.base.files import require_output_file
from difficulty_service.base.tables import WRITERS, save_table, to_arrow
from difficulty_service.base.wording import count_of, list_names
from difficulty_service.datasets.label_tables import LabelColumns, LabelTable
from difficulty_service.features.array_files import is_array_file, open_features
from difficulty_service.features.source import FeatureSource
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import ID_COLUMN, LABEL_COLUMN, MARK_COLUMN, Marks
from difficulty_service.scores.file import ScoreFile, read_scores
from difficulty_service.scores.samples import class_names_of
from difficulty_service.scoring.class_evidence import (
    KnownSamples,
    Witness,
    samples_of_features,
    samples_of_scores,
    witness_of_features,
    witness_of_scores,
)

SURE = 0.95
"""Probability from which a consensus is taken for granted."""

FEWEST_CONSTANT = 10
"""Labels from which an annotator who names one class alone is told."""

GIVEN = "given label"
"""Name of the annotator who gave the labels of the dataset, where these count."""

Source: TypeAlias = FeatureSource | ScoreFile
"""Features of samples, or their scores."""


@dataclass(frozen=True)
class ConsensusOptions:
    """What counts.

    Attributes:
        sure: Probability from which a consensus relabels a sample; below it, another label helps.
        count_given: Whether the label of the dataset counts as that of one more annotator.
        marks: What people decided about some samples, whose class is known for sure then.
    """

    sure: float = SURE
    count_given: bool = False
    marks: Marks | None = None


@dataclass(frozen=True)
class AnnotatorReport:
    """What several labels per sample and the features say together.

    Attributes:
        samples: A row for each sample in the order of the dataset: `sample_id`, `mark` (`relabel`
            where a sure consensus differs from the given label, else null), `label` (the new class
            then), `given_label`, `consensus_label`, `p_consensus`, `p_given`, `labels` (their
            number), `agreement` (share of pairs of labels that agree), `another_label` (whether it
            is worth one) and `gain` (what one adds to `p_consensus` on average). Null where a
            sample has too few labels.
        annotators: A row for each annotator: `annotator`, `labels`, `agreement_with_others`,
            `agreement_with_consensus`, `agreement_with_features`, and `error_rate` with the 95 %
            interval `error_low` to `error_high`.
        alpha: Krippendorff's alpha of the labels; None where no two can be compared.
        model: What was fitted.
        num_verified: Number of samples whose class a person had verified.
    """

    samples: pa.Table
    annotators: pa.Table
    alpha: float | None
    model: AnnotatorModel
    num_verified: int
    warnings: tuple[str, ...]

    @property
    def marks(self) -> pa.Table:
        """The samples to be relabelled."""
        return self.samples.filter(self.samples[MARK_COLUMN].is_valid())

    def save(self, path: Path) -> Path:
        """Writes the samples, and the annotators beside them; the path of these."""
        beside = annotators_file(path)
        save_table(path, self.samples)
        save_table(beside, self.annotators)
        return beside


def annotators_file(path: Path) -> Path:
    """The file of annotators beside one of samples."""
    return path.with_name(f"{path.stem}.annotators{path.suffix}")


def require_report_file(path: Path) -> None:
    """Raises DatasetError where a report cannot be written to a path."""
    require_output_file(path, WRITERS, DatasetError)


def open_source(path: Path) -> Source:
    """Opens features or a score file."""
    if path.is_dir() or is_array_file(path):
        return open_features(path)
    return read_scores(path)


def samples_of(source: Source) -> KnownSamples:
    """The samples of features or scores."""
    if not isinstance(source, ScoreFile):
        return samples_of_features(source)
    names = class_names_of(source)
    number = 1 + max(names, default=0)
    return samples_of_scores(source, tuple(names.get(index, str(index)) for index in range(number)))


def judge_annotators(
    source: Source,
    table: LabelTable,
    columns: LabelColumns,
    options: ConsensusOptions,
    folder: Path | None = None,
) -> AnnotatorReport:
    """Judges samples and annotators by the labels of a table and by features or scores.

    Features are fitted to the class that most labels of each sample name. Samples without a label
    keep the given one for that, and have no consensus.

    Args:
        source: Features, or scores where the features are gone.
        table: Labels of annotators.
        columns: Its columns.
        options: What counts.
        folder: Folder of a temporary file with a number for each sample and class; None for that
            of the system.

    Raises:
        DatasetError: The table has no label that can be used.
        StatisticsError: There are no two classes to tell apart.
        ScoreFileError: The scores do not name the classes that fit best.
    """
    samples = samples_of(source)
    labels = read_labels(table, columns, samples.sample_ids, samples.class_names)
    if options.count_given:
        labels = labels.with_given(samples.given, GIVEN)
    samples, warnings = _verify(samples, options.marks)
    given = labels.given
    with _witness(source, samples, labels, folder) as witness:
        model = fit_annotators(
            witness.evidence, witness.log_prior, given, witness.scale, samples.verified
        )
        judged = _judge(witness, labels, model, samples)
    alpha = krippendorff_alpha(given)
    silent = int((given.per_sample() == 0).sum())
    if silent:
        warnings.append(f"{count_of(silent, 'sample')} without a label of an annotator")
    warnings += _constant(labels, judged, samples.class_names)
    if np.isnan(alpha):
        warnings.append("no sample has two labels to compare, or all labels name one class")
    return AnnotatorReport(
        _sample_table(samples, labels, judged, options.sure),
        _annotator_table(labels, judged, model),
        None if np.isnan(alpha) else alpha,
        model,
        int((samples.verified >= 0).sum()),
        (*labels.warnings, *warnings),
    )


def _witness(
    source: Source, samples: KnownSamples, labels: AnnotatorLabels, folder: Path | None
) -> AbstractContextManager[Witness]:
    if isinstance(source, ScoreFile):
        return nullcontext(witness_of_scores(source, samples))
    likely = majority(labels.given, samples.given)
    likely = torch.where(samples.verified >= 0, samples.verified, likely)
    return witness_of_features(source, likely, folder)


def _verify(samples: KnownSamples, marks: Marks | None) -> tuple[KnownSamples, list[str]]:
    """The samples with the classes that a person decided on, and what could not be used."""
    if marks is None:
        return samples, []
    known = samples.verified.clone()
    warnings = list(marks.warnings)
    index = {name: place for place, name in enumerate(samples.class_names)}
    ids = pa.array(list(marks.samples), pa.string())
    places = pc.index_in(ids, value_set=samples.sample_ids).to_pylist()
    unknown = places.count(None)
    if unknown:
        warnings.append(f"{count_of(unknown, 'mark')} of unknown samples")
    others = set()
    for place, mark in zip(places, marks.samples.values(), strict=True):
        if place is None or mark.mark is Mark.DROP:
            continue
        label = mark.label or mark.given_label or samples.class_names[int(samples.given[place])]
        known[place] = index.get(label, -1)
        if label not in index:
            others.add(label)
    if others:
        warnings.append(f"marks of other classes are not used: {list_names(sorted(others))}")
    return replace(samples, verified=known), warnings


@dataclass(frozen=True)
class _Judged:
    """What is thought of samples and labels.

    Attributes:
        consensus: Likeliest class of each sample. Shape (samples,), as of the four that follow.
        p_consensus: Its probability.
        p_given: Probability that the given label of the dataset is right.
        features: Likeliest class by the features alone.
        gain: As in `JudgedRows`.
        right: Probability that each label of an annotator is right. Shape (labels,).
    """

    consensus: Tensor
    p_consensus: Tensor
    p_given: Tensor
    features: Tensor
    gain: Tensor
    right: Tensor


def _judge(
    witness: Witness, labels: AnnotatorLabels, model: AnnotatorModel, samples: KnownSamples
) -> _Judged:
    parts = []
    for judged in judge_samples(witness.evidence, labels.given, model):
        rows, posterior, gain = judged.rows, judged.posterior, judged.gain
        known = samples.verified[rows]
        sure = known >= 0
        posterior[sure] = F.one_hot(known[sure], posterior.shape[1]).double()
        own = labels.given.of_samples(rows)
        place = labels.given.samples[own] - rows.start
        best = posterior.max(dim=1)
        parts.append(
            (
                best.indices,
                best.values,
                posterior.gather(1, samples.given[rows, None])[:, 0],
                judged.features.argmax(dim=1),
                gain.masked_fill(sure, 0),
                posterior[place, labels.given.classes[own]],
            )
        )
    return _Judged(*(torch.cat(each) for each in zip(*parts, strict=True)))


def _constant(labels: AnnotatorLabels, judged: _Judged, class_names: Sequence[str]) -> list[str]:
    """A sentence for each annotator who names one class, of samples that mostly have another."""
    given = labels.given
    number = given.per_annotator()
    ends = [
        torch.zeros_like(number).scatter_reduce(
            0, given.annotators, given.classes, which, include_self=False
        )
        for which in ("amin", "amax")
    ]
    wrong = torch.zeros(len(number)).double().index_add_(0, given.annotators, 1 - judged.right)
    suspect = (ends[0] == ends[1]) & (wrong > number / 2) & (number >= FEWEST_CONSTANT)
    return [
        f"{labels.annotators[each]} always says {class_names[int(ends[0][each])]!r}, in "
        f"{count_of(int(number[each]), 'label')}; leave out an annotator who did not answer"
        for each in suspect.nonzero().flatten().tolist()
    ]


def _sample_table(
    samples: KnownSamples, labels: AnnotatorLabels, judged: _Judged, sure: float
) -> pa.Table:
    number = labels.given.per_sample()
    decided = ((number > 0) | (samples.verified >= 0)).numpy()
    names = pa.array(samples.class_names, pa.string())
    given, consensus = (
        names.take(pa.array(each.numpy())) for each in (samples.given, judged.consensus)
    )
    is_sure = (judged.p_consensus >= sure).numpy()
    moved = decided & is_sure & (judged.consensus != samples.given).numpy()

    def where(chosen: NDArray[np.bool_], values: pa.Array) -> pa.Array:
        return pc.if_else(pa.array(chosen), values, pa.scalar(None, values.type))

    return pa.table(
        {
            ID_COLUMN: samples.sample_ids,
            MARK_COLUMN: where(moved, pa.array([Mark.RELABEL.value] * len(moved), pa.string())),
            LABEL_COLUMN: where(moved, consensus),
            "given_label": given,
            "consensus_label": where(decided, consensus),
            "p_consensus": where(decided, pa.array(judged.p_consensus.numpy())),
            "p_given": where(decided, pa.array(judged.p_given.numpy())),
            "labels": pa.array(number.numpy(), pa.int32()),
            "agreement": to_arrow(sample_agreement(labels.given).numpy()),
            "another_label": pa.array(~(decided & is_sure)),
            "gain": pa.array(judged.gain.numpy()),
        }
    )


def _annotator_table(labels: AnnotatorLabels, judged: _Judged, model: AnnotatorModel) -> pa.Table:
    given = labels.given
    rates = error_rates(given, 1 - judged.right, model.spread)
    number = given.per_annotator()

    def agreeing(classes: Tensor) -> NDArray[np.float64]:
        same = given.annotators[classes[given.samples] == given.classes]
        share: NDArray[np.float64] = (same.bincount(minlength=len(number)) / number).numpy()
        return share

    return pa.table(
        {
            "annotator": pa.array(labels.annotators, pa.string()),
            "labels": pa.array(number.numpy()),
            "agreement_with_others": to_arrow(agreement_with_others(given).numpy()),
            "agreement_with_consensus": to_arrow(agreeing(judged.consensus)),
            "agreement_with_features": to_arrow(agreeing(judged.features)),
            "error_rate": to_arrow(rates.rate.numpy()),
            "error_low": to_arrow(rates.low.numpy()),
            "error_high": to_arrow(rates.high.numpy()),
        }
    )
