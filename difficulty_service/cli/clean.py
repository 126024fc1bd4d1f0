"""`difficulty clean`: scores and marks in, a cleaned dataset out."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from difficulty_service.base.errors import Setting
from difficulty_service.base.wording import count_of
from difficulty_service.cli.console import out as console
from difficulty_service.cli.console import print_table, print_warnings
from difficulty_service.cli.scored_images import find_images, find_images_or_warn
from difficulty_service.cli.wrong_call import WrongCall, as_option
from difficulty_service.settings.options import ScoredImages

if TYPE_CHECKING:
    from difficulty_service.cleaning.clean import Cleaned
    from difficulty_service.cleaning.decisions import Decisions
    from difficulty_service.scores.provenance import TagSource

Condition = Annotated[str | None, Parameter(metavar="CONDITION", allow_leading_hyphen=True)]


def clean(
    scores: Path,
    /,
    *,
    out: Path,
    marks: Path | None = None,
    drop: Condition = None,
    relabel: Condition = None,
    drop_duplicates: bool = False,
    new_classes: bool = False,
    link: Annotated[bool | None, Parameter(negative="--copy")] = None,
    dry_run: bool = False,
    images: ScoredImages = ScoredImages(),
) -> None:
    """Writes a cleaned dataset, from marks and conditions on scores; the original is unchanged.

    A mark has precedence over a condition, and the last mark of a sample over earlier ones. Marks
    that `difficulty score` remembered beside the scores are applied too.

    Args:
        scores: Score file.
        out: List (.csv or .parquet) or new folder to write; boxes and tags keep their own format
            (folder, .json, .xml or table).
        marks: Decisions: CSV or Parquet with sample_id, mark and label, or a file of Label Studio,
            CVAT or FiftyOne.
        drop: Drop samples that meet this condition, such as label_margin > 4 or almost certainly
            wrong.
        relabel: Give samples that meet this condition their nearest_label, or if it is about
            suspicion their suggested_label.
        drop_duplicates: Keep one of each group of exact or near copies, a marked one first; if
            their labels differ, only a marked one.
        new_classes: Accept marks with classes that do not exist yet.
        link: Fill a folder with symbolic links instead of copies.
        dry_run: Print what would change, and write nothing.
    """
    from difficulty_service.cleaning.clean import (
        check_new_folder,
        check_output,
        is_annotations,
        is_list,
        tags_to_write,
        write_folder,
        write_list,
        write_revision,
    )
    from difficulty_service.cleaning.decisions import CleaningRules, decide
    from difficulty_service.marks.files import read_marks
    from difficulty_service.marks.record import NO_MARKS, MarkHistory
    from difficulty_service.marks.review_folder import ReviewFolder
    from difficulty_service.scores.file import read_scores

    beside = ReviewFolder(scores).file
    is_told = drop_duplicates or not (marks is None and drop is None and relabel is None)
    if not is_told and not beside.exists():
        raise WrongCall(
            "nothing to do: give --marks, --drop, --relabel or --drop-duplicates; "
            f"{beside} holds no marks either"
        )
    score_file = read_scores(scores)
    tags = tags_to_write(out, score_file.provenance, images.images)
    is_file = tags is not None or is_list(out) or is_annotations(out)
    if link is not None and is_file:
        raise WrongCall(f"--link and --copy need a folder, and {out} is a file")
    if new_classes and marks is None and not beside.exists():
        raise WrongCall("--new-classes needs --marks")
    table = None if tags is None else Path(str(tags.table))
    inputs = [scores, beside, *filter(None, [marks, table])]
    check_output(out, inputs, images.images or score_file.provenance.dataset)
    if not is_file:
        check_new_folder(out)
    ids = set(score_file.table["sample_id"].to_pylist())
    later = NO_MARKS if marks is None else read_marks(marks, ids)
    every = MarkHistory(ReviewFolder(scores).remembered(ids), later).composed()
    print_warnings(every.warnings)
    if every.samples.keys() - later.samples.keys():
        console.print(f"the marks in {beside} are applied too")
    decisions = decide(
        score_file,
        CleaningRules(every.samples, drop, relabel, new_classes, drop_duplicates),
    )
    if tags is not None:
        refuse_reading(images)
        clean_tags(out, decisions, tags, dry_run=dry_run)
        return
    find = find_images_or_warn if is_list(out) else find_images
    source = find(score_file, images)
    revise = None if source is None else source.dataset.revise
    if is_annotations(out) and revise is None:
        raise WrongCall(
            f"{out}: only boxes of objects are written as {out.suffix}; end the name in .csv or "
            ".parquet for a list, or name a folder"
        )
    report_decisions(decisions)
    if dry_run:
        console.print("nothing is written")
        return
    if source is None or is_list(out):
        report_cleaned(out, write_list(out, decisions, source))
    elif revise is not None:
        read = score_file.provenance.dataset_options
        split = images.split or (None if read is None else read.split)
        report_cleaned(out, write_revision(out, decisions, revise, link=bool(link)), split)
    else:
        report_cleaned(out, write_folder(out, decisions, source, link=bool(link)))


def refuse_reading(images: ScoredImages) -> None:
    """Refuses options about how images are read, which tags are written without."""
    given = sorted(images.model_fields_set - {"images"})
    if given:
        raise WrongCall(f"{as_option(Setting(given[0]))} changes nothing, because tags are written")


def clean_tags(out: Path, decisions: "Decisions", tags: "TagSource", *, dry_run: bool) -> None:
    """Prints what is decided about tags, and writes their table unless it is a dry run."""
    from difficulty_service.base.analyses import ability
    from difficulty_service.cleaning.clean import write_revision

    report_decisions(decisions, "decision")
    if dry_run:
        console.print("nothing is written")
        return
    revise = partial(ability("tags", "revise"), tags)
    written = write_revision(out, decisions, revise, link=False, single=True)
    print_warnings(written.warnings)
    console.print(f"the tags are in {out}")
    if written.num_others:
        console.print(
            f"the images of {count_of(written.num_others, 'decision')} are taken out, and listed "
            f"in {written.dropped_file}"
        )


def report_decisions(decisions: "Decisions", noun: str = "sample") -> None:
    """Prints how many samples are kept, relabelled and dropped, in all and in each class.

    Of decisions about tags, only the classes in which something changes.
    """
    from difficulty_service.base.wording import is_or_are

    classes = decisions.classes
    rows = [
        (name, each.before, each.dropped, each.moved_out, each.moved_in, each.after)
        for name, each in classes.items()
        if noun == "sample" or each.dropped or each.moved_out or each.moved_in
    ]
    print_table(("class", "before", "dropped", "relabelled", "gained", "after"), rows)
    before, after = (
        sum(getattr(each, of) for each in classes.values()) for of in ("before", "after")
    )
    relabelled = sum(each.moved_out for each in classes.values())
    console.print(
        f"{after:,} of {before:,} {noun}s {is_or_are(after)} kept, {relabelled:,} of them with "
        f"another label; {before - after:,} {is_or_are(before - after)} dropped"
    )
    copies = decisions.copies
    if copies is not None and (copies.surplus or copies.conflicting):
        console.print(
            f"of those, {count_of(copies.surplus, 'copy', 'copies')} of a kept sample and "
            f"{count_of(copies.conflicting, 'copy', 'copies')} with different labels"
        )
    print_warnings(decisions.warnings)


def report_cleaned(out: Path, cleaned: "Cleaned", split: str | None = None) -> None:
    """Prints where the cleaned dataset is and how to score it, or the split that was cleaned."""
    from difficulty_service.base.wording import is_or_are

    print_warnings(cleaned.warnings)
    kept = f"{count_of(cleaned.num_kept, 'sample')} {is_or_are(cleaned.num_kept)}"
    console.print(f"{kept} in {out}")
    if cleaned.num_others:
        console.print(f"the others are listed in {cleaned.dropped_file}")
    if cleaned.misplaced_file is not None:
        boxes = (
            f"{count_of(cleaned.num_misplaced, 'box', 'boxes')} {is_or_are(cleaned.num_misplaced)}"
        )
        console.print(f"{boxes} misplaced, and listed in {cleaned.misplaced_file}")
    if cleaned.has_images:
        reading = "" if out.is_dir() else " --id-column sample_id"
        reading += "" if split is None else f" --split {split}"
        console.print(f"to score them: difficulty score {out}{reading} --out …")
