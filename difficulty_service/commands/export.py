"""`difficulty export`: scores in, the format of another tool out."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from difficulty_service.commands.console import out as console
from difficulty_service.commands.console import print_warnings
from difficulty_service.commands.options import IdColumn, ImageColumn, LabelColumn, Split
from difficulty_service.commands.scored_images import (
    ImageOptions,
    ImagesLocation,
    Scores,
    find_images,
)


class Format(StrEnum):
    """Format of an export."""

    CSV = "csv"
    JSONL = "jsonl"
    HUGGING_FACE = "huggingface"
    CLEANLAB = "cleanlab"
    FIFTYONE = "fiftyone"
    LABEL_STUDIO = "labelstudio"


def export(
    scores: Scores,
    to: Annotated[Format, typer.Option(help="Format to write.")],
    out: Annotated[
        Path,
        typer.Option(
            help="File to write (csv, jsonl, cleanlab), or new folder (huggingface, fiftyone, "
            "labelstudio)."
        ),
    ],
    images: ImagesLocation = None,
    split: Split = None,
    image_column: ImageColumn = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
) -> None:
    """Writes scores for other tools.

    **csv**, **jsonl**: all columns. **cleanlab**: its columns of label issues, as CSV or Parquet.
    **huggingface**: images and scores, for `datasets.load_from_disk`. **fiftyone**: a
    FiftyOneImageClassificationDataset. **labelstudio**: tasks to import, the most doubtful first.
    """
    from difficulty_service.cleaning.exports import EXPORTS, export_file, export_folder
    from difficulty_service.cleaning.output_place import check_new_folder, check_output
    from difficulty_service.datasets.sample import DatasetOptions
    from difficulty_service.score_file import read_scores

    reading = DatasetOptions(split, image_column, label_column, id_column)
    score_file = read_scores(scores)
    check_output(out, [scores], images or score_file.provenance.get("dataset"))
    if not EXPORTS[to.value].is_folder:
        if images is not None or reading != DatasetOptions():
            raise typer.BadParameter(
                f"{to.value} has no images, so options to find them do nothing"
            )
        exported = export_file(to.value, score_file, out)
    else:
        check_new_folder(out)
        source = find_images(score_file, ImageOptions(images, reading))
        exported = export_folder(to.value, score_file, source, out)
    print_warnings(exported.warnings)
    for sentence in (f"the scores are in {out}", *exported.instructions):
        console.print(sentence, markup=False)
