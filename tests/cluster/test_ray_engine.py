"""A Ray cluster of three nodes gives the scores of one machine, whatever is killed."""

import io
import json
import os
import shutil
import signal
from collections.abc import Callable
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from difficulty_service.backbones import load_backbone
from difficulty_service.base.cluster import ClusterOptions
from difficulty_service.base.errors import EngineError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.engines.ray_cluster import RayEngine
from difficulty_service.extraction.shard_writer import ShardWriter
from difficulty_service.extraction.task import ExtractionTask
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.store import create_store

pytestmark = pytest.mark.long

Cluster, Run, StartScore = Any, Any, Callable[..., Any]  # see conftest.py
ForkCommand = Callable[..., ForkServerProcess]


def assert_same_scores(run: Run, expected: Run) -> None:
    """The same columns with the same values, from the same features byte for byte."""
    first, second = pq.read_table(run.scores), pq.read_table(expected.scores)
    assert first.column_names == second.column_names
    for name in first.column_names:
        assert first[name].equals(second[name]), name
    names = [path.name for path in expected.shards()]
    assert [path.name for path in run.shards()] == names
    for name in [*names, "errors.parquet"]:
        assert (run.features / name).read_bytes() == (expected.features / name).read_bytes(), name


def on_ray(cluster: Cluster, actors: str = "1") -> tuple[str, ...]:
    """The options of a run on the cluster; each actor loads torch, for seconds."""
    return ("--engine", "ray", "--ray-address", cluster.address, "--ray-actors", actors)


def test_three_nodes_give_the_scores_of_one_machine_whatever_is_killed(
    cluster: Cluster, start_score: StartScore, local_run: Run, tmp_path: Path
) -> None:
    run = start_score(tmp_path / "scores.parquet", *on_ray(cluster))
    run.wait_for_shards(1)
    run.process.kill()
    run.process.join()
    before = {path: path.stat().st_mtime_ns for path in run.shards()}
    assert len(before) < len(local_run.shards()) - 4, "too few are left for what follows"

    again = start_score(run.scores, *on_ray(cluster, "3"))
    again.wait_for_shards(len(before) + 1)
    first, last = cluster.workers[0], cluster.workers.pop()
    (actor,) = cluster.actors(first)
    os.kill(actor, signal.SIGKILL)
    again.wait_for_shards(len(before) + 3)
    (actor,) = cluster.actors(last)
    os.kill(cluster.raylet(last), signal.SIGKILL)
    os.kill(actor, signal.SIGKILL)
    again.finish()
    cluster.replace_dead(last)

    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert_same_scores(again, local_run)


def read_shards(run: Run) -> pa.Table:
    columns = ["sample_id", "run", "features"]
    return pa.concat_tables([feather.read_table(shard, columns) for shard in run.shards()])


def test_a_changed_dataset_keeps_its_features(
    cluster: Cluster, start_score: StartScore, local_run: Run, tmp_path: Path
) -> None:
    shutil.copytree(local_run.features, tmp_path / "scores.features")

    run = start_score(tmp_path / "scores.parquet", *on_ray(cluster), "--limit", 200)
    run.finish()

    assert "features are kept; 0 images are new" in run.output.read_text()
    rows = read_shards(run)
    known = read_shards(local_run)
    by_key = {(row["sample_id"], row["run"]): row["features"] for row in known.to_pylist()}
    assert all(by_key[row["sample_id"], row["run"]] == row["features"] for row in rows.to_pylist())


@pytest.fixture
def extract(fork_command: ForkCommand, photos: Path, tmp_path: Path) -> Callable[..., str]:
    """Runs `difficulty extract` on the photos, which must fail; gives its error."""

    def run(*options: object) -> str:
        errors = tmp_path / "errors.txt"
        words = ("extract", photos, "--backbone", "builtin", "--device", "cpu")
        process = fork_command(*words, "--out", tmp_path / "features", *options, errors=errors)
        process.join(120)
        ended = process.exitcode
        process.kill()  # else it would keep the cores from the tests that follow
        assert ended == 1, errors.read_text()
        return errors.read_text()

    return run


def test_more_actors_than_fit_are_refused_before_anything_is_read(
    cluster: Cluster, extract: Callable[..., str], tmp_path: Path
) -> None:
    error = extract(*on_ray(cluster, "4:8"))

    assert "4 actors of 1 CPU each do not fit on the cluster, which has 3 CPUs" in error
    assert "use --ray-actors 3" in error
    assert not list((tmp_path / "features").glob("part-*"))


def test_an_address_without_a_cluster_is_told_at_once(extract: Callable[..., str]) -> None:
    error = extract("--engine", "ray", "--ray-address", "127.0.0.1:9")

    assert "no Ray cluster answers at '127.0.0.1:9'" in error


def test_a_damaged_image_ends_the_run_where_it_shall(
    cluster: Cluster, extract: Callable[..., str]
) -> None:
    error = extract(*on_ray(cluster, "1"), "--on-error", "stop")

    assert "bee/007.jpg" in error
    assert "--on-error skip" in error


def extract_with_other_weights(address: str, photos: Path, folder: Path) -> None:
    """Tries to extract with a cluster whose nodes have other weights; writes the error."""
    dataset = open_dataset(str(photos), DatasetOptions())
    task = ExtractionTask(dataset, "builtin")
    backbone = load_backbone("builtin", task.network)
    backbone.weights_sha256 = "0" * 64
    description = {"class_names": ("a",), "num_shards": 1, "augment_runs": 0}
    store = create_store(folder / "features", FeatureDescription.of(description))
    engine = RayEngine(ClusterOptions(address, max_actors=1))
    with pytest.raises(EngineError) as raised:
        engine.run_shards(task, backbone, [0], ShardWriter(store, dataset), lambda *_: None)
    (folder / "error").write_text(str(raised.value))


def test_a_node_with_other_weights_is_refused_by_name(
    cluster: Cluster, forkserver: ForkServerContext, photos: Path, tmp_path: Path
) -> None:
    process = forkserver.Process(
        target=extract_with_other_weights, args=(cluster.address, photos, tmp_path)
    )

    process.start()
    process.join(120)

    error = (tmp_path / "error").read_text()
    assert 'weights: "' in error
    assert f'"{"0" * 24}' in error


def test_a_job_scored_on_ray_has_the_scores_of_the_command_line(
    cluster: Cluster, local_run: Run, photos: Path, fork_command: ForkCommand, tmp_path: Path
) -> None:
    settings = {
        "ROOTS": json.dumps({"photos": str(photos)}),
        "DATA_DIR": str(tmp_path / "data"),
        "DEVICE": "cpu",
        "DEFAULT_BACKBONE": "builtin",
        "ENGINE": "ray",
        "RAY_ADDRESS": cluster.address,
    }
    environment = os.environ | {f"DIFFICULTY_{name}": value for name, value in settings.items()}
    words, log = ("serve", "--port", 0, "--with-worker"), tmp_path / "log"
    server = fork_command(*words, environment=environment, errors=log)
    with httpx2.Client(base_url=listening_url(server, log), timeout=120) as client:
        request = {
            "dataset": {"root": "photos"},
            "backbone": "builtin",
            "shrinkage": "ledoit-wolf",
            "augment_runs": 3,  # as in conftest.py
        }
        job = client.post("/v1/jobs", json=request).json()["id"]
        client.get(f"/v1/jobs/{job}/events")  # until it has ended
        state = client.get(f"/v1/jobs/{job}").json()
        content = client.get(f"/v1/jobs/{job}/scores.parquet").content
    server.terminate()
    server.join(60)

    assert state["state"] == "succeeded", state
    found, expected = pq.read_table(io.BytesIO(content)), pq.read_table(local_run.scores)
    assert found["sample_id"].equals(expected["sample_id"])
    np.testing.assert_allclose(found["rmd"], expected["rmd"], rtol=1e-4, atol=1e-4)


def listening_url(server: ForkServerProcess, log: Path) -> str:
    """Where the server listens, as soon as its log says so."""
    while server.is_alive():
        for line in log.read_text().splitlines() if log.exists() else ():
            event = json.loads(line)
            if event.get("event") == "listening":
                return str(event["url"])
        server.join(0.1)
    raise AssertionError(log.read_text())
