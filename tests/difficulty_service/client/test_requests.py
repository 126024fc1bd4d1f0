"""Every request is one that the description of the service knows, and reads what it answers."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from api.app import create_app
from api.settings import Settings
from difficulty_service.bodies.comparisons import SelectCreate
from difficulty_service.bodies.jobs import JobCreate, JobDataset
from difficulty_service.bodies.marks import Decision, MarkChange
from difficulty_service.bodies.results import ScoreRow
from difficulty_service.bodies.uploads import UploadCreate
from difficulty_service.client import AsyncClient, Client, requests
from difficulty_service.client.requests import Request, ScoreFilter
from difficulty_service.marks.mark_kinds import Mark

JOB = JobCreate(dataset=JobDataset(root="photos"))
ARGUMENTS: Mapping[str, object] = {
    "job": JOB,
    "job_id": "a job",
    "of_job": "a job",
    "asked": SelectCreate(kind="select", count=1),
    "comparison_id": "a comparison",
    "last_id": 7,
    "sample_id": "cat/ü 1.jpg",
    "changes": [MarkChange(sample_id="a", decision=Decision(mark=Mark.KEEP))],
    "images": [b"an image"],
    "texts": ["a text"],
    "features": [[1.0, 2.0]],
    "labels": ["cat"],
    "start": 5,
    "etag": '"x"',
    "form": UploadCreate(format="zip"),
    "upload_id": "an upload",
    "offset": 3,
    "number": 2,
    "part": b"bytes",
    "columns": {"is.camera": "A"},
    "table": "dataset",
    **dict.fromkeys(("root", "path", "owner", "sort", "after", "before"), "text"),
    "limit": 10,
    "size": 64,
    "state": "failed",
    "idempotency_key": "k",
}


def is_request(value: object) -> bool:
    return inspect.isfunction(value) and "Request[" in str(inspect.signature(value))


MAKERS = {name: each for name, each in vars(requests).items() if is_request(each)}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Addresses of the description of the service."""
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"))
    described: dict[str, Any] = create_app(settings).openapi()["paths"]
    return described


def made(make: Callable[..., Request[Any]]) -> Request[Any]:
    """A request with every parameter that it may have."""
    parameters = inspect.signature(make).parameters.values()
    plain = [each for each in parameters if each.kind is not each.VAR_KEYWORD]
    filters = (
        dict.fromkeys(ScoreFilter.__annotations__, "1") if len(plain) < len(parameters) else {}
    )
    return make(**{each.name: ARGUMENTS[each.name] for each in plain}, **filters)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_request_is_in_the_description_with_all_its_parameters(
    paths: dict[str, Any], make: Callable[..., Request[Any]]
) -> None:
    request = made(make)

    described = paths[request.path][request.method.lower()]

    known = {each["name"] for each in described.get("parameters", ())}
    assert {name for name in request.query if not name.startswith("is.")} <= known
    assert set(request.inserted) == set(re.findall(r"{(\w+)}", request.path))
    kinds = described.get("requestBody", {}).get("content", {})
    assert request.headers.get("Content-Type") in {None, *kinds}


def test_all_conditions_of_a_list_of_scores_can_be_given(paths: dict[str, Any]) -> None:
    parameters = paths["/v1/jobs/{job_id}/scores"]["get"]["parameters"]
    in_query = {each["name"] for each in parameters if each["in"] == "query"}

    assert set(ScoreFilter.__annotations__) == in_query - {"sort", "limit", "after"}


def test_what_is_inserted_into_an_address_cannot_lead_elsewhere() -> None:
    request = requests.thumbnail("../jobs", "a/../?b#c%2f.png")

    assert request.address == "/v1/jobs/..%2Fjobs/thumbnails/a%2F..%2F%3Fb%23c%252f.png"


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def methods(client: type) -> dict[str, object]:
        names = {name for name in vars(client) if not name.startswith("_")}
        return {name: inspect.signature(getattr(client, name)).parameters.keys() for name in names}

    assert methods(Client) == methods(AsyncClient)
    signature = inspect.signature(Client.thumbnail)
    assert "sample_id" in signature.parameters
    assert signature.return_annotation is bytes
    assert inspect.signature(Client.samples).return_annotation == Iterator[ScoreRow]
    assert "JPEG" in str(Client.thumbnail.__doc__)


def test_every_state_of_a_job_can_be_asked_for(paths: dict[str, Any]) -> None:
    described = str(paths["/v1/jobs"]["get"])

    assert all(state in described for state in get_args(requests.State))


def test_a_path_to_an_image_is_sent_as_its_name_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"png")

    request = requests.score_images("job", [tmp_path / "a.png", b"other"], ["cat", None])

    assert [file for _, file in request.files] == [("a.png", b"png"), ("image 1", b"other")]
    assert request.fields == {"labels": ["cat", ""]}
    assert "png" not in repr(request)
