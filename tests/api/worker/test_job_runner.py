"""An attempt gives the results of the command line, and resumes where another one ended."""

import io
import json
import shutil
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from sqlalchemy import Engine

from api.http.problems import Problem
from api.jobs.queue import Progress, succeed
from api.jobs.store import Job
from api.jobs.stored_result import StoredResult
from api.results.score_columns import map_columns
from api.settings import Settings
from api.storage.artifacts import Artifacts
from api.worker.job_child import cached_loader
from api.worker.job_observer import Observer
from api.worker.job_runner import run_job
from difficulty_service.backbones import Loader, exported_graph
from difficulty_service.backbones.backbone import Backbone, BackboneOptions
from difficulty_service.base.errors import (
    DatasetError,
    FeatureStoreError,
    ImageError,
    StatisticsError,
)
from difficulty_service.extraction import policy
from difficulty_service.extraction.plan import Plan
from difficulty_service.reports.similar import most_similar
from difficulty_service.scores.file import read_scores
from difficulty_service.scoring.pipeline import ScoreRequest, score_dataset
from difficulty_service.settings.options import ScoringOptions
from tests.factories import write_image_folder
from tests.small_network import SMALL

LOAD = cached_loader()

Claim = Callable[..., Job]
Run = Callable[..., StoredResult]
ListKeys = Callable[[Artifacts, str], list[str]]


@pytest.fixture
def run(sqlite_engine: Engine, settings: Settings, artifacts: Artifacts, photos: Path) -> Run:
    """Runs a job on the photos."""
    assert photos.is_dir()

    def run_it(
        job: Job, check: Callable[[Progress], None] = lambda _: None, load: Loader = LOAD
    ) -> StoredResult:
        return run_job(job, settings, sqlite_engine, artifacts, Observer(check), load)

    return run_it


class Interrupted(Exception):
    """The error that a check raises in these tests."""


def test_the_scores_are_those_of_the_command_line(
    claimed: Claim, run: Run, photos: Path, artifacts: Artifacts, tmp_path: Path
) -> None:
    plan = Plan(str(photos), tmp_path / "store", SMALL)
    expected = tmp_path / "expected.parquet"
    score_dataset(plan, ScoreRequest(expected, ScoringOptions(shrinkage="ledoit-wolf")))

    result = run(claimed())

    with artifacts.open(f"{result.prefix}/scores.parquet") as file:
        assert pq.read_table(file).equals(read_scores(expected).table)


def test_the_result_describes_the_published_files(
    claimed: Claim, run: Run, artifacts: Artifacts, keys_below: ListKeys
) -> None:
    job = claimed()

    result = run(job)

    names = (
        "columns.arrow contents.arrow errors.parquet features.json features.npy "
        "gaussians.safetensors map.parquet scores.parquet vectors.npy"
    )
    assert keys_below(artifacts, "jobs") == [f"jobs/{job.id}/a1/{name}" for name in names.split()]
    assert result.prefix == f"jobs/{job.id}/a1"
    assert (result.num_samples, result.num_scored, result.num_bad_images) == (40, 40, 0)
    assert result.scores_bytes == artifacts.size(f"jobs/{job.id}/a1/scores.parquet")
    assert len(result.scores_sha256) == 64
    assert result.class_names == ("bird", "cat")
    assert result.stored_bytes == artifacts.total_bytes(result.prefix)


def test_what_the_pages_read_is_published_with_the_scores(
    claimed: Claim, run: Run, artifacts: Artifacts
) -> None:
    result = run(claimed())

    path = artifacts.local_path(f"{result.prefix}/columns.arrow")
    columns = None if path is None else map_columns(path)
    assert columns is not None
    assert columns.samples.ids.to_pylist() == table_of(artifacts, result)["sample_id"].to_pylist()
    assert columns.overview.summary.num_samples == 40


@pytest.mark.slow
def test_the_vectors_are_those_of_the_rows_of_the_score_file(
    claimed: Claim, run: Run, artifacts: Artifacts, photos: Path
) -> None:
    (photos / "bird" / "05.png").write_bytes(b"no picture")
    shutil.copy(photos / "bird" / "03.png", photos / "cat" / "19.png")

    result = run(claimed())

    with artifacts.open(f"{result.prefix}/vectors.npy") as file:
        vectors = np.load(io.BytesIO(file.read()))
    ids = table_of(artifacts, result)["sample_id"].to_pylist()
    assert len(vectors) == len(ids) == 39
    nearest = most_similar(vectors, ids.index("bird/03.png"), 1)
    assert [ids[row] for row in nearest] == ["cat/19.png"]


def test_progress_goes_from_none_to_all_samples(claimed: Claim, run: Run) -> None:
    seen: list[Progress] = []

    run(claimed(), seen.append)

    done = [progress.done for progress in seen]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, 40)
    assert {progress.total for progress in seen} == {40}
    assert any(progress.rate for progress in seen)


@pytest.mark.slow
def test_an_attempt_resumes_after_the_last_batch_to_the_scores_of_a_whole_one(
    claimed: Claim, run: Run, photos: Path, artifacts: Artifacts
) -> None:
    write_image_folder(photos, ("bird", "cat"), 70, size=(8, 8))
    job = claimed()
    whole = claimed()

    def stop_in_the_second_batch(progress: Progress) -> None:
        if progress.done > 64:
            raise Interrupted

    with pytest.raises(Interrupted):
        run(job, stop_in_the_second_batch)
    result = run(replace(job, attempt=2))
    expected = run(whole)

    assert result.num_reused >= 64
    assert result.prefix == f"jobs/{job.id}/a2"
    assert table_of(artifacts, result).equals(table_of(artifacts, expected))


def test_a_check_that_raises_publishes_nothing(
    claimed: Claim, run: Run, artifacts: Artifacts, keys_below: ListKeys
) -> None:
    def stop_at_the_end(progress: Progress) -> None:
        if progress.done == 40:
            raise Interrupted

    with pytest.raises(Interrupted):
        run(claimed(), stop_at_the_end)

    assert keys_below(artifacts, "jobs") == []


@pytest.mark.slow
def test_bad_images_are_published_without_the_servers_paths(
    claimed: Claim, run: Run, photos: Path, artifacts: Artifacts, settings: Settings
) -> None:
    (photos / "cat" / "broken.png").write_bytes(b"no picture")
    Image.new("1", (9000, 9000)).save(photos / "cat" / "huge.png")

    result = run(claimed())

    assert (result.num_samples, result.num_bad_images) == (42, 2)
    with artifacts.open(f"{result.prefix}/errors.parquet") as file:
        assert "raise DIFFICULTY_MAX_PIXELS if" in pq.read_table(file)["reason"][1].as_py()
    for name in ("errors.parquet", "scores.parquet"):
        with artifacts.open(f"{result.prefix}/{name}") as file:
            content = file.read()
        assert settings.roots["pictures"].encode() not in content
        assert (b"cat/broken.png" in content) == (name == "errors.parquet")


def test_what_is_no_sample_is_a_warning_of_the_result_and_listed(
    claimed: Claim, run: Run, photos: Path, artifacts: Artifacts
) -> None:
    (photos / "empty class").mkdir()
    (photos / "notes.txt").write_text("about")

    result = run(claimed())

    assert (result.num_samples, result.num_bad_images, result.num_skipped) == (40, 0, 2)
    assert result.warnings[:2] == (
        "1 entry is skipped (a file outside the class folders): 'notes.txt'",
        "1 entry is skipped (an empty class folder): 'empty class'",
    )
    assert "empty class" not in result.class_names
    with artifacts.open(f"{result.prefix}/errors.parquet") as file:
        assert pq.read_table(file)["sample_id"].to_pylist() == ["notes.txt", "empty class"]


def test_no_published_file_names_a_path_of_the_server(
    claimed: Claim, run: Run, artifacts: Artifacts, keys_below: ListKeys, tmp_path: Path
) -> None:
    result = run(claimed())

    for key in keys_below(artifacts, result.prefix):
        with artifacts.open(key) as file:
            assert str(tmp_path).encode() not in file.read()


def test_a_job_that_stops_at_bad_images_names_the_first(
    claimed: Claim, run: Run, photos: Path
) -> None:
    (photos / "cat" / "broken.png").write_bytes(b"no picture")

    with pytest.raises(ImageError, match=r"cat/broken\.png in pictures/photos"):
        run(claimed(on_error="stop"))


def test_a_job_scores_against_the_gaussians_of_another(
    claimed: Claim, run: Run, artifacts: Artifacts, sqlite_engine: Engine
) -> None:
    first = claimed()
    fitted = run(first)
    succeed(sqlite_engine, first, fitted)

    result = run(claimed(gaussians=first.id))

    assert artifacts.size(f"{result.prefix}/gaussians.safetensors") is None
    assert table_of(artifacts, result)["rmd"].equals(table_of(artifacts, fitted)["rmd"])


def test_gaussians_of_other_features_are_refused_before_an_image_is_read(
    claimed: Claim, run: Run, sqlite_engine: Engine
) -> None:
    first = claimed()
    fitted = run(first)
    succeed(sqlite_engine, first, fitted)
    seen: list[Progress] = []

    def load_another(name: str, options: BackboneOptions) -> Backbone:
        backbone = copy(LOAD(name, options))
        backbone.weights_sha256 = "of another file"
        return backbone

    with pytest.raises(StatisticsError, match="other features"):
        run(claimed(gaussians=first.id), seen.append, load_another)

    assert seen == []


def test_gaussians_that_are_not_there_end_the_job(claimed: Claim, run: Run) -> None:
    unfinished = claimed()

    for job_id in (unfinished.id, "0" * 26, "../../etc"):
        with pytest.raises(Problem) as raised:
            run(claimed(gaussians=job_id))
        assert (raised.value.type, raised.value.field) == ("conflict", "gaussians")


def test_gaussians_of_another_key_are_as_good_as_none(
    claimed: Claim, run: Run, sqlite_engine: Engine
) -> None:
    first = claimed()
    succeed(sqlite_engine, first, run(first))

    with pytest.raises(Problem, match="has no Gaussians"):
        run(replace(claimed(gaussians=first.id), owner="somebody else"))


@pytest.mark.slow
def test_features_that_the_next_attempt_could_not_use_are_made_anew(
    claimed: Claim, run: Run, settings: Settings
) -> None:
    job = claimed()
    folder = settings.work_dir / job.id / "features"
    run(job)
    (folder / "part-00000.arrow").write_bytes(b"damaged")

    with pytest.raises(FeatureStoreError):
        run(replace(job, attempt=2))
    result = run(replace(job, attempt=3))

    assert result.num_scored == 40


def test_a_dataset_that_is_not_there_ends_the_job(claimed: Claim, run: Run) -> None:
    with pytest.raises(DatasetError):
        run(claimed(dataset={"root": "pictures", "path": "photos/none"}))


def table_of(artifacts: Artifacts, result: StoredResult) -> pa.Table:
    with artifacts.open(f"{result.prefix}/scores.parquet") as file:
        return pq.read_table(file)


@pytest.mark.slow
def test_a_convolutional_network_of_timm_is_exported_and_runs_by_onnx_runtime(
    claimed: Claim, run: Run, artifacts: Artifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = tmp_path / "hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    monkeypatch.setattr("huggingface_hub.constants.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    monkeypatch.setattr(exported_graph, "LEAST_SPEEDUP", 0.0)
    monkeypatch.setattr(policy, "LEAST_IMAGES", 40)
    repository = hub / "models--timm--test_resnet.r160_in1k"
    weights = repository / "snapshots" / ("0" * 40) / "model.safetensors"
    for folder in (repository / "refs", weights.parent):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet").state_dict(), weights)

    result = run(claimed(backbone="timm:test_resnet.r160_in1k"))

    assert len([*(tmp_path / "assets").rglob("test_resnet-160-*.onnx")]) == 1
    with artifacts.open(f"{result.prefix}/scores.parquet") as file:
        provenance = json.loads(pq.read_schema(file).metadata[b"difficulty"])
    assert provenance["runtime"] == "onnxruntime"
