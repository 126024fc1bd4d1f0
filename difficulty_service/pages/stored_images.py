"""The images of scored samples, found again in their dataset.

Samples that are left out of a cleaned dataset or an export because of their images.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from difficulty_service.base.errors import CleaningError, ImageError, Setting
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener
from difficulty_service.datasets.tags.decisions import dataset_of_decisions
from difficulty_service.images.crops import seen_as
from difficulty_service.images.pixels import Pixels
from difficulty_service.scores.provenance import Provenance


@dataclass(frozen=True)
class StoredImage:
    """An encoded image.

    Attributes:
        path: Absolute path of its file; None if it is inside another file, or not on this machine.
        pixels: What becomes black and white of more than eight bits a channel.
    """

    path: Path | None
    data: bytes
    pixels: Pixels | None = None

    def read(self) -> bytes:
        """The encoded bytes."""
        return self.data if self.path is None else self.path.read_bytes()


@dataclass(frozen=True)
class ImageSource:
    """The dataset that has the images of the scored samples.

    Attributes:
        pixels: What became black and white of more than eight bits a channel.
    """

    dataset: Dataset
    warnings: tuple[str, ...]
    pixels: Pixels | None = None

    @property
    def is_text(self) -> bool:
        """Whether the samples are texts, whose bytes are UTF-8."""
        return self.dataset.modality == "text"

    def images(
        self, sample_ids: Collection[str], on_problem: Callable[[str, str], None]
    ) -> Iterator[tuple[str, StoredImage]]:
        """The images of some samples with their ids, in the order of the dataset.

        `on_problem` gets the id and the reason where an image cannot be read, or is not there.
        """
        missing = set(sample_ids)
        positions = (row for row, name in enumerate(self.dataset.sample_ids) if name in missing)
        # Shards without any of the samples are not opened, so that a few pictures come at once.
        shards = dict.fromkeys(position // self.dataset.shard_size for position in positions)
        for shard in list(shards):
            for sample in self.dataset.read_shard(shard):
                if sample.sample_id not in missing:
                    continue
                missing.remove(sample.sample_id)
                try:
                    image = find_image(seen_as(sample.open, self.pixels))
                    yield sample.sample_id, replace(image, pixels=self.pixels)
                except ImageError as error:
                    on_problem(sample.sample_id, f"image: {error}")
        for sample_id in sample_ids:
            if sample_id in missing:
                on_problem(sample_id, f"it is not in {self.dataset.location}")


def open_images(
    provenance: Provenance,
    sample_ids: Collection[str],
    location: str | None = None,
    given: DatasetOptions | None = None,
) -> ImageSource:
    """Opens the dataset that was scored, or a copy of it."""
    location = location or provenance.dataset
    if not location:
        raise CleaningError(
            "the score file does not say which dataset it was made from",
            "name the dataset as ",
            Setting("images"),
            parameter="images",
        )
    dataset = open_dataset(str(location), _options(provenance, given or DatasetOptions()))
    return match_images(provenance, sample_ids, dataset)


def match_images(
    provenance: Provenance, sample_ids: Collection[str], dataset: Dataset
) -> ImageSource:
    """The images of a dataset for the scored samples, or for decisions about their tags."""
    location = dataset.location
    if provenance.tags is not None:
        dataset = dataset_of_decisions(dataset, list(sample_ids), provenance.tags.names)
    known = set(dataset.sample_ids)
    if known.isdisjoint(sample_ids):
        examples = list(sample_ids)[:3]
        raise CleaningError(
            f"none of the {len(sample_ids):,} scored samples is in {location!r}: its ids look like "
            f"{list(dataset.sample_ids[:3])}, those of the scores like {examples}",
            "name the dataset that was scored as ",
            Setting("images"),
            ", or the column with the ids as ",
            Setting("id_column"),
            parameter="images",
        )
    return ImageSource(
        dataset,
        what_changed(provenance.fingerprint, dataset, location, found="images"),
        Pixels.of(provenance.preprocessing),
    )


def what_changed(
    fingerprint: str | None, dataset: Dataset, called: str, *, found: str
) -> tuple[str, ...]:
    """A warning where a dataset, called so, is not that of a fingerprint.

    Scores of a classifier's predictions have none: they do not say which files were predicted.
    """
    if fingerprint in {None, dataset.fingerprint}:
        return ()
    return (
        f"{called} differs from the dataset that was scored in its samples, labels or sizes; "
        f"{found} are found by their sample id",
    )


def find_image(opener: ImageOpener) -> StoredImage:
    """The file or the bytes of an image."""
    try:
        with opener() as file:
            # Only an image in a file of its own on this machine is opened by its name.
            name = getattr(file, "name", None)
            if isinstance(name, str):
                return StoredImage(Path(name).absolute(), b"")
            return StoredImage(None, file.read())
    except OSError as error:
        raise ImageError(f"cannot be read: {error.strerror or error}") from error


def _options(provenance: Provenance, given: DatasetOptions) -> DatasetOptions:
    """The options in the metadata, replaced by those that are given."""
    recorded = provenance.dataset_options
    values = {} if recorded is None else recorded.options()
    values |= {
        name: getattr(given, name)
        for name in ("split", "image_column", "label_column", "id_column")
        if getattr(given, name) is not None
    }
    return replace(given, **values)


@dataclass
class MissingImages:
    """Samples whose images are gone or cannot be read."""

    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, sample_id: str, reason: str) -> None:
        """Takes a sample into account."""
        self.reasons[sample_id] = reason

    def warnings(self) -> list[str]:
        """A sentence about all of them; none if there are none."""
        if not self.reasons:
            return []
        sample_id, reason = next(iter(self.reasons.items()))
        number = len(self.reasons)
        many = "samples are left out because of their images"
        left_out = "sample is left out because of its image" if number == 1 else many
        return [f"{number:,} {left_out}, the first is {sample_id}: {reason}"]
