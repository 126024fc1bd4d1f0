"""A worker of the REST service runs its jobs on the cluster where it is told to."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.slow


def listening_url(log: Path) -> str:
    """Where the server listens, as soon as its log says so."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for line in log.read_text().splitlines():
            event = json.loads(line)
            if event.get("event") == "listening":
                return str(event["url"])
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def test_a_job_scored_on_ray_has_the_scores_of_the_command_line(
    cluster: Any,  # noqa: ANN401 - see conftest.py
    local_run: Any,  # noqa: ANN401
    photos: Path,
    tmp_path: Path,
) -> None:
    settings = {
        "ROOTS": json.dumps({"photos": str(photos)}),
        "DATA_DIR": str(tmp_path / "data"),
        "DEVICE": "cpu",
        "ENGINE": "ray",
        "RAY_ADDRESS": cluster.address,
    }
    environment = os.environ | {f"DIFFICULTY_{name}": value for name, value in settings.items()}
    log = tmp_path / "log"
    command = [sys.executable, "-m", "difficulty_service", "serve", "--port", "0", "--with-worker"]
    with log.open("wb") as file:
        server = subprocess.Popen(command, env=environment, stderr=file)  # noqa: S603
    try:
        with httpx2.Client(base_url=listening_url(log), timeout=120) as client:
            request = {
                "dataset": {"root": "photos"},
                "backbone": "builtin",
                "shrinkage": "ledoit-wolf",
                "augment_runs": 6,
            }
            job = client.post("/v1/jobs", json=request).json()["id"]
            client.get(f"/v1/jobs/{job}/events")  # until it has ended
            state = client.get(f"/v1/jobs/{job}").json()
            content = client.get(f"/v1/jobs/{job}/scores.parquet").content
    finally:
        server.terminate()
        server.wait(60)

    assert state["state"] == "succeeded", state
    found, expected = pq.read_table(io.BytesIO(content)), pq.read_table(local_run.scores)
    assert found["sample_id"].equals(expected["sample_id"])
    np.testing.assert_allclose(found["rmd"], expected["rmd"], rtol=1e-4, atol=1e-4)
