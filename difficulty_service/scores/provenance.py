"""Where the scores of a file come from: the JSON under the key `difficulty` of its metadata."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Self

from pydantic import Strict

from difficulty_service.base.contract import Contract, Names
from difficulty_service.features.description import Extraction, FeatureDescription


class FittedOn(Contract):
    """The features that Gaussians were fitted to, as far as a score file names them."""

    dataset: str | None = None
    """Location of their dataset."""
    fingerprint: str | None = None
    """Fingerprint of that dataset."""
    num_samples: int | None = None
    """Number of its samples."""
    corruption: str | None = None
    """Corruption of its images; absent for clean ones."""

    @classmethod
    def of_features(cls, description: FeatureDescription) -> Self:
        """Those fields of a description that it has."""
        fields = set(cls.model_fields)
        return cls.of(description.model_dump(include=fields, exclude_unset=True))


class LabelRuleFit(Contract):
    """What was fitted for `suspicion` or `agree`."""

    ridge: float | None = None
    """Ridge added to every direction, as a share of the mean variance of all samples."""
    scale: float | None = None
    """Factor on the squared distances, beta."""
    likelihood: float | None = None
    """Mean log-probability of the labels left out, in nats."""
    landmarks: int | None = None
    """Number of landmarks; only of `suspicion`, like the keys below."""
    width: float | None = None
    """Width of the kernel around a landmark."""
    noise_samples: int | None = None
    """Number of samples from which the confusions of labels were estimated."""
    own_distance: float | None = None
    """Squared distance of every sample to its own class mean, assumed for a large dataset."""
    covariance_samples: int | None = None
    """Number of samples in the covariance within classes; absent if all are."""
    noise_scale: float | None = None
    """Factor on the squared distances beside wrong labels, tau."""
    noise_wrong: float | None = None
    """Share of wrong labels, pi."""
    noise_wrong_low: float | None = None
    """Lower end of its 95 % interval."""
    noise_wrong_high: float | None = None
    """Upper end of its 95 % interval."""
    noise_seen: float | None = None
    """Share of the wrong labels that follow which classes are labelled as which, rho."""


class RandomCheck(Contract):
    """Result of a random check: a person looked at samples in a random order."""

    checked: int
    """Number of these samples."""
    wrong: int
    """Number of them that were relabelled or dropped."""
    among: int
    """Number of samples not checked before, including these."""
    since: int
    """Number of wrong labels among them that were found in other ways."""
    beside: int = 0
    """Number of samples among them that were looked at in another way in the same round, before the
    random ones or after them."""
    wrong_beside: int = 0
    """Number of those that were wrong, which are counted in `since`, too."""


class ConsensusInput(Contract):
    """What tells one input of a consensus from the others; null for what is not known."""

    name: str
    """Name of the file or of the features."""
    backbone: str | None
    """Backbone of the features."""
    weights_sha256: str | None
    """SHA-256 of its weights."""
    features: str | None
    """Layer that the features are taken from."""
    feature_dim: int | None
    """Length of a feature vector."""
    fingerprint: str | None
    """Fingerprint of the dataset."""
    shrinkage: int | float | str | None
    """Rule or intensity of the shrinkage."""

    @classmethod
    def of_provenance(cls, name: str, provenance: "Provenance") -> Self:
        """One input, from the provenance of its scores."""
        fields = cls.model_fields.keys() - {"name"}
        return cls(name=name, **{field: getattr(provenance, field) for field in fields})


class Consensus(Contract):
    """What a consensus is made of."""

    mean_of: str
    """What was averaged: `log-densities` or `ranks`."""
    inputs: Annotated[tuple[ConsensusInput, ...], Strict(strict=False)]
    """The inputs, in order."""
    columns: Mapping[str, str]
    """Meaning of each column."""


class EvaluatedRun(Contract):
    """The trained classifiers whose predictions were scored."""

    run: str
    """Folder of the run."""
    recipe: str
    """Name of its recipe."""
    seeds: Mapping[str, str]
    """SHA-256 of the model of each seed."""
    columns: Mapping[str, str]
    """Meaning of each column."""


class TagSource(Contract):
    """Where the tags of samples are written, and what was fitted to them."""

    table: str | None = None
    """Location of the table of tags; absent for tags in memory."""
    columns: Names = ()
    """Columns of tags, as given; empty for the usual one."""
    separator: str | None = None
    """Separator between the tags of a text."""
    id_column: str | None = None
    """Column with the ids of the samples, as it was named."""
    names: Names = ()
    """Name of each tag; the class of samples with it has the same index."""
    num_decisions: int | None = None
    """Number of samples times tags that were judged, also those without a row."""
    least: float | None = None
    """Smallest probability with which an absent tag has a row."""
    wrong: float | None = None
    """Share of the given tags that are wrong."""
    missing: float | None = None
    """Share of the true tags that are missing."""
    ridge: float | None = None
    """Ridge added to every direction, as a share of the mean variance of the features."""
    tag_ridge: float | None = None
    """Ridge added to the variance of each tag, as a share of it."""
    scale: float | None = None
    """Factor on the log-odds of the Gaussians, beta."""
    likelihood: float | None = None
    """Mean log-probability of a decision left out, in nats."""
    landmarks: int | None = None
    """Number of landmarks."""

    def updated(self, **values: object) -> Self:
        """The same with other values."""
        return self.of(self.to_json() | values)


class Provenance(Extraction):
    """Where scores come from and how they were computed; all of it may be unknown."""

    schema_version: int | None = None
    """Version of the columns and of these keys; always there."""
    dataset: str | None = None
    """Location of the dataset, as the user gave it."""
    fingerprint: str | None = None
    """Text that changes with the samples or their labels."""
    class_names: Names = ()
    """Name of each class index."""
    num_samples: int | None = None
    """Number of samples of the dataset."""
    shard_size: int | None = None
    """Largest number of samples of a shard of the features."""
    augment_runs: int | None = None
    """Number of randomly augmented passes over each image; 0 for one plain pass."""
    fitted_on: FittedOn | None = None
    """Dataset, fingerprint, samples and corruption that the Gaussians were fitted to."""
    shrinkage: int | float | str | None = None
    """Rule or intensity of the shrinkage."""
    products: str | None = None
    """Data type of the matrix products."""
    reliable: bool | None = None
    """Whether there were enough samples, or shrinkage, to trust the scores."""
    unit_length: bool | None = None
    """Whether features were scaled to unit length."""
    within_intensity: float | None = None
    """Shrinkage intensity of the covariance within classes."""
    within_ridge: float | None = None
    """Its ridge."""
    within_condition: float | None = None
    """Its condition number; null if singular."""
    within_rank: int | None = None
    """Its rank."""
    agnostic_intensity: float | None = None
    """Shrinkage intensity of the covariance of all samples."""
    agnostic_ridge: float | None = None
    """Its ridge."""
    agnostic_condition: float | None = None
    """Its condition number; null if singular."""
    agnostic_rank: int | None = None
    """Its rank."""
    num_scored: int | None = None
    """Number of samples with an `rmd`, or of a classifier's predictions with a `loss`."""
    num_doubtful: int | None = None
    """Number of samples with a `suspicion` above 0, or without that column a `label_margin` above
    0."""
    num_duplicates: int | None = None
    """Number of samples with a `duplicate_of`."""
    near_duplicates: int | float | None = None
    """Smallest cosine of near copies; null if they were not looked for."""
    num_near_duplicates: int | None = None
    """Number of samples with a `near_duplicate_of`; null if they were not looked for."""
    image_faults: Mapping[str, int] | None = None
    """Number of images with each `image_fault` that occurs; only with that column."""
    num_bad_images: int | None = None
    """Number of samples that could not be read."""
    marks: Mapping[str, int] | None = None
    """Number of samples with each mark applied before scoring: `keep`, `relabel`, `drop` and, of
    boxes, `misplaced`; absent without marks."""
    round: int | None = None
    """Number of this round of scores, 1 more than the latest round of these marks; absent without
    marks."""
    newly_doubtful: int | None = None
    """Number of unverified samples whose `suspicion` is above 0 now but was not in an earlier
    round; only with marks, if the earlier scores were a Parquet file in the same place or of the
    job with these marks."""
    random_check: RandomCheck | None = None
    """Result of the latest random check; absent without one."""
    dropped_unseen: int | None = None
    """Number of samples that a condition dropped before, without a look at each: the fit of
    `suspicion` no longer sees errors like these; absent without any."""
    suspicion: LabelRuleFit | None = None
    """What was fitted for `suspicion`; only with that column."""
    agree: LabelRuleFit | None = None
    """What was fitted for `agree`; only with that column."""
    tags: TagSource | None = None
    """Source of the tags, and what was fitted; only of tags, where each row is a decision about one
    tag."""
    consensus: Consensus | None = None
    """What was averaged, of which inputs, and the meaning of each column; only in a consensus."""
    predictions: EvaluatedRun | None = None
    """Run, recipe, seeds and the meaning of each column; only of `difficulty evaluate`
    and `difficulty train`."""

    @classmethod
    def of_features(cls, description: FeatureDescription) -> Self:
        """What scores have of the description of their features."""
        known = description.to_json()
        return cls.of({key: value for key, value in known.items() if key != "num_shards"})

    @classmethod
    def in_common(cls, inputs: Sequence["Provenance"]) -> Self:
        """What all inputs of a consensus have in common, and where the images of the first are."""
        first, *others = [each.to_json() for each in inputs]
        common = {
            key: value
            for key, value in first.items()
            if key != "schema_version" and all(other.get(key) == value for other in others)
        }
        if "fingerprint" not in common:
            # The images of a page or a cleaned list are looked for where the first input has them.
            places = ("dataset", "dataset_options")
            common |= {key: first[key] for key in places if key in first}
        return cls.of(common)

    def updated(self, other: "Provenance") -> Self:
        """Everything that either of two knows; the other has precedence."""
        return self.of(self.to_json() | other.to_json())
