"""Styles and scripts are answered from memory and kept by browsers until they change."""

from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from api.pages.assets import Assets

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def client(tmp_path: Path) -> httpx2.AsyncClient:
    folder = tmp_path / "static"
    (folder / "vendor").mkdir(parents=True)
    (folder / "page.css").write_text("body {}")
    (folder / "vendor" / "library.js").write_text("alert()")
    (tmp_path / "secret").write_text("secret")
    app = Starlette(routes=[Mount("/static", Assets({"": folder}))])
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost")


async def test_a_file_comes_with_its_type_and_is_asked_about_again(
    client: httpx2.AsyncClient,
) -> None:
    style = await client.get("/static/page.css")
    script = await client.get("/static/vendor/library.js")

    assert (style.text, style.headers["Content-Type"]) == ("body {}", "text/css; charset=utf-8")
    assert (script.text, script.headers["Cache-Control"]) == ("alert()", "no-cache")
    assert script.headers["Content-Type"].startswith("text/javascript")
    assert style.headers["ETag"] != script.headers["ETag"]


async def test_a_client_that_has_the_file_gets_no_copy(client: httpx2.AsyncClient) -> None:
    etag = (await client.get("/static/page.css")).headers["ETag"]

    again = await client.get("/static/page.css", headers={"If-None-Match": f'W/{etag}, "other"'})
    other = await client.get("/static/page.css", headers={"If-None-Match": '"other"'})

    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)
    assert other.status_code == 200


@pytest.mark.parametrize("path", ["none", "", "vendor", "..%2fsecret"])
async def test_nothing_else_is_answered(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.get(f"/static/{path}")).status_code == 404


async def test_files_can_only_be_read(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/static/page.css")

    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


async def test_below_the_version_a_file_is_kept_for_ever(tmp_path: Path) -> None:
    versions = []
    for text in ("body {}", "body { margin: 0 }"):
        (tmp_path / "page.css").write_text(text)
        assets = Assets({"report": tmp_path})
        versions.append(assets.version)
        app = Starlette(routes=[Mount("/static", assets)])
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            style = await client.get(f"/static/{assets.version}/report/page.css")
            before = await client.get(f"/static/{versions[0]}/report/page.css")

        assert style.text == text
        assert style.headers["Cache-Control"] == "public, max-age=31536000, immutable"

    assert versions[0] != versions[1]
    assert before.status_code == 404


async def test_a_file_is_compressed_for_who_takes_that(client: httpx2.AsyncClient) -> None:
    texts = []
    for encoding in ("gzip, br", "identity"):
        answer = await client.get("/static/page.css", headers={"Accept-Encoding": encoding})
        texts.append((answer.text, answer.headers.get("Content-Encoding"), answer.headers["ETag"]))
        assert answer.headers["Vary"] == "Accept-Encoding"

    assert [text[:2] for text in texts] == [("body {}", "gzip"), ("body {}", None)]
    assert texts[0][2] != texts[1][2]
