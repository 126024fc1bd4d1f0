"""The same datasets from S3, through fsspec and by globs."""

import base64
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSystem

from difficulty_service.base.errors import DatasetError, ImageError, MissingPackage
from difficulty_service.datasets.file_search import find_files
from tests.dataset_files import IMAGES, contents_of, dataset_of

PutObjects = Callable[[dict[str, bytes]], str]


def _parquet(images: list[bytes]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"image": images, "label": [0] * len(images)}), buffer)
    return buffer.getvalue()


def _tar(images: list[bytes], mode: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for number, image in enumerate(images):
            for name, data in ((f"{number}.png", image), (f"{number}.cls", b"0")):
                header = tarfile.TarInfo(name)
                header.size = len(data)
                tar.addfile(header, io.BytesIO(data))
    return buffer.getvalue()


def test_a_folder_on_s3_is_the_same_dataset_as_its_local_copy(
    put_objects: PutObjects, class_folders: Path
) -> None:
    (class_folders / "cat/notes.txt").write_text("hello")
    local = dataset_of(class_folders)
    files = [path for path in class_folders.rglob("*") if path.is_file()]
    keys = {f"photos/{path.relative_to(class_folders)}": path.read_bytes() for path in files}

    remote = dataset_of(put_objects(keys) + "/photos")

    assert remote.sample_ids == local.sample_ids
    assert remote.fingerprint == local.fingerprint
    *good, text = sorted(remote.read_shard(0), key=lambda sample: "notes" in sample.sample_id)
    assert [s.open().read() for s in good] == [
        (class_folders / s.sample_id).read_bytes() for s in good
    ]
    with pytest.raises(ImageError, match=r"extension '\.txt'"):
        text.open()


def test_parquet_files_on_s3_open_by_a_glob(put_objects: PutObjects) -> None:
    objects = {"d/a.parquet": _parquet(IMAGES[:5]), "d/b.parquet": _parquet(IMAGES[5:])}
    bucket = put_objects({**objects, "d/deep/c.parquet": _parquet(IMAGES[:1]), "d/x.csv": b"a"})

    dataset = dataset_of(f"{bucket}/d/*.parquet", shard_size=4)

    assert dataset.sample_ids[4:6] == ["a.parquet#4", "b.parquet#0"]
    assert contents_of(dataset) == IMAGES


def test_the_server_can_be_named_in_the_uri(
    put_objects: PutObjects, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = put_objects({"t.parquet": _parquet(IMAGES)})
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    server = s3_endpoint.removeprefix("http://")

    dataset = dataset_of(f"{bucket}/*.parquet?endpoint_override={server}&scheme=http")

    assert contents_of(dataset) == IMAGES


@pytest.mark.parametrize(("name", "mode"), [("s.tar", "w"), ("s.tar.gz", "w:gz")])
def test_tars_on_s3_are_read_in_order(put_objects: PutObjects, name: str, mode: str) -> None:
    bucket = put_objects({f"shards/{name}": _tar(IMAGES, mode)})

    dataset = dataset_of(f"{bucket}/shards/{name}", shard_size=5)

    assert contents_of(dataset) == IMAGES


def test_paths_in_a_remote_table_are_relative_to_it_or_uris(put_objects: PutObjects) -> None:
    bucket = put_objects({"d/img/0.png": IMAGES[0], "other/1.png": IMAGES[1]})
    table = f"path,label\nimg/0.png,0\n{bucket}/other/1.png,1\nimg/no.png,1\n"
    filesystem, path = FileSystem.from_uri(f"{bucket}/d/t.csv")
    with filesystem.open_output_stream(path) as stream:
        stream.write(table.encode())

    dataset = dataset_of(f"{bucket}/d/t.csv")

    first, second, missing = dataset.read_shard(0)
    assert first.open().read() == IMAGES[0]
    assert second.open().read() == IMAGES[1]
    with pytest.raises(ImageError, match="cannot be read"):
        missing.open()


def test_a_missing_file_on_s3_is_an_error(put_objects: PutObjects) -> None:
    bucket = put_objects({"a/b.parquet": b""})

    with pytest.raises(DatasetError, match="does not exist"):
        dataset_of(f"{bucket}/nothing")
    with pytest.raises(DatasetError, match="no file matches"):
        dataset_of(f"{bucket}/a/*.csv")


def test_other_schemes_are_read_through_fsspec() -> None:
    memory = fsspec.filesystem("memory")
    for number, name in enumerate(["cat/a.png", "dog/b.png"]):
        memory.pipe(f"/photos/{name}", IMAGES[number])
    memory.pipe("/tables/t.parquet", _parquet(IMAGES))
    memory.pipe("/tars/t.tar.gz", _tar(IMAGES, "w:gz"))

    folder = dataset_of("memory://photos")
    table = dataset_of("memory://tables/*.parquet")
    tar = dataset_of("memory://tars")

    assert folder.sample_ids == ["cat/a.png", "dog/b.png"]
    assert contents_of(folder) == IMAGES[:2]
    assert contents_of(table) == contents_of(tar) == IMAGES


def test_an_unknown_scheme_is_an_error() -> None:
    with pytest.raises(DatasetError, match="'nonsense://x' is not a location"):
        dataset_of("nonsense://x")


def test_a_scheme_without_its_package_names_the_package() -> None:
    with pytest.raises(MissingPackage, match="needs a package that is not installed"):
        dataset_of("adl://x/y")


def test_globs_cross_folders_only_with_two_stars(tmp_path: Path, put_objects: PutObjects) -> None:
    names = ["a.csv", "d/b.csv", "d/e/c.csv", "d/.hidden.csv", "d/x.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    bucket = put_objects(dict.fromkeys(names, b"x"))

    for pattern in ("*.csv", "d/*.csv", "*/*.csv", "**/*.csv", "d/**", "d/[ab].csv"):
        local = [file.place.path for file in find_files(f"{tmp_path}/{pattern}")]
        remote = [file.place.path for file in find_files(f"{bucket}/{pattern}")]
        start = len(bucket.removeprefix("s3://"))
        assert [path[start:] for path in remote] == [path[len(str(tmp_path)) :] for path in local]


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "t[1].csv").write_text("path,label\na.png,0\n")

    dataset = dataset_of(tmp_path / "t[1].csv")

    assert dataset.sample_ids == ["a.png"]


def test_a_pipe_in_place_of_a_table_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.csv")

    with pytest.raises(DatasetError, match="not a regular file"):
        dataset_of(tmp_path / "t.csv")


def test_invalid_base64_is_an_error_of_that_image(tmp_path: Path) -> None:
    rows = [{"image": {"bytes": "%%%"}, "label": 0}]
    rows.append({"image": {"bytes": base64.b64encode(b"x").decode()}, "label": 0})
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))

    bad, good = dataset_of(tmp_path / "t.jsonl").read_shard(0)

    assert good.open().read() == b"x"
    with pytest.raises(ImageError, match="not base64"):
        bad.open()


def test_a_folder_of_folders_alone_is_said_to_have_no_file(tmp_path: Path) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)

    with pytest.raises(DatasetError, match="has no file of its own"):
        find_files(str(tmp_path / "photos"))
