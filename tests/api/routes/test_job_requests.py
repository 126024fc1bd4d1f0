"""Requests for jobs are checked before a job is queued."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from difficulty_service.bodies.jobs import JobRequest
from difficulty_service.scores.score_columns import DEFAULT_SCORERS
from tests.service import ServiceClient, assert_problem, client_of

Body = dict[str, object]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"dataset": {"root": "elsewhere", "path": ""}}, "dataset.root"),
        ({"dataset": {"root": "photos", "path": "../data"}}, "dataset.path"),
        ({"dataset": {"root": "photos", "path": "/etc"}}, "dataset.path"),
        ({"dataset": {"root": "photos", "path": "not there"}}, "dataset.path"),
        ({"dataset": {"root": "photos", "path": "a\x00b"}}, "dataset.path"),
        ({"dataset": {"root": "photos", "path": "**/" * 100 + "*.parquet"}}, "dataset.path"),
        ({"dataset": {"root": "photos", "upload": "x"}}, "dataset"),
        ({"dataset": {"path": "train"}}, "dataset"),
        ({"dataset": {"upload": "x"}}, "dataset.upload"),
        ({"backbone": "clip-vit-b61"}, "backbone"),
        ({"backbone": "timm:../../secret"}, "backbone"),
        ({"backbone": "timm:local-dir:/etc"}, "backbone"),
        ({"backbone": "/etc/passwd"}, "backbone"),
        ({"backbone": "run:runs/mine"}, "backbone"),
        ({"backbone": "builtin", "classes": "cat,dog"}, "backbone"),
        ({"backbone": "builtin", "scorers": ["name_margin"]}, "backbone"),
        ({"scorers": []}, "scorers"),
        ({"scorers": ["mahalanobis"]}, "scorers"),
        ({"scorers": ["knn", "knn"]}, "scorers"),
        ({"augment_runs": 101}, "augment_runs"),
        ({"near_duplicates": 0}, "near_duplicates"),
        ({"corrupt": "fog"}, "corrupt"),
        ({"corrupt": "rain:3"}, "corrupt"),
        ({"matmul_dtype": "float16"}, "matmul_dtype"),
        ({"augment_runs": "2"}, "augment_runs"),
        ({"flip": "yes"}, "flip"),
        ({"seed": -1}, "seed"),
        ({"limit": 0}, "limit"),
        ({"shrinkage": 1.5}, "shrinkage"),
        ({"clusters": 0}, "clusters"),
        ({"gaussians": "0" * 26}, "gaussians"),
        ({"on_error": "ignore"}, "on_error"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_an_invalid_request_is_refused_at_once(
    client: ServiceClient, body: Body, change: Body, field: str | None
) -> None:
    answer = client.post("/v1/jobs", json=body | change)

    assert_problem(answer, 422, "invalid-request", field)
    assert client.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize(
    ("change", "names_scorers"), [({}, False), ({"scorers": ["rmd", "suspicion"]}, True)]
)
def test_a_job_remembers_whether_its_scorers_were_named(
    client: ServiceClient, body: Body, change: Body, *, names_scorers: bool
) -> None:
    body = {name: value for name, value in body.items() if name != "scorers"}

    job = client.post("/v1/jobs", json=body | change).json()

    wanted = JobRequest(**job["request"])
    assert wanted.scorers == DEFAULT_SCORERS
    assert wanted.names_scorers == names_scorers


def test_a_link_out_of_the_root_is_as_if_it_were_not_there(
    client: ServiceClient, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (Path(client.settings.roots["photos"]) / "way-out").symlink_to(tmp_path / "outside")

    def refusal(path: str) -> dict[str, object]:
        answer = client.post("/v1/jobs", json={"dataset": {"root": "photos", "path": path}})
        assert_problem(answer, 422, "invalid-request", "dataset.path")
        return answer.json()

    assert refusal("way-out")["remedy"] == refusal("nothing")["remedy"]


def test_an_upload_has_to_be_complete(client: ServiceClient) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as opened:
        opened.writestr("cat/1.png", b"no image")
    content = data.getvalue()
    upload = client.post("/v1/uploads", json={"format": "zip", "size": len(content)}).json()
    address = upload["links"]["self"]
    client.put(address, content=content[:10])
    body = {"dataset": {"upload": upload["id"]}}

    early = client.post("/v1/jobs", json=body)
    client.put(f"{address}?offset=10", content=content[10:])
    later = client.post("/v1/jobs", json=body)

    assert_problem(early, 409, "conflict", "dataset.upload")
    assert later.status_code == 202


def test_gaussians_come_from_a_finished_job_with_the_same_backbone(
    client: ServiceClient, body: Body, finished: Callable
) -> None:
    source = finished()
    waiting = client.post("/v1/jobs", json=body).json()["id"]

    fits = client.post("/v1/jobs", json=body | {"gaussians": source.id})
    early = client.post("/v1/jobs", json=body | {"gaussians": waiting})
    other = client.post("/v1/jobs", json=body | {"gaussians": source.id, "backbone": "clip-rn50"})

    assert fits.status_code == 202
    assert_problem(early, 409, "conflict", "gaussians")
    assert_problem(other, 422, "invalid-request", "gaussians")


def test_only_backbones_that_are_offered_may_be_asked_for(tmp_path: Path, body: Body) -> None:
    (tmp_path / "photos" / "train").mkdir(parents=True)
    roots = {"photos": str(tmp_path / "photos")}
    backbones = ("builtin", "timm:resnet18")

    with client_of(tmp_path / "data", roots=roots, backbones=backbones) as client:
        offered = client.post("/v1/jobs", json=body | {"backbone": "timm:resnet18"})
        refused = client.post("/v1/jobs", json=body | {"backbone": "clip-rn50"})

    assert offered.status_code == 202
    assert_problem(refused, 422, "invalid-request", "backbone")


@pytest.mark.parametrize(
    "name", ["timm:resnet18.a1_in1k", "open_clip:ViT-B-32/laion2b_s34b_b79k", "transformers:a/b"]
)
def test_networks_of_libraries_are_refused_unless_the_operator_names_them(
    tmp_path: Path, body: Body, name: str
) -> None:
    (tmp_path / "photos" / "train").mkdir(parents=True)
    roots = {"photos": str(tmp_path / "photos")}
    wanted = body | {"backbone": name}
    if name.startswith("transformers:"):
        wanted |= {"text_column": "text"}

    with client_of(tmp_path / "data", roots=roots) as client:
        refused = client.post("/v1/jobs", json=wanted)
    with client_of(tmp_path / "data", roots=roots, more_backbones=(name,)) as client:
        offered = client.post("/v1/jobs", json=wanted)
        listed = client.get("/v1/backbones").json()["backbones"]

    assert_problem(refused, 422, "invalid-request", "backbone")
    assert "clip-vit-b16, " in refused.json()["detail"]
    assert "DIFFICULTY_MORE_BACKBONES" in refused.json()["remedy"]
    assert offered.status_code == 202
    assert name in [each["name"] for each in listed]


def test_not_even_the_operator_offers_a_folder_as_a_backbone(tmp_path: Path, body: Body) -> None:
    (tmp_path / "photos" / "train").mkdir(parents=True)
    roots = {"photos": str(tmp_path / "photos")}

    with client_of(tmp_path / "data", roots=roots, default_backbone="run:runs/mine") as client:
        refused = client.post("/v1/jobs", json=body)

    assert_problem(refused, 422, "invalid-request", "backbone")
