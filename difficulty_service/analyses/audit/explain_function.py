"""`explain`: scores and images in, what hard images share in words out."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from difficulty_service.analyses.audit.explained_scores import (
    SHIPPED_ATTRIBUTES,
    check_attributes,
    choose_clip,
    explain_scores,
    find_features,
    read_attributes,
    read_explained,
    write_explanation,
)
from difficulty_service.backbones.clip_space import PROJECTED
from difficulty_service.backbones.clip_text import load_text_encoder
from difficulty_service.base.errors import AuditError, BackboneError
from difficulty_service.base.files import require_output_file
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.plan import Plan
from difficulty_service.interface.image_sources import LabelledImages, is_pairs, open_images
from difficulty_service.interface.keywords import ExplainOptions
from difficulty_service.interface.options import progress_bar, require_names, run_of
from difficulty_service.interface.scores import Scores, warn
from difficulty_service.pages.stored_images import ImageSource, match_images
from difficulty_service.pages.stored_images import open_images as open_scored_images
from difficulty_service.scores.explanation import Explanation, explanation_file
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scoring.pipeline import Callbacks, execute, make_plan


def explain(
    scores: Scores | str | Path,
    *,
    images: LabelledImages | None = None,
    backbone: str | None = None,
    attributes: str | Path | Sequence[str] | None = None,
    out: str | Path | None = None,
    progress: bool = True,
    **options: Unpack[ExplainOptions],
) -> Explanation:
    """Says in words what the hard images of a class share and its easy images do not.

    Args:
        scores: Scores, or the path of a score file. Beside such a file, features are kept for the
            next call and `NAME.explained.json` is written, as `difficulty explain` does.
        images: The images, as for `score_dataset`; by default the dataset that the scores name.
        backbone: A CLIP, which knows images and words; by default that of the scores if it is one,
            else `clip-vit-b16`.
        attributes: Phrases, or the path of a text file with one on each line; by default those of
            the package.
        out: File to write, which ends in .json; by default none for scores in memory.
        progress: Whether to show a progress bar.
        **options: See `ExplainOptions`.

    Returns:
        All classes together, then each class that was examined, with its findings.

    Raises:
        DifficultyError: `AuditError` where there are too few samples or phrases, `BackboneError`
            where the backbone knows no words, and errors of the scores and the dataset.
    """
    require_names(options, ExplainOptions, "explain")
    file = None if isinstance(scores, Scores) else Path(scores)
    if out is None and file is not None:
        out = explanation_file(file)
    if out is not None:
        require_output_file(Path(out), (".json",), AuditError)
    if attributes is None or isinstance(attributes, str | Path):
        phrases = read_attributes(Path(attributes or SHIPPED_ATTRIBUTES))
    else:
        phrases = check_attributes(list(attributes), "the list")
    contents = _contents(scores)
    plan = _plan(options, backbone or choose_clip(contents), images)
    encoder = load_text_encoder(str(plan.backbone), plan.network)
    with ExitStack() as stack:
        if file is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="difficulty-"))
            file = Path(folder, "scores.parquet")
        store = find_features(contents, file.with_suffix(".features"), encoder)
        if store is None:
            source = _find_images(contents, images, plan.dataset)
            update = stack.enter_context(progress_bar(shown=progress))
            plan = replace(
                plan, location=source.dataset.location, out=file.with_suffix(".projected")
            )
            store = execute(plan, Callbacks(update), source.dataset).store
            warn(source.warnings)
        explanation, warnings = explain_scores(contents, store, encoder, phrases)
    warn(warnings)
    if out is not None:
        write_explanation(Path(out), explanation, contents, encoder)
    return explanation


def _contents(scores: Scores | str | Path) -> ScoreFile:
    if isinstance(scores, Scores):
        return ScoreFile(scores.table, scores.provenance)
    return read_explained(Path(scores))


def _plan(options: Mapping[str, Any], clip: str, images: LabelledImages | None) -> Plan:
    kind = options.get("features", PROJECTED)
    if kind != PROJECTED:
        raise BackboneError(f"features={kind!r} share no space with words", "leave it out")
    resume = images is None or not is_pairs(images)
    usual = {"features": PROJECTED, "backbone": clip, "resume": resume}
    return make_plan(run_of({**usual, **options}))


def _find_images(
    scores: ScoreFile, images: LabelledImages | None, reading: DatasetOptions
) -> ImageSource:
    """The dataset of the scores, or the images that are given."""
    ids = scores.table["sample_id"].to_pylist()
    if images is None or isinstance(images, str | Path):
        location = None if images is None else str(images)
        return open_scored_images(scores.provenance, ids, location, reading)
    dataset, warnings = open_images(images, reading)
    source = match_images(scores.provenance, ids, dataset)
    return replace(source, warnings=(*warnings, *source.warnings))
