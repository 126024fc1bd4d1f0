"""`difficulty export`: scores in, the format of another tool out."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from difficulty_service.base.plugins import function_of
from difficulty_service.base.wording import did_you_mean
from difficulty_service.cleaning.exports import EXPORTS, export_file, export_folder, needs_images
from difficulty_service.cli.console import out as console
from difficulty_service.cli.console import print_warnings
from difficulty_service.cli.scored_images import find_images
from difficulty_service.cli.wrong_call import WrongCall, options
from difficulty_service.settings.options import ScoredImages


def known_format(_type: object, name: str) -> None:
    """Raises ValueError for the name of no format."""
    if name not in EXPORTS:
        hint = did_you_mean(name, EXPORTS)
        raise ValueError(f"{name!r} is no format; {hint}expected one of {', '.join(EXPORTS)}")


def names(*, folders: bool) -> str:
    """The formats that are folders, or those that are files."""
    return ", ".join(each.name for each in EXPORTS.values() if each.is_folder == folders)


SENTENCES = "; ".join(f"{export.name}, {export.sentence}" for export in EXPORTS.values())
PLACE = f"File to write ({names(folders=False)}), or new folder ({names(folders=True)})."

PUSHED = (
    "Also upload the folder as the dataset USER/NAME of the Hugging Face hub "
    f"({', '.join(each.name for each in EXPORTS.values() if each.push)}); a new one is private."
)


def export(
    scores: Path,
    /,
    *,
    to: Annotated[str, Parameter(help=f"Format to write: {SENTENCES}.", validator=known_format)],
    out: Annotated[Path, Parameter(help=PLACE)],
    push: Annotated[str | None, Parameter(metavar="NAME", help=PUSHED)] = None,
    images: ScoredImages = ScoredImages(),
) -> None:
    """Writes scores for other tools.

    Args:
        scores: Score file.
    """
    from difficulty_service.cleaning.clean import check_new_folder, check_output
    from difficulty_service.scores.file import read_scores

    pushes = EXPORTS[to].push
    if push is not None and pushes is None:
        raise WrongCall(f"{to} is not uploaded, so --push would change nothing")
    score_file = read_scores(scores)
    check_output(out, [scores], images.images or score_file.provenance.dataset)
    if not needs_images(EXPORTS[to]) and (useless := images.model_fields_set):
        raise WrongCall(f"{to} has no images, so {options(useless)} would change nothing")
    if EXPORTS[to].is_folder:
        check_new_folder(out)
    source = find_images(score_file, images) if needs_images(EXPORTS[to]) else None
    if source is None or not EXPORTS[to].is_folder:
        exported = export_file(to, score_file, out, source)
    else:
        exported = export_folder(to, score_file, source, out)
    print_warnings(exported.warnings)
    for sentence in (f"the scores are in {out}", *exported.instructions):
        console.print(sentence)
    if push is not None and pushes is not None:
        console.print(f"uploaded to {function_of(pushes)(out, push)}")
