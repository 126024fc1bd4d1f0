"""Messages for clients name roots by their names, and never show credentials or paths."""

from pathlib import Path

import pytest

from api.http.public_text import hide_paths, public_names
from api.settings import Settings

NAMES = {"/srv/data/photos": "photos", "s3://bucket/pictures": "bucket"}
KEY, SECRET, TOKEN = "AKIAQ2", "sl/as+h3d", "t0k3n"
ROOT = (
    f"s3://{KEY}:sl%2Fas%2Bh3d@store/photos/2024?endpoint_override=minio.local:9000&token={TOKEN}"
)


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("'/srv/data/photos/train' has no classes", "'photos/train' has no classes"),
        ("s3://bucket/pictures/a.parquet is damaged", "bucket/a.parquet is damaged"),
        ("No such file: '/home/someone/.cache/weights.pt'", "No such file: 'weights.pt'"),
        ("see ~/secrets/file.txt, then go on", "see file.txt, then go on"),
        ("cat/001.png and/or 5/s of https://example.org/a/b", None),
        ("'cats (old)/1.jpg', cats [2]/2.jpg and a!/b&/c+/é/d.png cannot be read", None),
        ("'a=/1.jpg', 'b>/2.jpg' and 'c|/3.jpg' cannot be read", None),
        ("names with `/` between their parts", None),
        ("open=/etc/passwd, [/root/a], (/root/b), |/root/c", "open=passwd, [a], (b), |c"),
    ],
)
def test_paths_of_the_server_are_hidden(inside: str, outside: str | None) -> None:
    assert hide_paths(inside, NAMES) == (outside or inside)


def test_roots_go_by_their_names_however_they_are_spelled(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    names = public_names(Settings(roots={"photos": f"{tmp_path}/link/"}))

    for folder in ("link", "real"):
        assert hide_paths(f"{tmp_path}/{folder}/train", names) == "photos/train"


def test_a_root_at_the_top_of_the_disk_does_not_turn_every_slash_into_its_name() -> None:
    names = public_names(Settings(roots={"all": "/"}))

    assert hide_paths("cat/001.png", names) == "cat/001.png"


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        (ROOT, "pictures"),
        (ROOT.partition("?")[0] + "/cat/1.png is damaged", "pictures/cat/1.png is damaged"),
        ("No such object: 'store/photos/2024/cat'", "No such object: 'pictures/cat'"),
        ("s3://store/photos/2024: access denied", "pictures: access denied"),
        (
            f"denied to {KEY} with {SECRET} or {TOKEN}",
            "denied to [hidden] with [hidden] or [hidden]",
        ),
        ("cannot connect to minio.local:9000", "cannot connect to [hidden]"),
        ("see GET /v1/backbones", "see GET /v1/backbones"),
    ],
)
def test_the_address_of_a_root_and_its_credentials_are_hidden(inside: str, outside: str) -> None:
    assert hide_paths(inside, public_names(Settings(roots={"pictures": ROOT}))) == outside
