"""Finished jobs with many samples, without images behind them."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from api.imported import import_scores
from api.settings import Settings
from api.storage.artifacts import open_artifacts
from api.storage.database import open_database, write_transaction
from api.storage.keys import list_keys
from api.storage.tables import JOBS
from difficulty_service.scores.file import ScoreFile, read_scores, write_scores
from difficulty_service.scores.provenance import Provenance
from tests.api.live.running import Service


def ids_of(number: int) -> list[str]:
    """Ids of so many samples."""
    return [f"photographs/{row:012d}.jpeg" for row in range(number)]


def scores_of_many_samples(path: Path, number: int, seed: int = 0) -> ScoreFile:
    """Scores of so many samples, which are written to a file, too."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, number)
    names = pa.array(["bird", "cat", "dog"])
    margins = generator.standard_normal(number)
    columns = {
        "sample_id": ids_of(number),
        "label": labels,
        "label_name": names.take(pa.array(labels)),
        "rmd": generator.standard_normal(number),
        "md_agnostic": generator.gamma(50, 2, number),
        "nearest_label": np.where(margins > 0, (labels + 1) % 3, labels),
        "label_margin": margins,
        "percentile": np.linspace(0, 1, number),
    }
    write_scores(
        path,
        pa.table(columns),
        Provenance.of({"class_names": names.to_pylist(), "dataset": "photos"}),
    )
    return read_scores(path)


def imported_job(service: Service, content: ScoreFile, owner: str) -> str:
    """Id of a new finished job of a key, by its name, with these scores."""
    environment = service.environment
    settings = Settings(
        data_dir=environment["DIFFICULTY_DATA_DIR"],
        database_url=environment["DIFFICULTY_DATABASE_URL"],
    )
    with open_database(settings) as engine:
        (key,) = (key.id for key in list_keys(engine) if key.name == owner)
        job = import_scores(engine, open_artifacts(settings.artifact_root), content, "photos/train")
        with write_transaction(engine) as connection:
            connection.execute(JOBS.update().where(JOBS.c.id == job.id).values(owner=key))
    return str(job.id)
