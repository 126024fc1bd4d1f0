"""`difficulty explain`: what the hard images of a class share, in words."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from difficulty_service.cli.console import err, print_table, print_warnings
from difficulty_service.cli.console import out as console
from difficulty_service.cli.extract import plan_of, report_extraction, report_settled
from difficulty_service.cli.progress import exit_when_interrupted
from difficulty_service.cli.scored_images import find_images, reading_of
from difficulty_service.settings.machine import MachineOptions, NetworkOptions, RunOptions
from difficulty_service.settings.options import ScoredImages
from difficulty_service.settings.run import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from difficulty_service.extraction.plan import Plan
    from difficulty_service.features.store import FeatureStore
    from difficulty_service.pages.stored_images import ImageSource
    from difficulty_service.scores.explanation import Explanation, GroupFindings

GROUPS_SHOWN, FINDINGS_SHOWN = 20, 5
"""Number of classes in the table, and of attributes of each; the file has them all."""


def explain(
    scores: Path,
    /,
    *,
    backbone: str | None = None,
    attributes: Path | None = None,
    out: Path | None = None,
    images: ScoredImages = ScoredImages(),
    machine: MachineOptions = MachineOptions(),
) -> None:
    """Says in words what the hard images of a class share and its easy images do not.

    CLIP tells how similar each image is to phrases such as "a blurry photo". The hardest tenth of
    each class is compared with its easiest half, and what differs significantly is shown.

    Args:
        scores: Score file.
        backbone: CLIP, which knows images and words; default: the backbone of the scores if it is
            one, else clip-vit-b16.
        attributes: Text file with a phrase on each line; default: the shipped phrases.
        out: File to write, ending in .json; default: NAME.explained.json beside the scores, where
            `difficulty report` finds it.
    """
    from difficulty_service.analyses.audit.explained_scores import (
        SHIPPED_ATTRIBUTES,
        choose_clip,
        explain_scores,
        find_features,
        read_attributes,
        read_explained,
        write_explanation,
    )
    from difficulty_service.backbones.clip_text import load_text_encoder
    from difficulty_service.base.errors import AuditError
    from difficulty_service.base.files import require_output_file
    from difficulty_service.scores.explanation import explanation_file

    out = out or explanation_file(scores)
    require_output_file(out, (".json",), AuditError)
    phrases = read_attributes(attributes or SHIPPED_ATTRIBUTES)
    score_file = read_explained(scores)
    network = NetworkOptions(backbone=backbone or choose_clip(score_file), features="projected")
    run = Run(
        network=network,
        machine=RunOptions(**machine.model_dump()),
        features=scores.with_suffix(".projected"),
    )
    plan = plan_of(run)
    encoder = load_text_encoder(str(plan.backbone), plan.network)
    scored = scores.with_suffix(".features")
    store = find_features(score_file, scored, encoder)
    if store is None:
        source = find_images(score_file, images)
        plan = replace(plan, location=source.dataset.location, dataset=reading_of(images))
        store = extract_images(source, plan)
    else:
        err.print(f"the features are those that were scored, in {scored}")
    explanation, warnings = explain_scores(score_file, store, encoder, phrases)
    print_warnings(warnings)
    report_explanation(explanation)
    write_explanation(out, explanation, score_file, encoder)
    console.print(f"everything that was found is in {out}")


def extract_images(source: "ImageSource", plan: "Plan") -> "FeatureStore":
    """Features of the images in the space that they share with words; resumes an earlier run."""
    from difficulty_service.cli.progress import ImageProgressBar
    from difficulty_service.scoring.pipeline import Callbacks, execute

    goes_on = "stopped; the same command resumes where this one stopped"
    with exit_when_interrupted(goes_on), ImageProgressBar() as bar:
        err.print(f"features go to {plan.out}")
        callbacks = Callbacks(bar.update, report_settled)
        extracted = execute(plan.reporting(bar.download), callbacks, source.dataset)
    report_extraction(plan, extracted)
    return extracted.store


def report_explanation(explanation: "Explanation") -> None:
    """Prints what stands out, in all classes together and in each."""
    from difficulty_service.base.wording import count_of

    together, classes = explanation.groups[0], explanation.groups[1:]
    console.print(
        f"{together.num_hard:,} hard images (the hardest tenth of each class) beside "
        f"{together.num_easy:,} easy ones (the easiest half), by "
        f"{count_of(explanation.num_attributes, 'attribute')}"
    )
    found = [group for group in explanation.groups if group.findings]
    if found:
        found.sort(key=lambda group: (group is not together, -abs(group.findings[0].effect)))
        print_findings(found[: GROUPS_SHOWN + 1])
    else:
        console.print("\nnothing stands out: hard images are described as easy ones are")
    for sentence in explain_silence(explanation, len(classes), found):
        console.print(sentence)


def explain_silence(
    explanation: "Explanation", num_examined: int, found: "Sequence[GroupFindings]"
) -> list[str]:
    """Sentences about classes that are not in the table."""
    from difficulty_service.base.wording import count_of, is_or_are
    from difficulty_service.scores.explanation import HARD_SHARE, MIN_HARD

    with_findings = sum(group.class_name is not None for group in found)
    sentences = []
    if found and (silent := num_examined - with_findings):
        sentences.append(f"nothing stands out in {silent:,} of {num_examined:,} classes")
    if with_findings > GROUPS_SHOWN:
        sentences.append(f"{with_findings - GROUPS_SHOWN:,} more classes are in the file")
    if small := explanation.small_classes:
        least = round(MIN_HARD / HARD_SHARE)
        classes = f"{count_of(small, 'class', 'classes')} with fewer than {least} images"
        sentences.append(f"{classes} {is_or_are(small)} examined together with the others only")
    return sentences


def print_findings(groups: "Sequence[GroupFindings]") -> None:
    """Prints the attributes with the largest effects of each group."""
    from difficulty_service.cli.score_report import class_text

    rows = [
        (
            "all classes" if group.class_name is None else class_text(group.class_name),
            finding.attribute,
            f"{finding.effect:+.2f}",
            f"{100 * finding.difference:+.2f}",
            f"{100 * finding.low:+.2f} to {100 * finding.high:+.2f}",
        )
        for group in groups
        for finding in group.findings[:FINDINGS_SHOWN]
    ]
    console.print(
        "\nhard images are more (+) or less (-) like these phrases than easy images are; effects "
        "in standard deviations, differences of mean cosines times 100:"
    )
    print_table(("class", "phrase", "effect", "difference", "95 % interval"), rows)
    console.print()
