"""Score files of what the models of a run say of samples."""

from collections.abc import Collection, Mapping
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa

from difficulty_service.base.contract import given
from difficulty_service.base.files import file_sha256
from difficulty_service.base.tables import count_positive
from difficulty_service.features.description import RecordedOptions
from difficulty_service.scores.file import write_scores
from difficulty_service.scores.provenance import EvaluatedRun, Provenance
from trainer import run_folder
from trainer.runs.model_file import read_recipe

MARGIN = "label_margin"


def write_run_scores(
    path: Path,
    table: pa.Table,
    run: Path,
    folders: Collection[Path],
    dataset: tuple[str, RecordedOptions],
    meanings: Mapping[str, str],
) -> None:
    """Writes a score file.

    Args:
        table: The columns of the samples.
        folders: Those of the seeds whose models were asked.
        dataset: Location of the samples, and how they were read.
        meanings: Meaning of the columns that are filled.
    """
    first = next(iter(folders))
    recipe, _ = read_recipe(first)
    _, class_names = run_folder.read_inputs(first / run_folder.INPUTS)
    location, options = dataset
    doubtful = count_positive(table[MARGIN]) if MARGIN in table.column_names else None
    provenance = Provenance(
        dataset=location,
        dataset_options=options,
        class_names=tuple(class_names),
        num_samples=len(table),
        num_scored=len(table),
        **given(num_doubtful=doubtful),
        package_version=version("difficulty-service"),
        predictions=EvaluatedRun(
            run=str(run),
            recipe=recipe.name,
            seeds={each.name: file_sha256(each / run_folder.MODEL) for each in folders},
            columns=meanings,
        ),
        warnings=(),
    )
    write_scores(path, table, provenance)
