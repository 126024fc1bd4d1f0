"""How likely a label is to be wrong, and how much people would disagree about it.

`suspicion` compares the classes in features that are extended by similarities to landmarks, each
sample left out of the fit, and takes into account which classes are confused with each other.
`agree` compares them in the features alone, at the scale under which the labels are most probable.
Larger is harder in both. `docs/suspicion.md` has the derivation.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from difficulty_service.runtime.parallel import map_in_order, num_workers
from difficulty_service.statistics.chunks import Chunk, ChunkSource
from difficulty_service.statistics.class_densities import ClassDensities, fit_densities
from difficulty_service.statistics.feature_map import (
    FeatureMap,
    MappedChunks,
    make_feature_map,
)
from difficulty_service.statistics.label_noise import (
    judge_labels,
    label_probability,
    label_sums,
    log_noise,
    log_odds_against,
)
from difficulty_service.statistics.moments import Moments, accumulate_moments
from difficulty_service.statistics.products import (
    BLOCK_ROWS,
    Workspace,
    chunk_ranges,
    one_thread_per_product,
)
from difficulty_service.statistics.ridge import (
    MOST_SAMPLES,
    LabelledRows,
    RidgeChoice,
    likeliest_ridge,
)
from difficulty_service.statistics.row_sample import (
    choose_samples,
    count_rows,
    read_chunk_samples,
    read_samples,
)

POSTERIORS = ("suspicion", "agree")
"""Scorers of this module."""

LANDMARKS = 1024
"""Maximum number of samples that every other one is compared with."""

SAMPLES_PER_LANDMARK = 4
"""Minimum number of samples for each landmark: with fewer, they would fit single samples."""

DISTANCES_PER_BLOCK = 1 << 18
"""Approximate number of distances to classes that are held at a time, in several copies."""

NOISE_SAMPLES, NOISE_SAMPLES_PER_CLASS = 20_000, 50
"""Samples that the confusion of labels is estimated from: the larger of both numbers."""


@dataclass(frozen=True)
class Rule:
    """Class densities with the choice of their ridge and scale.

    Attributes:
        densities: The densities.
        choice: Ridge and scale.
        work: Memory for intermediate results, for each thread.
    """

    densities: ClassDensities
    choice: RidgeChoice
    work: Workspace = field(default_factory=Workspace)

    @property
    def sharp(self) -> float:
        """The scale of the posterior that ranks labels: 1, or more where labels call for more.

        A large ridge, which few samples need, makes all distances small.
        """
        return max(1.0, self.choice.scale)

    def log_joint(self, mapped: Tensor, labels: Tensor, scale: float) -> Tensor:
        """Log-density times a scale, plus log-prior. Shape (samples, fitted classes)."""
        densities = self.densities.log_densities(mapped, labels, self.work)
        return densities.mul_(scale).add_(self.densities.log_prior)


def samples_at_once(rule: Rule) -> int:
    """Number of samples whose distances to all classes are computed at a time."""
    numbers = len(rule.densities.classes) * rule.densities.runs
    return max(1, min(BLOCK_ROWS // rule.densities.runs, DISTANCES_PER_BLOCK // numbers))


@dataclass(frozen=True)
class LabelPosteriors:
    """Scores samples of the fit by what their features say about their labels.

    Attributes:
        feature_map: Map to the features of the densities.
        agree: Densities without landmarks; None where `agree` is not asked for.
        suspicion: Densities with landmarks; None where `suspicion` is not asked for.
        noise: Logarithms of label noise, from `log_noise`; None without `suspicion`.
        description: Choices that were made, JSON values by the name of each scorer.
        work: Memory for mapped features, for each thread.
    """

    feature_map: FeatureMap
    agree: Rule | None
    suspicion: Rule | None
    noise: Tensor | None
    description: Mapping[str, Any]
    work: Workspace = field(default_factory=Workspace)

    def columns(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The columns of some samples; the features are not changed.

        Args:
            features: Features as they are, the rows of a sample adjacent.
                Shape (samples * runs, dim).
            labels: Label of each sample, one of the fit. Shape (samples,).

        Returns:
            Some of `agree`, `suspicion`, `label_probability` and `suspected_label`, of shape
            (samples,). The numbers are NaN, and the label means nothing, for a sample that is
            alone in its class or where there is no other class.
        """
        rules = [rule for rule in (self.agree, self.suspicion) if rule is not None]
        most = samples_at_once(rules[0])
        runs = rules[0].densities.runs
        blocks = [
            self._columns_of_block(
                features[rows.start * runs : rows.stop * runs], labels[rows].long()
            )
            for rows in chunk_ranges(len(labels), most)
        ]
        return {name: torch.cat([block[name] for block in blocks]) for name in blocks[0]}

    def _columns_of_block(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The columns of so few samples that their distances to the classes fit in a cache."""
        mapped = self.feature_map(features, self.work)
        columns = {}
        if self.agree is not None:
            own = self.agree.densities.places(labels)
            plain = mapped[:, : len(self.feature_map.centre)]
            joint = self.agree.log_joint(plain, own, self.agree.choice.scale)
            columns["agree"] = log_odds_against(joint, own)
        if self.suspicion is not None and self.noise is not None:
            rule = self.suspicion
            own = rule.densities.places(labels)
            joint = rule.log_joint(mapped, own, rule.sharp)
            prior, factor = rule.densities.log_prior, rule.choice.scale / rule.sharp
            tempered = (joint - prior).mul_(factor).add_(prior)
            probability = label_probability(tempered, own, self.noise)
            verdict = judge_labels(joint, own, self.noise)
            columns["suspicion"] = verdict.suspicion
            several = len(rule.densities.classes) > 1
            columns["label_probability"] = probability if several else probability * torch.nan
            columns["suspected_label"] = rule.densities.classes[verdict.suspected]
        return columns


@dataclass(frozen=True)
class PosteriorOptions:
    """Options of `fit_posteriors`.

    Attributes:
        names: Some of POSTERIORS.
        num_classes: Number of class indices.
        runs: Rows per sample.
        matmul_dtype: dtype of the matrix products.
        seed: Seed of landmarks and samples.
    """

    names: Collection[str]
    num_classes: int
    runs: int = 1
    matmul_dtype: torch.dtype = torch.float32
    seed: int = 0


@one_thread_per_product()
def fit_posteriors(source: ChunkSource[Chunk], options: PosteriorOptions) -> LabelPosteriors:
    """Fits what scores the labels of a dataset, in two passes over it and parts of a third.

    Args:
        source: Labelled features; the rows of a sample follow each other.
        options: What to fit, and how.

    Raises:
        StatisticsError: All features are the same, or a feature is not finite.
    """
    runs, seed = options.runs, options.seed
    counts = count_rows(source)
    num_samples = sum(counts) // runs
    chosen = choose_samples(num_samples, MOST_SAMPLES, seed)
    sample = read_samples(source, counts, chosen, runs)
    with_landmarks = "suspicion" in options.names
    feature_map = make_feature_map(
        sample.features,
        min(LANDMARKS, num_samples // SAMPLES_PER_LANDMARK) if with_landmarks else 0,
        torch.Generator().manual_seed(seed),
        options.matmul_dtype,
    )
    mapped = MappedChunks(source, feature_map)
    points = feature_map(sample.features, Workspace())
    pilot = points.double().mean(dim=0).float().double()
    moments = accumulate_moments(
        mapped, pilot, options.num_classes, matmul_dtype=options.matmul_dtype
    )
    sample = LabelledRows(points.double(), sample.labels, runs)
    agree = suspicion = noise = None
    description: dict[str, Any] = {}
    if "agree" in options.names:
        agree = _fit_rule(sample, moments, len(feature_map.centre), options)
        description["agree"] = _describe(agree.choice)
    if with_landmarks:
        suspicion = _fit_rule(sample, moments, feature_map.dim, options)
        seen = choose_samples(
            num_samples, max(NOISE_SAMPLES, NOISE_SAMPLES_PER_CLASS * options.num_classes), seed
        )
        sums = _sum_labels(source, counts, seen, suspicion, feature_map)
        noise = log_noise(sums, num_samples / len(seen))
        description["suspicion"] = {
            **_describe(suspicion.choice),
            "landmarks": len(feature_map.landmarks),
            "width": feature_map.width,
            "noise_samples": len(seen),
        }
    return LabelPosteriors(feature_map, agree, suspicion, noise, description)


def _fit_rule(sample: LabelledRows, moments: Moments, dim: int, options: PosteriorOptions) -> Rule:
    """The densities in the first dimensions, with the ridge of the likeliest labels."""
    moments = first_dimensions(moments, dim)
    sample = LabelledRows(sample.features[:, :dim], sample.labels, sample.runs)
    choice = likeliest_ridge(sample, moments)
    return Rule(fit_densities(moments, choice.ridge, options.runs, options.matmul_dtype), choice)


def first_dimensions(moments: Moments, dim: int) -> Moments:
    """The moments of the first dimensions of the same samples."""
    return Moments(
        moments.pilot[:dim],
        moments.counts,
        moments.class_sums[:, :dim],
        moments.scatter[:dim, :dim],
    )


def _sum_labels(
    source: ChunkSource[Chunk], counts: Sequence[int], seen: Tensor, rule: Rule, mapped: FeatureMap
) -> Tensor:
    """Sums for the label noise over some samples.

    Args:
        source: Labelled features as they are.
        counts: Number of rows of each chunk.
        seen: Numbers of the samples, ascending.
        rule: Densities of mapped features.
        mapped: The map.
    """
    runs, work = rule.densities.runs, Workspace()
    classes = len(rule.densities.classes)

    def sums_of_chunk(item: tuple[Chunk, int]) -> Tensor:
        chunk, first_row = item
        sums = torch.zeros(classes, classes, dtype=torch.float64)
        sample = read_chunk_samples(source, chunk, first_row, seen, runs)
        for rows in chunk_ranges(len(sample.labels), samples_at_once(rule)):
            features = sample.features[rows.start * runs : rows.stop * runs]
            own = rule.densities.places(sample.labels[rows])
            joint = rule.log_joint(mapped(features, work), own, rule.sharp)
            sums += label_sums(joint, own)
        return sums

    numbered = zip(source.chunks(), accumulate(counts[:-1], initial=0), strict=True)
    total = torch.zeros(classes, classes, dtype=torch.float64)
    for sums in map_in_order(sums_of_chunk, numbered, num_workers()):
        total += sums
    return total


def _describe(choice: RidgeChoice) -> dict[str, Any]:
    return {key: None if value != value else value for key, value in asdict(choice).items()}  # noqa: PLR0124
