"""Loss and doubt of a trained classifier as scores of difficulty, in a score file.

Loss as difficulty and confidence as difficulty are the scores that Cui et al. (2023) compare the
relative Mahalanobis distance with in table 10.
"""

import hashlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from difficulty_service.base.contract import given
from difficulty_service.base.errors import Setting, TrainingError
from difficulty_service.features.description import RecordedOptions
from difficulty_service.scores.file import write_scores
from difficulty_service.scores.provenance import EvaluatedRun, Provenance
from trainer import run_folder
from trainer.config import Data
from trainer.evaluation.prediction_file import Predictions
from trainer.metrics.predictions import centred_blocks
from trainer.runs.evaluate import DatasetChoice
from trainer.runs.model_file import read_recipe

MEANINGS = {
    "loss": "cross-entropy of the label in nats, mean over the seeds",
    "doubt": "1 - the largest probability, mean over the seeds",
    "nearest_label": "class of the largest mean log-probability",
    "label_margin": "largest mean log-probability of another class minus the label's, in nats",
    "percentile": "rank of `loss`, 0 easiest to 1 hardest",
}
"""Meaning of the columns that are filled."""


def write_prediction_scores(
    path: Path,
    run: Path,
    predictions: Mapping[Path, Predictions],
    choice: DatasetChoice | None = None,
) -> None:
    """Writes the loss and the doubt of every sample as a score file.

    Probabilities are those of the models as trained, without temperature scaling.
    """
    first, *others = predictions.values()
    for other in others:
        if list(other.sample_ids) != list(first.sample_ids) or not torch.equal(
            other.targets, first.targets
        ):
            raise TrainingError(
                f"the seeds of {run} were evaluated on different samples",
                "evaluate all of them on one dataset with ",
                Setting("data"),
            )
    folder = next(iter(predictions))
    recipe, _ = read_recipe(folder)
    _, class_names = run_folder.read_inputs(folder / run_folder.INPUTS)
    table = prediction_scores(list(predictions.values()), class_names)
    has_test = (folder / run_folder.TEST).exists()
    location, options = _place(recipe.data, choice, has_test=has_test)
    provenance = Provenance(
        dataset=location,
        dataset_options=options,
        class_names=tuple(class_names),
        num_samples=len(table),
        num_scored=len(table),
        num_doubtful=pc.sum(pc.greater(table["label_margin"], 0)).as_py() or 0,
        package_version=version("difficulty-service"),
        predictions=EvaluatedRun(
            run=str(run),
            recipe=recipe.name,
            seeds={each.name: _sha256(each / run_folder.MODEL) for each in predictions},
            columns=MEANINGS,
        ),
        warnings=(),
    )
    write_scores(path, table, provenance)


def prediction_scores(seeds: Sequence[Predictions], class_names: Sequence[str]) -> pa.Table:
    """The columns of MEANINGS and the labels, one row per sample, in their order."""
    targets = seeds[0].targets.long()
    nearest = torch.empty(len(targets), dtype=torch.int32)
    losses, doubts, margins = (torch.empty(len(targets), dtype=torch.float64) for _ in range(3))
    for blocks in zip(*(centred_blocks(each.logits) for each in seeds), strict=True):
        rows = blocks[0][0]
        logarithms = [block.log_softmax(dim=1) for _, block in blocks]
        doubts[rows] = _mean([1 - each.amax(dim=1).exp() for each in logarithms])
        mean = _mean(logarithms)
        own = mean.gather(1, targets[rows, None])[:, 0]
        losses[rows] = -own
        nearest[rows] = mean.argmax(dim=1).int()
        rest = mean.scatter(1, targets[rows, None], -torch.inf)
        margins[rows] = rest.amax(dim=1) - own
    names = pa.array(list(class_names), pa.string())
    return pa.table(
        {
            "sample_id": list(seeds[0].sample_ids),
            "label": targets.int().numpy(),
            "label_name": pa.DictionaryArray.from_arrays(targets.int().numpy(), names),
            "loss": losses.numpy(),
            "doubt": doubts.numpy(),
            "nearest_label": nearest.numpy(),
            "nearest_label_name": pa.DictionaryArray.from_arrays(nearest.numpy(), names),
            # Without another class there is no margin.
            "label_margin": pa.array(margins.numpy(), mask=(~margins.isfinite()).numpy()),
            "percentile": _percentiles(losses).numpy(),
        }
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(tensors)).mean(dim=0)


def _percentiles(scores: Tensor) -> Tensor:
    """Ranks from 0 for the smallest to 1 for the largest; ties get their mean."""
    ordered = scores.sort().values
    low = torch.searchsorted(ordered, scores, side="left")
    high = torch.searchsorted(ordered, scores, side="right") - 1
    return (low + high).float() / max(1, 2 * (len(scores) - 1))


def _place(
    data: Data, choice: DatasetChoice | None, *, has_test: bool
) -> tuple[str, RecordedOptions]:
    """The dataset of the samples and how it was read, as other score files have them."""
    keys = data.model_dump()
    if choice is not None:
        location, split, label_column = choice.location, choice.split, choice.label_column
    elif has_test:
        location, split = data.test or "", keys.get("test_split")
        label_column = keys.get("test_label_column") or data.label_column
    elif isinstance(data.validation, str):
        location, split, label_column = (
            data.validation,
            keys.get("validation_split"),
            data.label_column,
        )
    else:
        location, split, label_column = data.train, data.split, data.label_column
    columns = given(image_column=keys.get("image_column"), label_column=label_column)
    named = given(split=split, id_column=data.id_column)
    return location, RecordedOptions(**columns, **named)
