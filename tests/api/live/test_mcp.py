"""An assistant finds, looks at and marks doubtful samples of a running service."""

import asyncio
import base64
import io
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
from mcp import Client as Assistant
from mcp import StdioServerParameters
from mcp.types import ImageContent, TextContent
from PIL import Image

from difficulty_service.client import Client, JobCreate, JobDataset
from difficulty_service.client.mcp_server import create_server
from tests.api.live.running import Service

pytestmark = pytest.mark.slow

Result = dict[str, Any]
TOOLS = {
    *("list_datasets", "list_jobs", "score_dataset"),
    *("job_status", "doubtful_samples", "mark_samples"),
}


@pytest.fixture(scope="module")
def job(shared_service: Service) -> str:
    """Id of a finished job."""
    dataset = JobDataset(root="photos", path="train")
    with Client(shared_service.url) as client:
        submitted = client.submit(JobCreate(dataset=dataset, backbone="builtin"))
        return client.wait(submitted.id).id


@pytest.fixture
def ask(shared_service: Service) -> Callable[..., Any]:
    """Calls one tool after the other; gives the answer of each."""

    async def asked(*calls: tuple[str, Result]) -> list[Any]:
        with Client(shared_service.url) as client:
            async with Assistant(create_server(client)) as assistant:
                return [await assistant.call_tool(name, values) for name, values in calls]

    return lambda *calls: asyncio.run(asked(*calls))


def test_an_assistant_submits_a_job_and_sees_it(ask: Callable[..., Any]) -> None:
    scored, roots, folder, jobs = ask(
        ("score_dataset", {"root": "photos", "path": "train", "backbone": "builtin", "limit": 3}),
        ("list_datasets", {}),
        ("list_datasets", {"root": "photos"}),
        ("list_jobs", {"limit": 1}),
    )

    submitted = scored.structured_content
    assert submitted["dataset"] == {"root": "photos", "path": "train"}
    (status,) = ask(("job_status", {"job_id": submitted["id"]}))
    assert status.structured_content["id"] == submitted["id"]
    assert [each["name"] for each in roots.structured_content["entries"]] == ["photos"]
    assert "train" in [each["name"] for each in folder.structured_content["entries"]]
    assert [each["id"] for each in jobs.structured_content["jobs"]] == [submitted["id"]]


def test_doubtful_samples_come_with_their_pictures(ask: Callable[..., Any], job: str) -> None:
    shown, without = ask(
        ("doubtful_samples", {"job_id": job, "limit": 2, "picture_size": 16}),
        ("doubtful_samples", {"job_id": job, "limit": 2, "picture_size": 0}),
    )

    page = shown.structured_content
    pictures = [each for each in shown.content if isinstance(each, ImageContent)]
    assert page["matching"] >= len(page["samples"]) > 0
    assert [each["picture"] for each in page["samples"]] == list(range(1, len(pictures) + 1))
    for picture in pictures:
        assert max(Image.open(io.BytesIO(base64.b64decode(picture.data))).size) == 16
    assert len(without.content) == 1
    assert [each["picture"] for each in without.structured_content["samples"]] == [None] * len(
        page["samples"]
    )


def test_an_assistant_replaces_a_mark_only_if_it_says_so(ask: Callable[..., Any], job: str) -> None:
    (before,) = ask(("doubtful_samples", {"job_id": job, "picture_size": 0}))
    sample_id = before.structured_content["samples"][0]["sample_id"]
    keep, drop = (
        [{"sample_id": sample_id, "decision": {"mark": mark}}] for mark in ("keep", "drop")
    )

    marked, again, replaced, after = ask(
        ("mark_samples", {"job_id": job, "changes": keep}),
        ("mark_samples", {"job_id": job, "changes": drop}),
        ("mark_samples", {"job_id": job, "changes": drop, "replace": True}),
        ("doubtful_samples", {"job_id": job, "picture_size": 0}),
    )

    assert marked.structured_content["counts"]["keep"] == 1
    assert again.is_error
    assert replaced.structured_content["counts"] == {
        "keep": 0,
        "relabel": 0,
        "drop": 1,
        "misplaced": 0,
    }
    assert sample_id not in [each["sample_id"] for each in after.structured_content["samples"]]


@pytest.mark.parametrize(
    ("tool", "values", "sentence"),
    [
        ("job_status", {"job_id": "unknown"}, "there is no job 'unknown'; "),
        ("doubtful_samples", {"job_id": "x", "limit": 99}, "limit: Input should be less than"),
        ("score_dataset", {"root": "nowhere"}, "there is no root 'nowhere'; the roots are: photos"),
        ("score_dataset", {"root": "photos", "backbone": "/etc/x"}, "backbone: String should"),
    ],
)
def test_an_error_is_one_line_about_the_call(
    ask: Callable[..., Any], tool: str, values: Result, sentence: str
) -> None:
    (answer,) = ask((tool, values))

    assert answer.is_error
    (content,) = answer.content
    assert isinstance(content, TextContent)
    assert content.text.startswith(sentence)
    assert "\n" not in content.text


def test_the_command_offers_the_tools_over_standard_input_and_output(
    shared_service: Service, job: str
) -> None:
    words = ["-m", "difficulty_service", "mcp", "--url", shared_service.url]
    command = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))

    async def asked() -> tuple[set[str], Any]:
        async with Assistant(command) as assistant:
            tools = (await assistant.list_tools()).tools
            return {each.name for each in tools}, await assistant.call_tool(
                "job_status", {"job_id": job}
            )

    names, status = asyncio.run(asked())

    assert names == TOOLS
    assert status.structured_content["state"] == "succeeded"
