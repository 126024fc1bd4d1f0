"""Features as people decided about their samples, and what they saw when they did."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.features.description import is_store
from difficulty_service.features.source import FeatureSource
from difficulty_service.features.store import open_store
from difficulty_service.marks.record import MarkedSample, Marks
from difficulty_service.marks.review_folder import Review, UndoneRound
from difficulty_service.scoring.marked_features import MarkedFeatures, apply_marks, find_samples


def reviewed(
    store: FeatureSource,
    review: Review,
    taken_back: Callable[[UndoneRound], None],
    marked: Callable[[MarkedFeatures], None],
) -> FeatureSource:
    """Features as people decided; what they decided is remembered before anything else can fail.

    Args:
        taken_back: Called when decisions have been taken back.
        marked: Called when decisions have been applied and are remembered.

    Raises:
        CleaningError: As for `apply_marks`.
    """
    if review.undone is not None:
        review.take_back()
        taken_back(review.undone)
    if not review.history:
        return store
    changed = apply_marks(store, review.history)
    review.remember(changed.applied.remembered.values())
    marked(changed)
    return changed


def as_seen(review: Review | None, features: Path) -> Review | None:
    """New decisions with the content that their samples had when people looked at them.

    The features beside the scores tell, until the dataset as it is now takes their place.
    """
    if review is None or not review.history.later.samples or not is_store(features):
        return review
    try:
        later = with_contents(review.history.later, open_store(features))
    except FeatureStoreError:
        return review  # whoever extracts says what is wrong with them
    return replace(review, history=replace(review.history, later=later))


def with_contents(marks: Marks, source: FeatureSource) -> Marks:
    """Marks with the content that their samples have in features, where it is not known yet.

    Marks without `given_label` stay as they are: whoever wrote them by hand may have looked at
    something else.
    """
    by_id, _ = find_samples(source, list(marks.samples))

    def complete(marked: MarkedSample) -> MarkedSample:
        sample = by_id.get(marked.sample_id)
        if sample is None or marked.content is not None or marked.given_label is None:
            return marked
        return replace(marked, content=sample.content)

    return Marks.of(map(complete, marks.samples.values()), marks.warnings)
