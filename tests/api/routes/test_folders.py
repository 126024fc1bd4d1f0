"""Whoever may submit a job may look for its dataset in a root, one folder at a time."""

import os
from pathlib import Path
from typing import Any

import pytest

from api.jobs import folders
from api.jobs.folders import PAGE, PEEKED_ENTRIES
from api.settings import Settings
from api.storage.keys import create_key
from tests.service import ServiceClient, assert_problem


@pytest.fixture
def root(settings: Settings) -> Path:
    return Path(settings.roots["photos"])


def look(client: ServiceClient, path: str = "", **parameters: Any) -> dict[str, Any]:  # noqa: ANN401
    answer = client.get("/v1/folders", params={"root": "photos", "path": path, **parameters})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_folders_come_first_then_tables_and_archives_each_with_what_it_is(
    client: ServiceClient, root: Path
) -> None:
    for name in ("cat", "dog"):
        (root / "train" / name).mkdir()
    for number in range(3):
        (root / "train" / "cat" / f"{number}.PNG").touch()
    for name in ("b.parquet", "a.tar.gz", "c.zip", "d.json", "e.xml", "notes.txt", "single.jpg"):
        (root / name).touch()

    top, train = look(client), look(client, "train")

    assert [tuple(each.values()) for each in top["entries"]] == [
        ("train", "train", "folder", "2 folders"),
        ("a.tar.gz", "a.tar.gz", "tar", ""),
        ("b.parquet", "b.parquet", "table", ""),
        ("c.zip", "c.zip", "zip", ""),
        ("d.json", "d.json", "JSON file", ""),
        ("e.xml", "e.xml", "annotation file", ""),
    ]
    assert (top["path"], top["more"]) == ("", 0)
    assert top["hint"] == (
        "1 folder, 1 table, 1 tar, 1 zip, 1 JSON file, 1 annotation file, 1 image, 1 other file"
    )
    assert [(each["path"], each["hint"]) for each in train["entries"]] == [
        ("train/cat", "3 images"),
        ("train/dog", "empty"),
    ]


def test_a_path_that_is_listed_can_be_submitted(client: ServiceClient, root: Path) -> None:
    for name in ("ü #1", "100%", "a[1]*", "{x}"):
        (root / name).mkdir()

    paths = [each["path"] for each in look(client)["entries"]]

    assert len(paths) == 5
    for path in paths:
        assert look(client, path)["path"] == path
        body = {"dataset": {"root": "photos", "path": path}}
        assert client.post("/v1/jobs", json=body).status_code == 202


@pytest.mark.parametrize(
    "path",
    [
        *("..", "train/..", "../photos", "/etc", "~/x", "a\\b", "%2e%2e", "a%00b", "a\x00b"),
        *("file:///etc", "s3://other/x", "no such", "x" * 1999, "train/" * 300, "*", "train/*"),
    ],
)
def test_a_path_that_leads_out_or_nowhere_is_refused(client: ServiceClient, path: str) -> None:
    answer = client.get("/v1/folders", params={"root": "photos", "path": path})

    assert_problem(answer, 422, "invalid-request")
    assert answer.json()["field"] in ("path", "dataset.path")


def test_no_link_discloses_what_is_outside_of_the_root(client: ServiceClient, root: Path) -> None:
    outside = root.parent / "outside"
    (outside / "secret").mkdir(parents=True)
    (outside / "table.csv").touch()
    (root / "out").symlink_to(outside)
    (root / "out.csv").symlink_to(outside / "table.csv")
    (root / "in").symlink_to(root / "train")
    (root / "broken").symlink_to(root / "nothing")
    (root / "loop").symlink_to(root / "loop")

    top = look(client)
    through = client.get("/v1/folders", params={"root": "photos", "path": "out"})
    nowhere = client.get("/v1/folders", params={"root": "photos", "path": "away"})

    assert [each["name"] for each in top["entries"]] == ["in", "train"]
    assert top["hint"] == "2 folders, 2 other files"
    assert_problem(through, 422, "invalid-request", "path")
    assert through.json()["detail"].replace("'out'", "'away'") == nowhere.json()["detail"]
    assert str(root) not in through.text


def test_a_peek_counts_no_link_that_leads_out(client: ServiceClient, root: Path) -> None:
    (root.parent / "outside").mkdir()
    (root / "train" / "out").symlink_to(root.parent / "outside")

    assert look(client)["entries"][0]["hint"] == "empty"


def test_hidden_files_are_neither_listed_nor_opened(client: ServiceClient, root: Path) -> None:
    (root / ".git" / "objects").mkdir(parents=True)
    (root / ".table.csv").touch()

    assert [each["name"] for each in look(client)["entries"]] == ["train"]
    for path in (".git", ".git/objects", "train/../.git"):
        answer = client.get("/v1/folders", params={"root": "photos", "path": path})
        assert_problem(answer, 422, "invalid-request")


@pytest.mark.parametrize("name", [b"caf\xe9", b"a\nb", b"a\\b", b"c:x"])
def test_a_name_that_no_job_can_have_is_listed_without_a_path(
    client: ServiceClient, root: Path, name: bytes
) -> None:
    os.mkdir(os.fsencode(root) + b"/" + name)  # noqa: PTH102 - bytes

    (entry,) = (each for each in look(client)["entries"] if each["name"] != "train")

    assert entry["path"] is None
    assert entry["kind"] == "folder"
    assert entry["name"] == name.decode(errors="backslashreplace")


def test_a_folder_of_more_entries_than_are_looked_at_is_shown_a_page_at_a_time(
    client: ServiceClient, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MOST_ENTRIES", 1000)
    for number in range(1010):
        (root / "train" / f"{number:06}.csv").touch()

    first, peeked = look(client, "train"), look(client)["entries"][0]
    last = look(client, "train", start=1000 - PAGE)

    assert first["hint"] == "1,000 tables among the first 1,000 entries"
    assert len(first["entries"]) == len(last["entries"]) == PAGE
    assert (first["start"], first["more"]) == (0, 1000 - PAGE)
    assert (last["start"], last["more"]) == (1000 - PAGE, 0)
    assert peeked["hint"] == f"{PEEKED_ENTRIES} tables among the first {PEEKED_ENTRIES} entries"


def test_only_one_folder_and_the_beginning_of_those_in_it_are_read(
    client: ServiceClient, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "train" / "deep" / "deeper").mkdir(parents=True)
    seen = []
    real = folders.list_folder
    monkeypatch.setattr(
        folders, "list_folder", lambda place, most: seen.append(place.name) or real(place, most)
    )

    look(client)

    assert seen == ["photos", "train"]


def test_a_folder_that_the_service_may_not_read_says_so(client: ServiceClient, root: Path) -> None:
    (root / "train").chmod(0)
    try:
        if os.access(root / "train", os.R_OK):
            pytest.skip("the superuser may read everything")
        assert look(client)["entries"][0]["hint"] == "cannot be read"
    finally:
        (root / "train").chmod(0o755)


def test_a_file_is_no_folder(client: ServiceClient, root: Path) -> None:
    (root / "a.csv").touch()

    answer = client.get("/v1/folders", params={"root": "photos", "path": "a.csv"})

    assert_problem(answer, 422, "invalid-request", "path")


def test_an_unknown_root_is_answered_with_those_there_are(client: ServiceClient) -> None:
    answer = client.get("/v1/folders", params={"root": "etc"})

    assert_problem(answer, 422, "invalid-request", "dataset.root")
    assert "photos" in answer.json()["detail"]


def test_only_a_key_that_may_submit_jobs_may_look(client: ServiceClient) -> None:
    _, reader = create_key(client.engine, "reader", ["read-all"])
    _, writer = create_key(client.engine, "writer", ["write"])
    address = "/v1/folders?root=photos"

    assert_problem(client.get(address), 401, "unauthorised")
    assert_problem(client.get(address, headers={"X-API-Key": reader}), 403, "forbidden")
    assert client.get(address, headers={"X-API-Key": writer}).status_code == 200
