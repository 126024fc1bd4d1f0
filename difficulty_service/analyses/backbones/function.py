"""`try_backbones`: which backbone suits labelled images, and how long each takes."""

from collections.abc import Sequence
from typing import Unpack

from difficulty_service.analyses.backbones.backbone_trial import (
    BackboneTrial,
    TrialCallbacks,
    useless_options,
)
from difficulty_service.analyses.backbones.backbone_trial import try_backbones as run_trial
from difficulty_service.base.errors import ConfigError
from difficulty_service.interface.image_sources import LabelledImages, open_images, zip_labels
from difficulty_service.interface.keywords import ReadingChoices
from difficulty_service.interface.options import progress_bar, read_options, require_names, run_of
from difficulty_service.interface.scores import warn
from difficulty_service.interface.tables import Column
from difficulty_service.scoring.pipeline import make_plan
from difficulty_service.settings.command_options import TrialOptions


def try_backbones(
    images: LabelledImages,
    labels: Column = None,
    *,
    backbones: str | Sequence[str],
    sample: int | None = None,
    progress: bool = True,
    **options: Unpack[ReadingChoices],
) -> BackboneTrial:
    """Tries backbones on samples of labelled images: how likely each makes the labels, how fast.

    Args:
        images: As for `score_dataset`.
        labels: As for `score_dataset`.
        backbones: Names; `difficulty backbones` lists them. One that cannot be tried is listed in
            `not_tried` with the reason.
        sample: Samples to draw at random by `seed`, in proportion to the classes and with some of
            each; None for 2,000, or up to 10,000 for five of each of many classes.
        progress: Whether to show a progress bar.
        **options: See `ReadingChoices`; `limit` and `weights` do not apply.

    Raises:
        ConfigError: An option does not apply or is out of bounds, or no backbone is named.
        BackboneError: None of the backbones can be tried.
        DatasetError: The images cannot be read as a dataset.
        StatisticsError: There are not two classes with two samples each.
    """
    require_names(options, ReadingChoices, "try_backbones")
    run = run_of(options)
    for name in sorted(useless_options(run)):
        raise ConfigError.leave_out(f"{name} does not apply to a trial", name)
    named = [backbones] if isinstance(backbones, str) else list(backbones)
    trial = read_options(TrialOptions, {"try_": named, "sample": sample})
    plan = make_plan(run)
    if labels is not None:
        images = zip_labels(images, labels)
    dataset, warnings = open_images(images, plan.dataset)
    with progress_bar(shown=progress) as update:
        found = run_trial(dataset, plan, trial, TrialCallbacks(progress=update))
    found = found.model_copy(update={"warnings": (*warnings, *found.warnings)})
    warn(found.warnings)
    return found
