"""Scores of features on disk, as the command makes them, on a pretended GPU."""

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import torch

from difficulty_service.features.array_files import open_features
from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.marks.files import read_marks
from difficulty_service.marks.review_folder import ReviewFolder
from difficulty_service.scores.file import read_scores
from difficulty_service.scoring import pipeline
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.fitted_gaussians import FittedGaussians
from difficulty_service.scoring.pipeline import ScoreRequest, score_features
from difficulty_service.settings.options import ScoringOptions
from tests.pretend.counting import counted
from tests.pretend.statistics_paths import apart_of, blobs

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


def score_stored(
    num_samples: int, options: dict[str, Any], marks: str | None = None
) -> dict[str, Any]:
    """What scoring a file of features waits for, and how far its columns are from the CPU's.

    Args:
        options: Some of `ScoringOptions`.
        marks: Lines of a file of marks; None for none.
    """
    tables: list[pa.Table] = []
    with _features(num_samples) as folder:
        counts = counted(lambda: tables.append(_scored(folder, CUDA, options, marks)))
        tables.append(_scored(folder, CPU, options, marks))
    names = tables[1].column_names
    apart = {name: apart_of(*(table[name] for table in tables)) for name in names}
    return {**counts, "apart": apart, "rows": len(tables[0])}


def score_few() -> dict[str, Any]:
    """What scoring so few features waits for that they stay on the CPU."""
    with _features(100) as folder:
        return counted(lambda: _scored(folder, CUDA, {}, None, least=101 * 16))


def score_stored_without_room() -> dict[str, Any]:
    """Scores of stored features where the GPU has no memory, beside the CPU's, and what is said."""

    def fit_where_there_is_room(source: FeatureSource, options: FitOptions) -> FittedGaussians:
        if source.device.type != "cpu":
            raise torch.OutOfMemoryError("out of memory")
        return fit_store(source, options)

    with (
        _features(200) as folder,
        patch.object(pipeline, "fit_store", fit_where_there_is_room),
        warnings.catch_warnings(record=True, action="always") as told,
    ):
        found = _scored(folder, CUDA, {}, "3,drop\n")
        expected = _scored(folder, CPU, {}, "3,drop\n")
    return {"same": found.equals(expected), "told": [str(each.message) for each in told]}


@contextmanager
def _features(num_samples: int) -> Iterator[Path]:
    """A folder with a file of features."""
    features, labels = blobs(num_samples, apart=0.8)
    features[7] = features[3]
    with tempfile.TemporaryDirectory() as place:
        np.savez(Path(place) / "f.npz", features=features.numpy(), labels=labels.numpy())
        yield Path(place)


def _scored(
    folder: Path,
    device: torch.device,
    options: dict[str, Any],
    marks: str | None,
    least: int = 0,
) -> pa.Table:
    review = None
    out = folder / f"{device.type}.parquet"
    if marks is not None:
        (folder / "marks.csv").write_text("sample_id,mark\n" + marks)
        review = ReviewFolder(out).open(read_marks(folder / "marks.csv", ()), None)
    request = ScoreRequest(out, ScoringOptions(**options), review=review, device=device)
    with patch.object(pipeline, "LEAST_NUMBERS", least):
        score_features(open_features(folder / "f.npz"), request)
    return read_scores(out).table
