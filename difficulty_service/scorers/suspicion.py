"""How likely a label is to be wrong, and how much people would disagree about it.

`suspicion` compares the classes in features that are extended by similarities to landmarks, each
sample left out of the fit, and takes into account which classes are confused with each other.
`agree` compares them in the features alone, at the scale under which the labels are most probable.
Larger is harder in both. `docs/suspicion.md` has the derivation.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isnan
from typing import Any

import torch
from torch import Tensor

from difficulty_service.base.device_copies import send_all
from difficulty_service.base.process_setup import give_back_freed_memory
from difficulty_service.gaussians.batches import Batch, BatchSource, TransformedBatches
from difficulty_service.gaussians.feature_map import FeatureMap, make_feature_map
from difficulty_service.gaussians.label_noise import LabelNoise
from difficulty_service.gaussians.label_rule import (
    Rule,
    first_dimensions,
    fit_label_noise,
    fit_rule,
    samples_at_once,
    scaled_dimensions,
    sum_labels,
)
from difficulty_service.gaussians.moments import Moments, accumulate_moments, pilot_of
from difficulty_service.gaussians.products import (
    BLOCK_ROWS,
    Workspace,
    one_thread_per_product,
    row_ranges,
)
from difficulty_service.gaussians.ridge import MOST_SAMPLES, LabelledRows, RidgeChoice
from difficulty_service.gaussians.row_sample import choose_samples, count_rows, read_samples
from difficulty_service.gaussians.sampled_moments import (
    WeightedRows,
    accumulate_sampled_moments,
    choose_weighted_rows,
)
from difficulty_service.scores.score_columns import LIKELIEST_CLASSES

POSTERIORS = ("suspicion", "agree")
"""Scorers of this module."""

LANDMARKS = 1024
"""Maximum number of samples that every other one is compared with."""

SAMPLES_PER_LANDMARK = 4
"""Minimum number of samples for each landmark: with fewer, they would fit single samples."""

NOISE_SAMPLES, NOISE_SAMPLES_PER_CLASS = 20_000, 50
"""Samples that the confusion of labels is estimated from: the larger of both numbers."""


SAMPLES_PER_DIMENSION, DIMENSIONS_PER_CLASS_SAMPLE = 24, 4
"""Samples of a large dataset for each dimension, and dimensions for each sample of a mean class."""

COVARIANCE_SAMPLES_PER_DIMENSION = 64, 256
"""Fewest and most samples for each dimension of which a large dataset takes its covariance."""

COVARIANCE_SAMPLES_PER_CLASS_SAMPLE = 32
"""Samples in between for each one of a class, whose mean is then the less certain by far."""


def is_large(num_samples: int, num_classes: int, dim: int) -> bool:
    """Whether the distance of a sample to its own class hardly matters to what it is taken for.

    To the differences of the distances of a sample, that distance only matters as a share of the
    samples, in all and in its class, because the sample is left out of the fit.
    """
    needed = max(SAMPLES_PER_DIMENSION, num_classes / DIMENSIONS_PER_CLASS_SAMPLE)
    return num_samples >= needed * dim


def covariance_samples(num_samples: int, dim: int, labels: Tensor) -> int:
    """Number of samples of a large dataset from which on more of them hardly change the distances.

    A class mean of n samples and a covariance of m blur the direction between two classes by
    dim / n and dim / m, so that with many classes fewer samples suffice for the covariance. The
    labels are those of some samples, shape (samples,).
    """
    shares = labels.bincount().double() / len(labels)
    of_own_class = num_samples * float(shares.square().sum())
    fewest, most = (dim * samples for samples in COVARIANCE_SAMPLES_PER_DIMENSION)
    enough = round(COVARIANCE_SAMPLES_PER_CLASS_SAMPLE * of_own_class)
    return min(max(enough, fewest), most)


@dataclass(frozen=True)
class LabelPosteriors:
    """Scores samples of the fit by what their features say about their labels.

    Attributes:
        feature_map: Map to the features of the densities; those of `agree` are the first of them.
        suspicion_map: Map to those of `suspicion`, which is the same unless samples are few.
        agree: Densities without landmarks; None where `agree` is not asked for.
        suspicion: Densities with landmarks; None where `suspicion` is not asked for.
        noise: How labels come about; None where there is nothing to compare, or without
            `suspicion`.
    """

    feature_map: FeatureMap
    suspicion_map: FeatureMap
    agree: Rule | None
    suspicion: Rule | None
    noise: LabelNoise | None
    description: Mapping[str, Mapping[str, float | None]]
    work: Workspace = field(default_factory=Workspace)

    def columns(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The columns of some samples of the fit; the features are not changed.

        Features as they are have shape (samples * runs, dim), the rows of a sample adjacent, and
        labels (samples,), both on the device of the source that was fitted. `agree`, or
        `suspicion`, `p_wrong`, `suggested_label` and LIKELIEST_CLASSES, or all, of shape
        (samples,): the numbers are NaN, and the labels mean nothing, for a sample that is alone in
        its class or where there is no other class. The second and third class mean nothing where
        their probability is NaN.
        """
        rules = [rule for rule in (self.agree, self.suspicion) if rule is not None]
        most = samples_at_once(rules[0])
        runs = rules[0].densities.runs
        blocks = [
            self._columns_of_block(
                features[rows.start * runs : rows.stop * runs], labels[rows].long()
            )
            for rows in row_ranges(len(labels), most)
        ]
        return {name: torch.cat([block[name] for block in blocks]) for name in blocks[0]}

    def log_densities(self, features: Tensor, labels: Tensor) -> Tensor:
        """Log-densities of the fitted classes of `suspicion`, without each sample in the fit.

        Of so few samples as fit a block; arguments as for `columns`. Shape (samples, fitted), up to
        a constant for each sample.
        """
        rule = self.suspicion
        if rule is None:
            raise ValueError("suspicion was not asked for")
        own = rule.densities.places(labels)
        found = rule.log_densities(self.suspicion_map(features, self.work), own)
        # Taken from each block before the next one overwrites it.
        return torch.cat([densities.clone() for _, densities in found])

    def log_joint_of_agree(self, features: Tensor, places: Tensor) -> Tensor:
        """Log-density plus log-prior of the fitted classes of `agree`, without each sample.

        Of so few samples as fit a block; the features are as for `columns`, and the places are
        those of the labels among the fitted classes. Shape (samples, fitted), up to a constant for
        each sample; NaN where a class has no density without the sample.
        """
        rule = self.agree
        if rule is None:
            raise ValueError("agree was not asked for")
        plain = self.feature_map(features, self.work)[:, : len(self.feature_map.centre)]
        found = rule.log_densities(plain, places)
        # Taken from each block before the next one overwrites it.
        return torch.cat([rule.log_joint(each, rule.choice.scale).clone() for _, each in found])

    def _columns_of_block(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The columns of so few samples that their products with the classes take little memory."""
        columns: dict[str, list[Tensor]] = defaultdict(list)
        if self.agree is not None:
            rule = self.agree
            own = rule.densities.places(labels)
            plain = self.feature_map(features, self.work)[:, : len(self.feature_map.centre)]
            for rows, densities in rule.log_densities(plain, own):
                verdict = rule.judge(densities, own[rows])
                columns["agree"].append(verdict.suspicion)
        if self.suspicion is not None:
            rule = self.suspicion
            own = rule.densities.places(labels)
            mapped = self.suspicion_map(features, self.work)
            for rows, densities in rule.log_densities(mapped, own):
                verdict, likeliest = rule.judge_by_noise(densities, own[rows], self.noise)
                places, probabilities = likeliest
                probabilities.masked_fill_(verdict.suspicion.isnan()[:, None], torch.nan)
                columns["suspicion"].append(verdict.suspicion)
                columns["p_wrong"].append(verdict.suspicion.sigmoid())
                columns["suggested_label"].append(rule.densities.classes[verdict.suggested])
                for place, (label, probability) in enumerate(LIKELIEST_CLASSES.items()):
                    columns[label].append(rule.densities.classes[places[:, place]])
                    columns[probability].append(probabilities[:, place].float())
        return {name: torch.cat(parts) for name, parts in columns.items()}


@dataclass(frozen=True)
class PosteriorOptions:
    """Options of `fit_posteriors`; there are `runs` rows per sample.

    Attributes:
        given: Label that each sample had before a person verified the one that it has, -1 where
            nobody did; None where nobody verified any. Shape (samples,).
    """

    names: Collection[str]
    num_classes: int
    runs: int = 1
    matmul_dtype: torch.dtype = torch.float32
    seed: int = 0
    given: Tensor | None = None


@one_thread_per_product()
def fit_posteriors(source: BatchSource[Batch], options: PosteriorOptions) -> LabelPosteriors:
    """Fits what scores the labels of a dataset, in two passes over it and parts of a third."""
    runs, seed, num_classes = options.runs, options.seed, options.num_classes
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
    large = with_landmarks and runs == 1 and is_large(num_samples, num_classes, feature_map.dim)
    if large and options.matmul_dtype == torch.float32:
        feature_map = replace(feature_map, rounded=True)
    points = _map_rows(feature_map, sample.features)
    sample = LabelledRows(points, sample.labels, runs)
    mapped = TransformedBatches(source, send_all(feature_map, source.device))
    rows = None
    if large:
        most = covariance_samples(num_samples, feature_map.dim, sample.labels)
        rows = choose_weighted_rows(num_samples, chosen, most, seed)
    moments = _accumulate(mapped, counts, rows, pilot_of(points), options)
    give_back_freed_memory()
    agree = suspicion = noise = None
    suspicion_map = feature_map
    description: dict[str, Mapping[str, float | None]] = {}
    if "agree" in options.names:
        agree = fit_rule(
            sample, first_dimensions(moments, len(feature_map.centre)), options.matmul_dtype
        )
        description["agree"] = _describe(agree.choice)
    if with_landmarks:
        suspicion = fit_rule(sample, moments, options.matmul_dtype)
        if len(feature_map.landmarks) < LANDMARKS:
            plain = _fit_plain_rule(sample, moments, feature_map, options.matmul_dtype)
            if plain.choice.likelihood > suspicion.choice.likelihood:
                suspicion, suspicion_map = plain, feature_map.plain()
                scaled = sample.features[:, : suspicion_map.dim] / feature_map.scale
                sample = LabelledRows(scaled, sample.labels, runs)
        seen = choose_samples(
            num_samples, max(NOISE_SAMPLES, NOISE_SAMPLES_PER_CLASS * num_classes), seed
        )
        scale = num_samples / len(seen)
        exact = suspicion
        if large:
            suspicion = replace(exact, densities=exact.densities.with_mean_distance())
        sums = sum_labels(source, counts, seen, suspicion, suspicion_map).mul_(scale)
        given = None if options.given is None else options.given[chosen]
        noise = fit_label_noise(sample, torch.isin(chosen, seen) * scale, sums, exact, given)
        description["suspicion"] = {
            **_describe(suspicion.choice),
            "landmarks": len(suspicion_map.landmarks),
            "width": feature_map.width,
            "noise_samples": len(seen),
            **(noise.describe() if noise else {}),
            **_describe_large(suspicion, rows, num_samples),
        }
    del sample, points, moments
    give_back_freed_memory()
    fitted = LabelPosteriors(feature_map, suspicion_map, agree, suspicion, noise, description)
    return send_all(fitted, source.device)


def _accumulate(
    mapped: BatchSource[Batch],
    counts: Sequence[int],
    chosen: WeightedRows | None,
    pilot: Tensor,
    options: PosteriorOptions,
) -> Moments:
    """Moments of all rows, but for the covariance within classes if only some are chosen for it."""
    if chosen is None or len(chosen.numbers) == sum(counts):
        return accumulate_moments(
            mapped, pilot, options.num_classes, matmul_dtype=options.matmul_dtype
        )
    return accumulate_sampled_moments(
        mapped, counts, chosen, pilot, options.num_classes, options.matmul_dtype
    )


def _describe_large(
    rule: Rule, chosen: WeightedRows | None, num_samples: int
) -> dict[str, float | int]:
    """What only a large dataset has, for the metadata."""
    if chosen is None:
        return {}
    found: dict[str, float | int] = {"own_distance": rule.densities.own_distance}
    if len(chosen.numbers) < num_samples:
        found["covariance_samples"] = len(chosen.numbers)
    return found


def _fit_plain_rule(
    sample: LabelledRows, moments: Moments, feature_map: FeatureMap, matmul_dtype: torch.dtype
) -> Rule:
    """The rule for the unit vectors alone, whose moments follow from those of the mapped ones."""
    factors = 1 / feature_map.scale.double()
    dim = len(factors)
    rows = (sample.features[:, :dim] * factors).to(sample.features.dtype)
    plain = scaled_dimensions(first_dimensions(moments, dim), factors)
    return fit_rule(LabelledRows(rows, sample.labels, sample.runs), plain, matmul_dtype)


def _map_rows(feature_map: FeatureMap, rows: Tensor) -> Tensor:
    """Maps the rows of a sample. Shape (rows, mapped dim)."""
    mapped, work = feature_map.scale.new_empty(len(rows), feature_map.dim), Workspace()
    for block in row_ranges(len(rows), BLOCK_ROWS):
        mapped[block] = feature_map(rows[block], work)
    return mapped


def _describe(choice: RidgeChoice) -> dict[str, Any]:
    return {key: none_for_nan(value) for key, value in asdict(choice).items()}


def none_for_nan(value: float) -> float | None:
    """The number, or None where JSON has no number for it."""
    return None if isnan(value) else value
