"""How long a job would take is told by how long finished ones took, or it is said to be unknown."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.jobs import estimate
from api.jobs.queue import claim, record_heartbeat, succeed
from api.settings import Settings
from api.storage.database import write_transaction
from api.storage.keys import create_key
from api.storage.tables import JOBS
from tests.api.stored_results import stored_result
from tests.factories import write_image_folder
from tests.service import ServiceClient, assert_problem

Body = dict[str, Any]
Finish = Callable[..., None]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine takes long to start the process that counts."""
    monkeypatch.setattr(estimate, "LONGEST_COUNT", 300.0)


@pytest.fixture
def root(settings: Settings) -> Path:
    """The root, whose folder `train` has 6 images of 2 classes."""
    root = Path(settings.roots["photos"])
    write_image_folder(root / "train", ("cat", "dog"), each=3)
    return root


@pytest.fixture
def finish(client: ServiceClient, root: Path) -> Finish:  # noqa: ARG001 - to be submitted
    """Submits a job, and acts as the worker that takes some seconds for it."""

    def run(seconds: float, device: str = "cpu", **options: Any) -> None:  # noqa: ANN401
        changes = {"num_samples": 100, "num_reused": 0}
        changes |= {name: options.pop(name) for name in changes if name in options}
        body = {"dataset": {"root": "photos", "path": "train"}} | options
        assert client.post("/v1/jobs", json=body).status_code == 202
        job = claim(client.engine, "worker", device, 60.0)
        assert job is not None
        assert succeed(client.engine, job, stored_result(f"jobs/{job.id}", **changes))
        with write_transaction(client.engine) as connection:
            times = {"started_at": 1000.0, "finished_at": 1000.0 + seconds}
            connection.execute(JOBS.update().where(JOBS.c.id == job.id).values(times))

    return run


def ask(client: ServiceClient, **options: Any) -> Body:  # noqa: ANN401
    body = {"dataset": {"root": "photos", "path": "train"}} | options
    answer = client.post("/v1/estimates", json=body)
    assert answer.status_code == 200, answer.text
    found: Body = answer.json()
    return found


def time_of(estimate: Body) -> Body:
    """An estimate without how the dataset would be read."""
    return {name: value for name, value in estimate.items() if name != "reading"}


@pytest.mark.slow
@pytest.mark.usefixtures("root", "new_interpreters")
def test_before_any_job_has_finished_the_time_is_unknown_and_the_samples_are_counted(
    client: ServiceClient,
) -> None:
    expected = {"samples": 6, "passes": 1, "jobs": 0, "rate": None, "seconds": None}

    assert time_of(ask(client)) == expected
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_an_estimate_says_how_the_dataset_would_be_read(client: ServiceClient, root: Path) -> None:
    (root / "train" / "empty").mkdir()
    (root / "train" / "cat" / "notes.txt").write_text("about")

    reading = ask(client)["reading"]

    assert (reading["format"], reading["title"]) == ("image-folder", "one folder per class")
    assert reading["classes"] == [
        {"name": "cat", "num_samples": 3},
        {"name": "dog", "num_samples": 3},
    ]
    assert [(each["reason"], each["examples"]) for each in reading["left_out"]] == [
        ("an empty class folder", ["empty"]),
        ("not an image file by its extension '.txt'", ["cat/notes.txt"]),
    ]


def test_a_dataset_is_read_in_the_format_that_is_named(client: ServiceClient, root: Path) -> None:
    write_image_folder(root / "both", ("train", "test"), each=2)
    dataset = {"root": "photos", "path": "both"}

    refused = client.post("/v1/estimates", json={"dataset": dataset})
    reading = ask(client, dataset=dataset, format="image-folder")["reading"]
    wrong = client.post("/v1/estimates", json={"dataset": dataset, "format": "images"})

    assert "holds the splits ['train', 'test']" in refused.json()["detail"]
    assert [each["name"] for each in reading["classes"]] == ["test", "train"]
    assert_problem(wrong, 422, "invalid-request", field="format")


def test_the_time_is_the_passes_over_all_samples_by_the_median_rate(
    client: ServiceClient, finish: Finish
) -> None:
    finish(10.0)  # 10 a second
    finish(50.0, augment_runs=3, flip=True)  # 12 a second, as each sample is seen 6 times
    finish(1.0)  # 100 a second

    once, often = ask(client), ask(client, augment_runs=2, flip=True, limit=4)

    known = {"jobs": 3, "rate": 12.0}
    assert time_of(once) == {"samples": 6, "passes": 1, "seconds": 0.5, **known}
    assert time_of(often) == {"samples": 4, "passes": 4, "seconds": 4 * 4 / 12, **known}


def test_other_backbones_other_devices_and_features_of_earlier_jobs_do_not_count(
    client: ServiceClient, finish: Finish, root: Path
) -> None:
    texts = pa.table({"text": ["a b c", "c d e"] * 3, "label": [0, 1] * 3})
    pq.write_table(texts, root / "texts.parquet")
    dataset = {"root": "photos", "path": "texts.parquet"}
    finish(1.0, device="cuda:0")
    finish(1.0, num_reused=90)
    finish(1.0, dataset=dataset, text_column="text")  # with another backbone

    assert ask(client)["jobs"] == 0
    assert ask(client, dataset=dataset, text_column="text")["rate"] == 100.0


def test_jobs_count_that_ran_on_a_device_of_the_workers_there_are(
    client: ServiceClient, finish: Finish
) -> None:
    finish(1.0, device="cuda:0")
    finish(50.0, device="cpu")
    record_heartbeat(client.engine, "ant", "cuda:0", None, 0)

    assert (ask(client)["jobs"], ask(client)["rate"]) == (1, 100.0)


def test_a_job_that_was_tried_again_tells_nothing_of_the_rate(
    client: ServiceClient, finish: Finish
) -> None:
    finish(1.0)
    with write_transaction(client.engine) as connection:
        connection.execute(JOBS.update().values({"attempt": 2}))

    assert ask(client)["jobs"] == 0


def test_a_dataset_that_takes_too_long_to_list_has_as_many_samples_as_its_limit(
    client: ServiceClient, finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(10.0)
    monkeypatch.setattr(estimate, "LONGEST_COUNT", 1e-4)

    unknown, limited = ask(client), ask(client, limit=50)

    assert (unknown["samples"], unknown["rate"], unknown["seconds"]) == (None, 10.0, None)
    assert (limited["samples"], limited["seconds"]) == (50, 5.0)


def test_a_dataset_that_cannot_be_read_is_named_before_it_is_submitted(
    client: ServiceClient, root: Path
) -> None:
    (root / "empty").mkdir()
    (root / "none.parquet").write_bytes(b"PAR1 no table PAR1")

    for path in ("empty", "none.parquet"):
        body = {"dataset": {"root": "photos", "path": path}}
        answer = client.post("/v1/estimates", json=body)
        assert_problem(answer, 422, "unreadable", "dataset")
        assert str(root) not in answer.text
        assert path in answer.json()["detail"]


def test_what_cannot_be_submitted_cannot_be_estimated(client: ServiceClient) -> None:
    wrong = {"dataset": {"root": "photos", "path": "../etc"}}
    missing = {"dataset": {"upload": "0" * 26}}

    refused = client.post("/v1/estimates", json=wrong)

    assert_problem(refused, 422, "invalid-request", "dataset.path")
    assert_problem(client.post("/v1/estimates", json=missing), 422, "invalid-request")


def test_an_estimate_needs_the_scope_that_a_job_needs_and_the_upload_of_its_key(
    client: ServiceClient,
) -> None:
    keys = {name: create_key(client.engine, name, [name])[1] for name in ("read-all", "write")}
    _, other = create_key(client.engine, "other", ["write"])
    headers = {"X-API-Key": keys["write"]}
    content = b"PK\x05\x06" + bytes(18)
    announced = client.post("/v1/uploads", json={"format": "zip"}, headers=headers)
    client.put(f"{announced.headers['Location']}?complete=true", content=content, headers=headers)
    body = {"dataset": {"upload": announced.json()["id"]}}

    def post(key: str) -> Any:  # noqa: ANN401
        return client.post("/v1/estimates", json=body, headers={"X-API-Key": key})

    assert_problem(post(keys["read-all"]), 403, "forbidden")
    assert_problem(post(other), 422, "invalid-request", "dataset.upload")
