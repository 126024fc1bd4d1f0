"""The score file of how a run learned its training samples, averaged over its seeds."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from difficulty_service.base.contract import given
from difficulty_service.base.errors import Setting, TrainingError
from difficulty_service.base.tables import to_arrow
from difficulty_service.features.description import RecordedOptions
from trainer import run_folder
from trainer.reports.evaluation import percentiles
from trainer.reports.run_scores import write_run_scores
from trainer.runs.model_file import read_recipe
from trainer.training.dynamics import COLUMNS

MEANINGS = {
    "aum": "largest logit of another class minus the label's, mean over epochs and seeds",
    "el2n": "length of the probabilities minus the one-hot label, mean over epochs and seeds",
    "forgetting": "wrong after right, or the epochs where it never was right, mean over the seeds",
    "incorrectness": "share of the epochs in which it was wrong, mean over the seeds",
    "percentile": "rank of `el2n`, 0 easiest to 1 hardest",
}
"""Meaning of the columns that are filled."""


def write_dynamics_scores(path: Path, run: Path, seeds: Sequence[int]) -> None:
    """Writes a row for each sample that any seed was trained on.

    Raises:
        TrainingError: A seed was trained without `training.dynamics`.
    """
    folders = [run_folder.seed_folder(run, seed) for seed in seeds]
    tables = [_read(folder / run_folder.DYNAMICS) for folder in folders]
    every = pa.concat_tables(tables)
    sample_ids, first, number = np.unique(
        every["sample_id"].to_numpy(), return_index=True, return_inverse=True
    )
    counts = np.bincount(number)
    order = np.argsort(first)  # as the first seed that has them
    labels = every["label"].to_numpy()[first][order]
    means = {name: np.bincount(number, every[name].to_numpy()) / counts for name in COLUMNS}
    recipe, _ = read_recipe(folders[0])
    _, class_names = run_folder.read_inputs(folders[0] / run_folder.INPUTS)
    el2n = means["el2n"][order]
    ranks = percentiles(torch.from_numpy(el2n))
    table = pa.table(
        {
            "sample_id": sample_ids[order],
            "label": pa.array(labels, pa.int32()),
            "label_name": pa.DictionaryArray.from_arrays(
                pa.array(labels, pa.int32()), pa.array(list(class_names), pa.string())
            ),
            **{name: to_arrow(values[order]) for name, values in means.items()},
            "percentile": pa.array(ranks.numpy(), mask=np.isnan(el2n)),
        }
    )
    keys = recipe.data.model_dump()
    columns = {key: keys.get(key) for key in ("split", "label_column", "image_column", "id_column")}
    dataset = recipe.data.train, RecordedOptions(**given(**columns))
    write_run_scores(path, table, run, folders, dataset, MEANINGS)


def _read(path: Path) -> pa.Table:
    if not path.exists():
        raise TrainingError(
            f"{path.parent} does not say how its samples were learned",
            "train it from the start with ",
            Setting("write_dynamics", "dynamics.parquet"),
        )
    return pq.read_table(path)
