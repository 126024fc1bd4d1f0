"""Samples of a split on a page: their pictures or texts, and where their features come from."""

from collections.abc import Sequence
from dataclasses import dataclass

from difficulty_service.base.errors import DifficultyError, Setting, Spell
from difficulty_service.pages.cards import Pictures, read_pictures
from difficulty_service.pages.origin import describe_provenance
from difficulty_service.pages.stored_images import ImageSource, open_images
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scoring.splits import Split


@dataclass(frozen=True)
class ShownSample:
    """One sample of a pair, as the templates show a card."""

    row: int
    sample_id: str
    title: str
    picture: str | None
    problem: str
    excerpt: str | None

    is_doubtful, nearest_name = False, None

    @property
    def text(self) -> str:
        """The sample in words, in place of its picture."""
        return ", ".join(dict.fromkeys((self.title, self.sample_id)))


def pictures_of(
    split: Split,
    sample_ids: Sequence[str],
    location: str | None,
    setting: Setting,
    notes: list[str],
    spell: Spell,
) -> Pictures:
    """Pictures of some samples; adds a sentence to the notes where there are none.

    Args:
        location: Location of the dataset; None for the one that the features were made of.
        setting: The setting that names the location.

    Raises:
        DifficultyError: A dataset that was named cannot be read.
    """
    if not sample_ids:
        return Pictures({}, {})
    try:
        source = _open(split, sample_ids, location)
    except DifficultyError as error:
        if location is not None:
            raise
        named = spell(Setting(setting.parameter, "DATASET"))
        notes.append(f"there are no pictures of {split.name}: {error.problem}; or name {named}")
        return Pictures({}, {})
    notes.extend(source.warnings)
    pictures = read_pictures(source, sample_ids, sample_ids)
    if pictures.problems:
        sample_id, why = next(iter(pictures.problems.items()))
        notes.append(
            f"{len(pictures.problems):,} of the samples of {split.name} on the page are not shown, "
            f"the first is {sample_id}: {why}"
        )
    return pictures


def _open(split: Split, sample_ids: Sequence[str], location: str | None) -> ImageSource:
    made = Provenance.of_features(split.source.description)
    return open_images(made, sample_ids, location)


def shown_sample(row: int, sample_id: str, label: str | None, pictures: Pictures) -> ShownSample:
    """A sample as the templates show it; `row` tells it from the others."""
    return ShownSample(
        row=row,
        sample_id=sample_id,
        title=sample_id if label is None else label,
        picture=pictures.uris.get(sample_id),
        problem=pictures.problems.get(sample_id, ""),
        excerpt=pictures.excerpts.get(sample_id),
    )


def facts_of(split: Split) -> Sequence[tuple[str, str]]:
    """Where the features of a split come from, as names and values."""
    plain, technical = describe_provenance(Provenance.of_features(split.source.description))
    return [*plain, *technical]
