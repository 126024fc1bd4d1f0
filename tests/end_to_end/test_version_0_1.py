"""Files that version 0.1 wrote can still be read, resumed and served.

`tests/data/README.md` says how the files were made.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from starlette.testclient import TestClient

from api.app import create_app
from api.settings import Settings
from difficulty_service.files.checked_json import load_checked

WRITTEN = Path(__file__).parent.parent / "data" / "version_0_1"
CENTURY = 100 * 365.25 * 86400

Command = Callable[..., CompletedProcess[str]]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to work in; the recipe of the runs names its data relative to it."""
    folder = tmp_path / "version_0_1"
    shutil.copytree(WRITTEN, folder)
    monkeypatch.chdir(folder)
    return folder


def test_a_feature_store_is_scored_as_before(files: Path, difficulty: Command) -> None:
    done = difficulty("score", "features", "--out", "again.parquet", "--shrinkage", "ledoit-wolf")

    assert done.returncode == 0, done.stderr
    before, again = (pq.read_table(files / name) for name in ("scores.parquet", "again.parquet"))
    assert again["sample_id"].equals(before["sample_id"])
    for column in ("md", "md_agnostic", "rmd", "rmd_loo", "label_margin"):
        np.testing.assert_allclose(again[column], before[column], rtol=1e-6, atol=1e-6)
    assert again["nearest_label"].equals(before["nearest_label"])


def test_extraction_goes_on_with_a_store_that_was_begun(files: Path, difficulty: Command) -> None:
    store = files / "features"
    parts = [store / f"part-0000{number}.parquet" for number in (0, 1)]
    before = [pq.read_table(part) for part in parts]
    photos = make_photos(files / "photos")
    described = load_checked((store / "store.json").read_text())
    options = ("--backbone", "builtin", "--device", "cpu", "--shard-size", 16)
    difficulty("extract", photos, "--out", "new", *options)
    new = load_checked((files / "new" / "store.json").read_text())
    described |= {"fingerprint": new["fingerprint"]}
    (store / "store.json").write_text(json.dumps(described))
    parts[1].unlink()

    refused = difficulty("extract", photos, "--out", store, *options)
    # As if version 0.1 had had the encoder of today.
    described |= {key: new[key] for key in ("feature_dim", "weights_sha256")}
    (store / "store.json").write_text(json.dumps(described))
    features = pq.read_table(files / "new" / parts[0].name).combine_chunks()["features"]
    first = before[0].set_column(before[0].schema.get_field_index("features"), "features", features)
    pq.write_table(first, parts[0])
    done = difficulty("extract", photos, "--out", store, *options)

    assert refused.returncode == 1
    assert "feature_dim: 512 then, 896 now" in refused.stderr
    assert done.returncode == 0, done.stderr
    assert pq.read_table(parts[0]).equals(first)
    assert pq.read_table(parts[1])["sample_id"].equals(before[1]["sample_id"])


def test_gaussians_score_the_features_they_were_fitted_to_as_before(
    files: Path, difficulty: Command
) -> None:
    arguments = ("--gaussians", "gaussians.safetensors")

    done = difficulty("score", "train", "--out", "again.parquet", *arguments)

    assert done.returncode == 0, done.stderr
    before, again = (
        pq.read_table(files / name) for name in ("train_scores.parquet", "again.parquet")
    )
    np.testing.assert_allclose(again["rmd"], before["rmd"], rtol=1e-6, atol=1e-6)


def test_gaussians_are_merged_with_new_ones(files: Path, difficulty: Command) -> None:
    difficulty("fit", "test", "--out", "new.safetensors", "--shrinkage", "oas")

    done = difficulty("merge", "gaussians.safetensors", "new.safetensors", "--out", "both")

    assert done.returncode == 0, done.stderr
    assert (files / "both").exists()


def test_a_score_file_is_audited(files: Path, difficulty: Command) -> None:
    known = pa.table({"id": pq.read_table(files / "scores.parquet")["sample_id"]})
    values = pa.array(np.arange(len(known), dtype=np.float64))
    pq.write_table(known.append_column("hardness", values), files / "known.parquet")

    done = difficulty(
        *("audit", "scores.parquet", "--against", "known.parquet"),
        *("--join", "id", "--column", "hardness", "--kind", "rank"),
    )

    assert done.returncode == 0, done.stderr


def test_a_stopped_run_ends_as_the_one_that_was_never_stopped(
    files: Path, difficulty: Command
) -> None:
    done = difficulty("train", "probe.toml", "--out", "stopped_run", "--resume", "--device", "cpu")

    assert done.returncode == 0, done.stderr
    model, whole = (
        load_file(files / run / "seed-0" / "model.safetensors") for run in ("stopped_run", "run")
    )
    # Another processor may round otherwise.
    torch.testing.assert_close(model, whole, rtol=1e-4, atol=1e-5)


def test_a_finished_run_is_evaluated_and_compared(files: Path, difficulty: Command) -> None:
    numbers = files / "run" / "seed-0" / "evaluation.json"
    before = json.loads(numbers.read_text())

    evaluated = difficulty("evaluate", "run", "--device", "cpu")
    compared = difficulty("compare", "run", "--out", "table.md")

    assert evaluated.returncode == 0, evaluated.stderr
    assert compared.returncode == 0, compared.stderr
    again = json.loads(numbers.read_text())
    assert flat(again).keys() >= flat(before).keys()
    for name, value in flat(before).items():
        # The ECE had resamples of its own, and now shares those of all metrics; of 31 samples,
        # the ends of its interval differ by a hundredth from one seed to the next.
        tolerance = 2e-2 if name.endswith(("ece_low", "ece_high")) else 1e-5
        assert flat(again)[name] == pytest.approx(value, rel=1e-4, abs=tolerance), name


@pytest.fixture
def client(files: Path) -> Iterator[TestClient]:
    """The service on the database and the results of the old one, as the key that used it."""
    settings = Settings(data_dir=files / "service", device="cpu", keep_jobs=CENTURY)
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        client.headers["Authorization"] = f"Bearer {known(files)['secret']}"
        yield client


def test_jobs_are_listed_with_the_states_they_had(files: Path, client: TestClient) -> None:
    states = ("succeeded", "failed", "cancelled", "queued")

    jobs = {job["id"]: job["state"] for job in client.get("/v1/jobs").json()["jobs"]}

    assert jobs == {known(files)[state]: state for state in states}


def test_the_scores_of_a_finished_job_are_served(files: Path, client: TestClient) -> None:
    job = f"/v1/jobs/{known(files)['succeeded']}"

    page = client.get(f"{job}/scores", params={"sort": "-rmd", "limit": 3}).json()
    table = pq.read_table(pa.BufferReader(client.get(f"{job}/scores.parquet").content))
    errors = client.get(f"{job}/errors").json()

    expected = sorted(table["rmd"].to_pylist(), reverse=True)[:3]
    assert [each["rmd"] for each in page["samples"]] == pytest.approx(expected)
    assert [each["sample_id"] for each in errors["errors"]] == ["dog/9.png"]


def test_a_job_that_was_waiting_is_run(
    files: Path, client: TestClient, difficulty_process: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = {"photos": str(make_photos(files / "photos"))}
    monkeypatch.setenv("DIFFICULTY_ROOTS", json.dumps(roots))
    monkeypatch.setenv("DIFFICULTY_DATA_DIR", str(files / "service"))
    monkeypatch.setenv("DIFFICULTY_KEEP_JOBS", str(CENTURY))

    done = difficulty_process("worker", "--once", "--device", "cpu")

    assert done.returncode == 0, done.stderr
    assert client.get(f"/v1/jobs/{known(files)['queued']}").json()["state"] == "succeeded"


def known(files: Path) -> dict[str, str]:
    """The secret of the key and the ids of the jobs, by the state they were left in."""
    values: dict[str, str] = json.loads((files / "service" / "key.json").read_text())
    return values


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of nested tables, by their path."""
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float):
            found[prefix + name] = value
    return found


def make_photos(root: Path) -> Path:
    """Eight pictures a class and a file that is none: the same names and labels as then."""
    generator = np.random.default_rng(7)
    for label, name in enumerate(("bird", "cat", "dog")):
        (root / name).mkdir(parents=True)
        for number in range(8):
            level = generator.integers(0, 100, size=3) + 40 * label
            pixels = level + generator.integers(0, 56, size=(16, 20, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{number}.png")
    (root / "dog" / "9.png").write_bytes(b"not an image")
    return root
