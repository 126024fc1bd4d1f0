"""An attempt gives the results of the command line, and resumes where another one ended."""

import io
import json
import shutil
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from api.http.problems import Problem
from api.jobs.queue import Progress
from api.results.score_columns import map_columns
from difficulty_service.backbones import exported_graph
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
from tests.api.stored_results import keys_below
from tests.api.worker.bench import LOAD, Bench
from tests.factories import write_image_folder
from tests.small_network import SMALL


class Interrupted(Exception):
    """The error that a check raises in these tests."""


def test_the_scores_are_those_of_the_command_line(bench: Bench, tmp_path: Path) -> None:
    plan = Plan(str(bench.photos), tmp_path / "store", SMALL)
    expected = tmp_path / "expected.parquet"
    score_dataset(plan, ScoreRequest(expected, ScoringOptions(shrinkage="ledoit-wolf")))

    result = bench.run(bench.claim())

    assert bench.table(result).equals(read_scores(expected).table)


def test_the_result_describes_the_published_files(bench: Bench) -> None:
    job = bench.claim()

    result = bench.run(job)

    names = (
        "columns.arrow contents.arrow errors.parquet features.json features.npy "
        "gaussians.safetensors map.parquet scores.parquet vectors.npy"
    )
    assert keys_below(bench.artifacts, "jobs") == [
        f"jobs/{job.id}/a1/{name}" for name in names.split()
    ]
    assert result.prefix == f"jobs/{job.id}/a1"
    assert (result.num_samples, result.num_scored, result.num_bad_images) == (40, 40, 0)
    assert result.scores_bytes == bench.artifacts.size(f"jobs/{job.id}/a1/scores.parquet")
    assert len(result.scores_sha256) == 64
    assert result.class_names == ("bird", "cat")
    assert result.stored_bytes == bench.artifacts.total_bytes(result.prefix)


def test_what_the_pages_read_is_published_with_the_scores(bench: Bench) -> None:
    result = bench.run(bench.claim())

    path = bench.artifacts.local_path(f"{result.prefix}/columns.arrow")
    columns = None if path is None else map_columns(path)
    assert columns is not None
    assert columns.samples.ids.to_pylist() == bench.table(result)["sample_id"].to_pylist()
    assert columns.overview.summary.num_samples == 40


@pytest.mark.slow
def test_the_vectors_are_those_of_the_rows_of_the_score_file(bench: Bench) -> None:
    (bench.photos / "bird" / "05.png").write_bytes(b"no picture")
    shutil.copy(bench.photos / "bird" / "03.png", bench.photos / "cat" / "19.png")

    result = bench.run(bench.claim())

    with bench.artifacts.open(f"{result.prefix}/vectors.npy") as file:
        vectors = np.load(io.BytesIO(file.read()))
    ids = bench.table(result)["sample_id"].to_pylist()
    assert len(vectors) == len(ids) == 39
    nearest = most_similar(vectors, ids.index("bird/03.png"), 1)
    assert [ids[row] for row in nearest] == ["cat/19.png"]


def test_progress_goes_from_none_to_all_samples(bench: Bench) -> None:
    seen: list[Progress] = []

    bench.run(bench.claim(), seen.append)

    done = [progress.done for progress in seen]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, 40)
    assert {progress.total for progress in seen} == {40}
    assert any(progress.rate for progress in seen)


@pytest.mark.slow
def test_an_attempt_resumes_after_the_last_batch_to_the_scores_of_a_whole_one(bench: Bench) -> None:
    write_image_folder(bench.photos, ("bird", "cat"), 70, size=(8, 8))
    job = bench.claim()
    whole = bench.claim()

    def stop_in_the_second_batch(progress: Progress) -> None:
        if progress.done > 64:
            raise Interrupted

    with pytest.raises(Interrupted):
        bench.run(job, stop_in_the_second_batch)
    result = bench.run(replace(job, attempt=2))
    expected = bench.run(whole)

    assert result.num_reused >= 64
    assert result.prefix == f"jobs/{job.id}/a2"
    assert bench.table(result).equals(bench.table(expected))


def test_samples_with_features_and_without_a_score_are_not_taken_from_the_reused_ones(
    bench: Bench,
) -> None:
    write_image_folder(bench.photos, ("single",), 1, size=(8, 8))
    (bench.photos / "cat" / "bad.png").write_bytes(b"no image")

    result, again = [bench.run(bench.claim()) for _ in range(2)]

    assert (result.num_samples, result.num_scored, result.num_bad_images) == (42, 40, 1)
    assert (result.num_reused, again.num_reused) == (0, 41)


def test_a_check_that_raises_publishes_nothing(bench: Bench) -> None:
    def stop_at_the_end(progress: Progress) -> None:
        if progress.done == 40:
            raise Interrupted

    with pytest.raises(Interrupted):
        bench.run(bench.claim(), stop_at_the_end)

    assert keys_below(bench.artifacts, "jobs") == []


@pytest.mark.slow
def test_bad_images_are_published_without_the_servers_paths(bench: Bench) -> None:
    (bench.photos / "cat" / "broken.png").write_bytes(b"no picture")
    Image.new("1", (9000, 9000)).save(bench.photos / "cat" / "huge.png")

    result = bench.run(bench.claim())

    assert (result.num_samples, result.num_bad_images) == (42, 2)
    with bench.artifacts.open(f"{result.prefix}/errors.parquet") as file:
        assert "raise DIFFICULTY_MAX_PIXELS if" in pq.read_table(file)["reason"][1].as_py()
    for name in ("errors.parquet", "scores.parquet"):
        with bench.artifacts.open(f"{result.prefix}/{name}") as file:
            content = file.read()
        assert bench.settings.roots["pictures"].encode() not in content
        assert (b"cat/broken.png" in content) == (name == "errors.parquet")


def test_what_is_no_sample_is_a_warning_of_the_result_and_listed(bench: Bench) -> None:
    (bench.photos / "empty class").mkdir()
    (bench.photos / "notes.txt").write_text("about")

    result = bench.run(bench.claim())

    assert (result.num_samples, result.num_bad_images, result.num_skipped) == (40, 0, 2)
    assert result.warnings[:2] == (
        "1 entry is skipped (a file outside the class folders): 'notes.txt'",
        "1 entry is skipped (an empty class folder): 'empty class'",
    )
    assert "empty class" not in result.class_names
    with bench.artifacts.open(f"{result.prefix}/errors.parquet") as file:
        assert pq.read_table(file)["sample_id"].to_pylist() == ["notes.txt", "empty class"]


def test_no_published_file_names_a_path_of_the_server(bench: Bench, tmp_path: Path) -> None:
    result = bench.run(bench.claim())

    for key in keys_below(bench.artifacts, result.prefix):
        with bench.artifacts.open(key) as file:
            assert str(tmp_path).encode() not in file.read()


def test_a_job_that_stops_at_bad_images_names_the_first(bench: Bench) -> None:
    (bench.photos / "cat" / "broken.png").write_bytes(b"no picture")

    with pytest.raises(ImageError, match=r"cat/broken\.png in pictures/photos"):
        bench.run(bench.claim(on_error="stop"))


def test_a_job_scores_against_the_gaussians_of_another(bench: Bench) -> None:
    first = bench.claim()
    fitted = bench.finish(first)

    result = bench.run(bench.claim(gaussians=first.id))

    assert bench.artifacts.size(f"{result.prefix}/gaussians.safetensors") is None
    assert bench.table(result)["rmd"].equals(bench.table(fitted)["rmd"])


def test_gaussians_of_other_features_are_refused_before_an_image_is_read(bench: Bench) -> None:
    first = bench.claim()
    bench.finish(first)
    seen: list[Progress] = []

    def load_another(name: str, options: BackboneOptions) -> Backbone:
        backbone = copy(LOAD(name, options))
        backbone.weights_sha256 = "of another file"
        return backbone

    with pytest.raises(StatisticsError, match="other features"):
        bench.run(bench.claim(gaussians=first.id), seen.append, load_another)

    assert seen == []


def test_gaussians_that_are_not_there_end_the_job(bench: Bench) -> None:
    unfinished = bench.claim()

    for job_id in (unfinished.id, "0" * 26, "../../etc"):
        with pytest.raises(Problem) as raised:
            bench.run(bench.claim(gaussians=job_id))
        assert (raised.value.type, raised.value.field) == ("conflict", "gaussians")


def test_gaussians_of_another_key_are_as_good_as_none(bench: Bench) -> None:
    first = bench.claim()
    bench.finish(first)

    with pytest.raises(Problem, match="has no Gaussians"):
        bench.run(replace(bench.claim(gaussians=first.id), owner="somebody else"))


@pytest.mark.slow
def test_features_that_the_next_attempt_could_not_use_are_made_anew(bench: Bench) -> None:
    job = bench.claim()
    folder = bench.settings.work_dir / job.id / "features"
    bench.run(job)
    (folder / "part-00000.arrow").write_bytes(b"damaged")

    with pytest.raises(FeatureStoreError):
        bench.run(replace(job, attempt=2))
    result = bench.run(replace(job, attempt=3))

    assert result.num_scored == 40


def test_a_dataset_that_is_not_there_ends_the_job(bench: Bench) -> None:
    with pytest.raises(DatasetError):
        bench.run(bench.claim(dataset={"root": "pictures", "path": "photos/none"}))


@pytest.mark.slow
def test_a_convolutional_network_of_timm_is_exported_and_runs_by_onnx_runtime(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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

    result = bench.run(bench.claim(backbone="timm:test_resnet.r160_in1k"))

    assert len([*(tmp_path / "assets").rglob("test_resnet-160-*.onnx")]) == 1
    with bench.artifacts.open(f"{result.prefix}/scores.parquet") as file:
        provenance = json.loads(pq.read_schema(file).metadata[b"difficulty"])
    assert provenance["runtime"] == "onnxruntime"
