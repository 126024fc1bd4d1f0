"""What is known of how features were made, and whether two sets of features go together.

A feature store, Gaussians and the head of a classifier keep it, and a score file repeats it. Each
field has a mark that says where two descriptions must agree on it.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from difficulty_service.base.checksums import load_checked
from difficulty_service.base.contract import Contract, Names, given
from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.base.wording import Noun, differences
from difficulty_service.images.modes import Mode

LEAST_AGREEMENT = 0.999
"""Spearman's correlation of scores from which on features of float32 and of bfloat16 are alike."""


class AgreementMark(Enum):
    """Where two descriptions must agree on a field; keys without a field are as `STORES`."""

    MUST_AGREE = "everywhere: between features and what was fitted to others, and between stores"
    STORES = "between stores of one dataset, which are resumed, merged or changed"
    SAME_DATASET = "between stores that are resumed or merged; changes with the dataset"
    MAY_CHANGE = "nowhere"


MUST_AGREE, STORES, SAME_DATASET, MAY_CHANGE = AgreementMark


class Need(Enum):
    """What a field that may be absent is needed for."""

    SCORES = "features without it can be read but not scored"


class PrecisionPilot(Contract):
    """How float32 and a precision of 16 bits, bfloat16 or float16, compare on some samples."""

    num_images: int
    """Number of samples that were encoded in both."""
    float32: float
    """Samples per second of the network alone, on a CPU of processor time."""
    bfloat16: float | None = None
    """The same in bfloat16; null where float16 was compared."""
    float16: float | None = None
    """The same in float16; null where bfloat16 was compared."""
    agreement: float | None
    """Spearman's correlation of RMD in float32 with RMD where the features, the Gaussians or both
    are of 16 bits: the smallest of the three. Null where 16 bits are so slow that the ranks do not
    matter; 0 where no Gaussians could be fitted."""

    @property
    def half(self) -> str:
        """The precision of 16 bits that was compared."""
        return "bfloat16" if self.float16 is None else "float16"

    @property
    def speedup(self) -> float:
        """How many times as fast the 16 bits are."""
        return (self.float16 or self.bfloat16 or 0.0) / self.float32

    @property
    def same_ranks(self) -> bool:
        """Whether scores by features of 16 bits rank as those by float32."""
        return self.agreement is not None and self.agreement >= LEAST_AGREEMENT


class ImageSizes(Contract):
    """Sizes of some images from all over a dataset."""

    num_images: int
    """Number of images that were looked at."""
    median_side: float
    """Median of their shorter sides in pixels."""


class RecordedOptions(Contract):
    """Options that choose the samples of a dataset and their ids; absent where not given."""

    format: str | None = None
    """How the dataset was read, where a person said so."""
    split: str | None = None
    """Split that was read."""
    image_column: str | None = None
    """Column of the images."""
    label_column: str | None = None
    """Column of the labels."""
    id_column: str | None = None
    """Column of the ids."""
    text_column: str | None = None
    """Column of the texts."""
    class_names: Names | None = None
    """Names that were given to the classes 0, 1, 2, ...; absent where none were."""
    unlabelled: bool | None = None
    """Whether labels were ignored; absent where not."""
    outlines: bool | None = None
    """Whether what is outside of the outlines of objects is grey; absent where not."""
    limit: int | None = None
    """Number of samples that were kept."""

    @classmethod
    def of_options(cls, options: object) -> Self:
        """Those options of a dataset, from an object that has them all as attributes."""
        return cls(**given(**{name: getattr(options, name) or None for name in cls.model_fields}))

    def options(self) -> dict[str, Any]:
        """The options by their names, without those that were not given."""
        return self.model_dump(include=set(type(self).model_fields), exclude_unset=True)


class MadeLabels(Contract):
    """How labels were made for samples without any."""

    classes: Names = ()
    """Names that images were compared with; only of labels by names, as the following."""
    prompt: str | None = None
    """What each image was compared with, with braces in place of the name."""
    clusters: int | None = None
    """Number of clusters; only of labels by clusters."""


class FeatureKind(Contract):
    """What made some features; null for what is not known."""

    backbone: Annotated[str | None, MUST_AGREE] = None
    """Name of the pretrained network."""
    weights_sha256: Annotated[str | None, MUST_AGREE] = None
    """SHA-256 of its weights."""
    features: Annotated[str | None, MUST_AGREE] = None
    """Network layer of the features: `penultimate` or `projected`."""
    feature_dim: Annotated[int | None, MUST_AGREE] = None
    """Length of a feature vector."""
    precision: Annotated[str | None, MUST_AGREE] = None
    """Data type of the network, such as `float32`; it agrees with `bfloat16` if `precision_pilot`
    says that scores rank the same."""
    flip: Annotated[bool | None, MUST_AGREE] = None
    """Whether features are averaged over each image and its mirror image."""
    preprocessing: Annotated[Mapping[str, object] | None, MUST_AGREE] = None
    """Input of the network: for images size (side of a square, or height and width), resize,
    interpolation, mean and standard deviation, and `fit` if the whole image is squashed or gets a
    border of the colour `fill`."""
    mode: Annotated[Mode | None, MUST_AGREE] = None
    """Preprocessing of images, `fast`, `exact` or `gpu`; absent for texts."""
    precision_pilot: Annotated[PrecisionPilot | None, MAY_CHANGE] = None
    """Measurement that chose the precision; absent without one."""

    def kind(self) -> dict[str, Any]:
        """JSON values of what made the features; null for what is not known."""
        return self.model_dump(mode="json", include=set(FeatureKind.marked(MUST_AGREE)))

    def kind_differences(self, other: "FeatureKind", names: tuple[str, str]) -> list[str]:
        """How features differ in kind, a phrase for each key; empty where they are of one kind.

        Features of the same network in float32 and in bfloat16 are of the same kind where the
        precision was chosen by a comparison in which both gave the same ranks; see
        `precision_warnings`.

        Args:
            names: Words that follow the values, such as `("in the features", "in the Gaussians")`.
        """
        return self._differences(other, names, FeatureKind.marked(MUST_AGREE))

    def _differences(
        self, other: "FeatureKind", names: tuple[str, str], fields: Collection[str]
    ) -> list[str]:
        alike = self.agreement_of_precisions(other) is not None
        one, two = (each.model_dump(mode="json", include=set(fields)) for each in (self, other))
        return differences(one, two, names=names, ignored=("precision",) if alike else ())

    def known_differences(self, other: "FeatureKind", names: tuple[str, str]) -> list[str]:
        """As `kind_differences`, of what both descriptions know, in any precision.

        Features of another precision are close enough for a classifier, and arrays of one's own do
        not say what made them.
        """
        one, two = self.kind(), other.kind()
        unknown = {key for key in one if None in (one[key], two[key])}
        return differences(one, two, names=names, ignored=unknown | {"precision"})

    def agreement_of_precisions(self, other: "FeatureKind") -> float | None:
        """Spearman's correlation by which features of two precisions are as good as of one.

        None where the precisions are the same, or where nothing has shown that they are alike: the
        one in bfloat16 was asked for, or is that of a GPU.
        """
        both = {str(each.precision): each for each in (self, other)}
        if set(both) != {"float32", "bfloat16"}:
            return None
        pilot = both["bfloat16"].precision_pilot
        return pilot.agreement if pilot is not None and pilot.same_ranks else None

    def precision_warnings(self, made_for: "FeatureKind", owner: str) -> tuple[str, ...]:
        """A sentence where features of one precision meet Gaussians or a head for another."""
        agreement = self.agreement_of_precisions(made_for)
        if agreement is None:
            return ()
        return (
            f"the features are of {self.precision} and those of {owner} of {made_for.precision}; "
            "the scores of some images agreed when the precision was chosen (Spearman's "
            f"correlation {agreement:.5f})",
        )


class Extraction(FeatureKind):
    """What made features, and by which options: known of a feature store and of a score file."""

    runtime: Annotated[str | None, MAY_CHANGE] = None
    """Library that ran the network in the latest run; absent for PyTorch, and on a cluster."""
    dataset_options: Annotated[RecordedOptions | None, MAY_CHANGE] = None
    """Split, columns and limit with which the dataset was read, if given."""
    containers: Annotated[str | None, MAY_CHANGE] = None
    """Digest of the paths, sizes and times of local files with many samples each; absent without
    such files."""
    image_sizes: Annotated[ImageSizes | None, MAY_CHANGE] = None
    """Image sizes that chose a bundled network; only if no backbone was named and the default one
    was unavailable."""
    modality: Annotated[Literal["image", "text", "sample"], STORES] = "image"
    """Kind of the samples; absent for images, and `sample` for features in arrays."""
    boxes: Annotated[bool, MAY_CHANGE] = False
    """Whether the samples are boxes of objects in images; absent if not."""
    decoder: Annotated[str | None, STORES] = None
    """Names and versions of the libraries on which the pixels of the images depend; absent for
    texts."""
    max_pixels: Annotated[int | None, STORES] = None
    """Largest number of pixels of an image; absent for texts."""
    corruption: Annotated[str | None, STORES] = None
    """Corruption of every image, such as `fog:3`; absent for clean ones."""
    augmentation: Annotated[str | None, STORES] = None
    """What augmented passes see, such as `flip_crop`; absent for crops of 35 to 100 % of the area,
    and without such passes."""
    seed: Annotated[int, STORES] = 0
    """Seed of the augmentation, of K-means and of the landmarks."""
    made_labels: Annotated[MadeLabels | None, MAY_CHANGE] = None
    """How the labels were made; absent for labels of the dataset, and without labels."""
    package_version: Annotated[str | None, MAY_CHANGE] = None
    """Version of this package that extracted the features or evaluated the classifier."""
    warnings: Annotated[Names, MAY_CHANGE] = ()
    """Warnings about the scores, one sentence each: first if features hardly tell the classes
    apart, then about the dataset."""

    @property
    def has_clusters(self) -> bool:
        """Whether the labels are clusters, made here, which no other labels are compared with."""
        return self.made_labels is not None and self.made_labels.clusters is not None

    @property
    def noun(self) -> Noun:
        """What a sample is in a word."""
        choice = self.dataset_options
        if self.boxes:
            return "object"
        if choice is not None and choice.text_column is not None:
            return "text"
        return self.modality


def numbers_of_runs(augment_runs: int) -> Sequence[int]:
    """Number of each view of an image: from 1 for random crops, 0 for the image itself."""
    return range(1, augment_runs + 1) if augment_runs else (0,)


UNKNOWN: dict[str, Any] = dict.fromkeys([*FeatureKind.marked(MUST_AGREE), "decoder", "max_pixels"])
"""What nobody knows of features in arrays, whose maker may be any program."""


class FeatureDescription(Extraction):
    """How the features of a store, or of arrays, were made: `store.json` of a feature store."""

    class_names: Annotated[Names, SAME_DATASET]
    """Name of each class index."""
    num_shards: Annotated[int, SAME_DATASET]
    """Number of shards of the complete store."""
    augment_runs: Annotated[int, STORES]
    """Number of randomly augmented passes over each image; 0 for one plain pass."""
    dataset: Annotated[str, MAY_CHANGE, Need.SCORES] = ""
    """Location of the dataset, as the user gave it."""
    fingerprint: Annotated[str, SAME_DATASET, Need.SCORES] = ""
    """Text that is another one where the samples or their labels are others."""
    num_samples: Annotated[int, SAME_DATASET, Need.SCORES] = 0
    """Number of samples of the dataset."""
    shard_size: Annotated[int, SAME_DATASET, Need.SCORES] = 0
    """Largest number of samples of a shard."""

    @classmethod
    def of(cls, values: object) -> Self:
        """The description that JSON values give, as one made by hand may.

        Raises:
            FeatureStoreError: Keys are missing, or values are of another type.
        """
        try:
            return super().of(values)
        except ValueError as error:
            raise _unusable(str(error)) from error

    @property
    def has_augmentation(self) -> bool:
        """Whether the features are those of random crops."""
        return self.augment_runs > 0

    @property
    def run_numbers(self) -> Sequence[int]:
        """Number of each row of a sample."""
        return numbers_of_runs(self.augment_runs)

    @property
    def rows_per_sample(self) -> int:
        """Number of rows per sample."""
        return len(self.run_numbers)

    def require_scorable(self) -> None:
        """Raises FeatureStoreError where a key is absent without which there are no scores."""
        needed = self.marked(Need.SCORES)
        absent = [
            name
            for name in type(self).model_fields
            if name in needed and name not in self.model_fields_set
        ]
        if absent:
            raise _unusable(f"lacks the keys {absent}")

    def with_warnings(self, warnings: Collection[str], runtime: str | None = None) -> Self:
        """The same description with other warnings, and a runtime where one is given."""
        values = {"warnings": tuple(warnings), **given(runtime=runtime)}
        return self.model_copy(update=values)

    def kind_and_class_differences(
        self, other: "FeatureDescription", names: tuple[str, str]
    ) -> list[str]:
        """As `kind_differences`, where also the classes must be the same."""
        return self._differences(other, names, {*self.marked(MUST_AGREE), "class_names"})

    def joined(self, others: Collection["FeatureDescription"], fingerprint: str) -> Self:
        """The description of the samples of several datasets whose features are of one kind."""
        every: list[FeatureDescription] = [self, *others]
        return self.model_copy(
            update={
                "dataset": " + ".join(each.dataset for each in every),
                "fingerprint": fingerprint,
                "num_samples": sum(each.num_samples for each in every),
            }
        )

    def origin(self) -> dict[str, Any]:
        """JSON values of the kind of the features, and of what identifies their samples."""
        known = {"dataset", "fingerprint", "class_names", "package_version"}
        known |= {"augment_runs", "augmentation"}
        return self.kind() | self.model_dump(mode="json", include=known, exclude_unset=True)

    def is_of_same_samples(self, other: "FeatureDescription") -> bool:
        """Whether features of the same kind are also of the same samples."""
        return self._samples() == other._samples()

    def _samples(self) -> tuple[object, ...]:
        drawn = self.corruption, self.augment_runs, self.augmentation, self.seed
        return self.precision, self.fingerprint, self.max_pixels, *drawn

    def store_differences(
        self,
        now: "FeatureDescription",
        *,
        names: tuple[str, str] = ("then", "now"),
        other_dataset: bool = False,
    ) -> list[str]:
        """How two stores differ in what must agree for the parts of one to be those of the other.

        Of another dataset, only what the features of an image depend on must agree.
        """
        return differences(
            self._settings(other_dataset=other_dataset),
            now._settings(other_dataset=other_dataset),
            names=names,
        )

    def image_settings(self) -> dict[str, Any]:
        """JSON values of all that the features of an image depend on."""
        return self._settings(other_dataset=True)

    def _settings(self, *, other_dataset: bool) -> dict[str, Any]:
        marks = (MAY_CHANGE, SAME_DATASET) if other_dataset else (MAY_CHANGE,)
        ignored = self.marked(*marks)
        return {key: value for key, value in self.to_json().items() if key not in ignored}


def _unusable(fault: str) -> FeatureStoreError:
    return FeatureStoreError(
        f"the description of the features {fault}",
        "make it with `difficulty extract`, or correct store.json",
    )


DESCRIPTION_FILE = "store.json"
FORMAT_KEY, FORMAT_VERSION = "format_version", 2
REMEDY = "delete the folder and run `difficulty extract` again"


def is_store(folder: Path) -> bool:
    """Whether a folder holds a feature store, complete or not."""
    return (folder / DESCRIPTION_FILE).is_file()


def read_description(folder: Path) -> FeatureDescription:
    """The description of a store's features.

    Raises:
        FeatureStoreError: The folder is not a store, or its description is damaged, of a version
            that this package does not know, lacks a key or has one of another type.
    """
    path = folder / DESCRIPTION_FILE
    try:
        values = load_checked(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise FeatureStoreError(
            f"{folder} is not a feature store: it has no {path.name}, which says how the features "
            "were made",
            "make both with `difficulty extract`",
        ) from None
    except ValueError as error:
        raise FeatureStoreError(f"{path} is damaged: {error}", REMEDY) from error
    version = values.pop(FORMAT_KEY, None)
    if version != FORMAT_VERSION:
        raise FeatureStoreError(
            f"{path} has version {version} of feature stores, but this package reads "
            f"{FORMAT_VERSION}",
            REMEDY,
        )
    return FeatureDescription.of(values)
