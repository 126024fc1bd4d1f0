"""Requests can name datasets below the configured roots, and nothing else."""

from pathlib import Path

import pytest

from api.http.problems import Problem
from api.jobs.dataset import resolve_dataset, root_boundary
from api.settings import Settings
from difficulty_service.datasets.storage import resolve


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    roots = {"photos": str(tmp_path / "photos"), "bucket": "s3://bucket/data"}
    return Settings(roots=roots, data_dir=tmp_path / "data")


@pytest.mark.parametrize(
    ("path", "tail"),
    [
        ("train", "/train"),
        ("a/b/*.parquet", "/a/b/*.parquet"),
        ("", ""),
        (".", ""),
        ("./train/", "/train"),
        ("with space/ü", "/with space/ü"),
        ("100%/x", "/100%/x"),
    ],
)
def test_a_path_below_a_root_is_found(settings: Settings, path: str, tail: str) -> None:
    assert resolve_dataset(settings, "photos", path) == settings.roots["photos"] + tail


ESCAPES = [
    "..",
    "../x",
    "a/../../x",
    "a/..",
    "/etc/passwd",
    "//server/share",
    "~/x",
    "..\\x",
    "a\\..\\..\\x",
    "\\\\server\\share",
    "C:\\x",
    "c:/x",
    "file:///etc/passwd",
    "s3://other/x",
    "hf:cifar10",
    "data:text/plain,x",
    "%2e%2e/x",
    "%2e%2e%2fx",
    "..%2fx",
    "%252e%252e%252fx",
    "%25252e%25252e/x",
    "%2525252525252e%2525252525252e/x",
    "%5c..%5cx",
    "a%00b",
    "a\x00b",
    "a\nb",
    "%2fetc/passwd",
    "%66ile:///etc/passwd",
]


@pytest.mark.parametrize("root", ["photos", "bucket"])
@pytest.mark.parametrize("path", ESCAPES)
def test_a_path_that_could_lead_out_is_refused_in_every_encoding(
    settings: Settings, root: str, path: str
) -> None:
    with pytest.raises(Problem) as caught:
        resolve_dataset(settings, root, path)

    assert (caught.value.status, caught.value.field) == (422, "dataset.path")


@pytest.mark.parametrize("path", ["x?endpoint_override=evil", "a%20b"])
def test_a_remote_path_cannot_bring_its_own_query_or_encoding(
    settings: Settings, path: str
) -> None:
    with pytest.raises(Problem):
        resolve_dataset(settings, "bucket", path)


def test_an_unknown_root_is_named_with_those_there_are(settings: Settings) -> None:
    with pytest.raises(Problem) as caught:
        resolve_dataset(settings, "etc", "x")

    assert caught.value.field == "dataset.root"
    assert "bucket, photos" in caught.value.detail


def test_the_boundary_of_a_root_is_the_folder_itself(settings: Settings, tmp_path: Path) -> None:
    assert root_boundary(settings, "photos").root == str(tmp_path / "photos")


def test_the_query_of_a_remote_root_stays_at_its_end(tmp_path: Path) -> None:
    root = "s3://bucket/data?endpoint_override=127.0.0.1:9000&scheme=http"
    settings = Settings(roots={"bucket": root}, data_dir=tmp_path)

    location = resolve_dataset(settings, "bucket", "ü #1/*.parquet")

    assert location == "s3://bucket/data/%C3%BC %231/*.parquet?" + root.partition("?")[2]
    assert root_boundary(settings, "bucket").uri == "s3://bucket/data"
    assert resolve(location).path == "bucket/data/ü #1/*.parquet"
