"""The whole path where a sample has any number of tags: a dataset to features to judged tags."""

from pathlib import Path

from difficulty_service.analyses.tags.scores import require_place, score_tags, tags_of_samples
from difficulty_service.backbones import Loader, load_backbone
from difficulty_service.base.tables import strings_to_arrow
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset
from difficulty_service.datasets.tags import TagTable
from difficulty_service.extraction.plan import Plan
from difficulty_service.scoring.class_evidence import samples_of_features
from difficulty_service.scoring.judged_tags import ScoredTags
from difficulty_service.scoring.pipeline import (
    NO_CALLBACKS,
    Callbacks,
    execute,
)


def score_dataset_tags(
    plan: Plan,
    tags: TagTable,
    out: Path,
    callbacks: Callbacks = NO_CALLBACKS,
    dataset: Dataset | None = None,
    load: Loader = load_backbone,
) -> ScoredTags:
    """Extracts the features of a dataset and judges the tags of its samples.

    Args:
        out: File for the scores of the decisions about tags.
        callbacks: Of these, the ones of an extraction are called, and `extracted`.
        dataset: The dataset where it is open already; None to open the one at the location.

    Raises:
        DifficultyError: As for `execute`, `tags_of_samples` and `score_tags`.
    """
    require_place(out)
    dataset = dataset or open_dataset(plan.location, plan.dataset)
    tags_of_samples(tags, strings_to_arrow(dataset.sample_ids))  # before hours of extraction
    extracted = execute(plan, callbacks, dataset, load)
    callbacks.extracted(extracted)
    judged = tags_of_samples(tags, samples_of_features(extracted.store).sample_ids)
    return ScoredTags(extracted, score_tags(extracted.store, judged, out))
