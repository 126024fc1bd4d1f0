"""Malicious datasets, or their images, are refused, and the worker survives."""

import io
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.api.live.running import Service
from tests.small_network import SMALL

ROOM = 400 << 20  # bytes that a process may grow by
ABORTING = Path(__file__).parents[2] / "data" / "aborting.parquet"
OUTSIDE = "/tmp/difficulty-hostile"  # noqa: S108 - nothing may ever appear there
BOMB = 600 << 20  # bytes that the files unpack to, more than ROOM


def png(shade: int) -> bytes:
    target = io.BytesIO()
    pixels = np.full((16, 16, 3), shade, np.uint8)
    Image.fromarray(pixels + np.arange(16, dtype=np.uint8)[:, None, None]).save(target, "PNG")
    return target.getvalue()


def png_that_says(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header declares more pixels than fit in memory."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    content = chunk(b"IDAT", zlib.compress(bytes(100_000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + content + chunk(b"IEND", b"")


GOOD = {
    f"{name}/{row}.png": png(40 * label + row)
    for label, name in enumerate(("cat", "dog"))
    for row in range(6)
}


def tar_with(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A tar with good images and these."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, data in GOOD.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for info, data in members:
            info.size = info.size or len(data)
            archive.addfile(info, io.BytesIO(data + bytes(max(0, info.size - len(data)))))
    return target.getvalue()


def tar_member(name: str) -> bytes:
    return tar_with((tarfile.TarInfo(name), png(9)))


def tar_of_links_and_devices() -> bytes:
    """Members that are no files: links out, of both kinds, a device and a pipe."""
    members = []
    for name, kind, target in (
        ("cat/link.png", tarfile.SYMTYPE, "/etc/passwd"),
        ("cat/hard.png", tarfile.LNKTYPE, "../../../etc/passwd"),
        ("cat/null.png", tarfile.CHRTYPE, ""),
        ("cat/pipe.png", tarfile.FIFOTYPE, ""),
    ):
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, target
        members.append((info, b""))
    return tar_with(*members)


def tar_whose_member_is_longer_than_the_file() -> bytes:
    whole = tar_with()
    info = tarfile.TarInfo("cat/long.png")
    info.size = 1 << 40
    return whole[: len(whole) - 10240] + info.tobuf() + bytes(1024)


def zip_with(**members: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (GOOD | members).items():
            archive.writestr(name, data)
    return target.getvalue()


def zip_member_without_a_name() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in (GOOD | {"": png(9)}).items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return target.getvalue()


def zip_bomb() -> bytes:
    """Hundreds of megabytes of zeros in less than one."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in GOOD.items():
            archive.writestr(name, data)
        with archive.open("cat/bomb.png", "w", force_zip64=True) as file:
            for _ in range(BOMB >> 24):
                file.write(bytes(1 << 24))
    return target.getvalue()


def zip_of_overlapping_members() -> bytes:
    """Many members with the same bytes, which together are far larger than the file."""
    whole = bytearray(zip_with(**{f"cat/x{number}.png": bytes(1000) for number in range(50)}))
    places = [place for place in range(len(whole)) if whole[place : place + 4] == b"PK\x01\x02"]
    for place in places:
        struct.pack_into("<I", whole, place + 42, 0)
    return bytes(whole)


def zip_of_lying_images() -> bytes:
    """An image of more pixels than memory, one of none, and one that is longer than it says."""
    lying = {"cat/huge.png": png_that_says(60_000, 60_000), "cat/none.png": png_that_says(0, 0)}
    whole = bytearray(zip_with(**lying, **{"cat/lie.png": bytes(5000)}))
    place = whole.rindex(b"PK\x01\x02")
    struct.pack_into("<I", whole, place + 24, 10)
    return bytes(whole)


class Unpickled:
    """An object that creates a file when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (open, (OUTSIDE, "w"))


def parquet_with_a_pickle() -> bytes:
    """A column of the kind of extension type that old pyarrow unpickled when it read a file."""
    metadata = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Unpickled()),
    }
    column = pa.field("image", pa.binary(), metadata=metadata)
    return parquet_of(pa.schema([column, pa.field("label", pa.string())]))


def parquet_of(schema: pa.Schema) -> bytes:
    target = pa.BufferOutputStream()
    columns = [pa.array(list(GOOD.values())), pa.array([name[:3] for name in GOOD])]
    pq.write_table(
        pa.table(
            [column.cast(each.type) for column, each in zip(columns, schema, strict=True)],
            schema=schema,
        ),
        target,
    )
    return target.getvalue().to_pybytes()


def parquet_of_paths(path: str) -> bytes:
    target = pa.BufferOutputStream()
    pq.write_table(pa.table({"image": [path] * 4, "label": ["cat", "dog"] * 2}), target)
    return target.getvalue().to_pybytes()


def parquet_with(
    images: pa.Array | None = None,
    labels: pa.Array | None = None,
    names: tuple[str, ...] = ("image", "label"),
    **options: Any,  # noqa: ANN401
) -> bytes:
    """Parquet as a file that unpacks to far more than it has: without statistics, and packed."""
    target = pa.BufferOutputStream()
    if labels is None:
        labels = pa.array(["cat", "dog"] * (0 if images is None else len(images) // 2))
    if images is None:
        images = pa.array([list(GOOD.values())[row % len(GOOD)] for row in range(len(labels))])
    table = pa.table([images, labels, *[labels] * (len(names) - 2)], names=list(names))
    pq.write_table(table, target, **{"compression": "zstd", "write_statistics": False} | options)
    return target.getvalue().to_pybytes()


def repeated(value: bytes | str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value])).cast(
        pa.binary() if isinstance(value, bytes) else pa.string()
    )


def parquet_whose_footer_lies() -> bytes:
    return b"PAR1" + bytes(100) + struct.pack("<I", 0xFFFFFFF0) + b"PAR1"


LINKS_AND_DEVICES = "a tar of links out, a device and a pipe"
LYING_IMAGES = "a zip of images that lie about their sizes"
REFUSED_IMAGES = {
    LINKS_AND_DEVICES: ("link", "hard", "null", "pipe"),
    LYING_IMAGES: ("huge", "none", "lie"),
}
"""Members of files that hold several, each hostile in a way of its own."""

FILES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a tar member above the archive": ("tar", lambda: tar_member("../../hostile.png")),
    "a tar member with an absolute name": ("tar", lambda: tar_member(f"{OUTSIDE}/a.png")),
    LINKS_AND_DEVICES: ("tar", tar_of_links_and_devices),
    "a tar member longer than the tar": ("tar", tar_whose_member_is_longer_than_the_file),
    "a tar of noise": ("tar", lambda: np.random.default_rng(0).bytes(50_000)),
    "a zip member above the archive": (
        "zip",
        lambda: zip_with(**{"cat/../../../hostile.png": png(9)}),
    ),
    "a zip member with an absolute name": ("zip", lambda: zip_with(**{f"{OUTSIDE}/a": png(9)})),
    "a zip member with backslashes": (
        "zip",
        lambda: zip_with(**{"cat\\..\\..\\hostile.png": png(9)}),
    ),
    "a zip bomb": ("zip", zip_bomb),
    "a zip of overlapping members": ("zip", zip_of_overlapping_members),
    LYING_IMAGES: ("zip", zip_of_lying_images),
    "Parquet with a pickle": ("parquet", parquet_with_a_pickle),
    "Parquet with paths": ("parquet", lambda: parquet_of_paths("/etc/passwd")),
    "Parquet with URIs": ("parquet", lambda: parquet_of_paths("file:///etc/passwd")),
    "Parquet with addresses": ("parquet", lambda: parquet_of_paths("http://127.0.0.1:1/x.png")),
    "Parquet whose footer lies": ("parquet", parquet_whose_footer_lies),
    "Parquet that ends its reader": ("parquet", ABORTING.read_bytes),
    "Parquet that repeats an image of 80 MB": (
        "parquet",
        lambda: parquet_with(repeated(bytes(80 << 20), 8)),
    ),
    "Parquet that repeats an image of 12 MB": (
        "parquet",
        lambda: parquet_with(repeated(bytes(12 << 20), 52)),
    ),
    "Parquet that repeats a label of 1 kB": (
        "parquet",
        lambda: parquet_with(labels=repeated("x" * 1000, BOMB // 1000)),
    ),
    "Parquet with the label 1,000,000": (
        "parquet",
        lambda: parquet_with(labels=pa.array([0, 1_000_000])),
    ),
    "Parquet with a million images that are null": (
        "parquet",
        lambda: parquet_with(pa.nulls(1_000_000, pa.binary())),
    ),
    "Parquet with a label of 2 MB": (
        "parquet",
        lambda: parquet_with(labels=pa.array(["x" * (2 << 20), "y"])),
    ),
    "Parquet with labels that are not UTF-8": (
        "parquet",
        lambda: parquet_with(labels=pa.array([b"\xff", b"y"]).view(pa.string())),
    ),
    "Parquet with two columns of labels": (
        "parquet",
        lambda: parquet_with(pa.array([png(1), png(2)]), None, ("image", "label", "label")),
    ),
    "a zip member without a name": ("zip", zip_member_without_a_name),
    "a tar with deep JSON": (
        "tar",
        lambda: tar_with((tarfile.TarInfo("cat/0.json"), b'{"label": ' + b"[" * 100_000)),
    ),
    "a tar with half a character": (
        "tar",
        lambda: tar_with((tarfile.TarInfo("cat/0.json"), b'{"label": "\\ud800"}')),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_refused_or_its_images_are(shared_service: Service, name: str) -> None:
    form, make = FILES[name]
    content = make()
    before = shared_service.peak_memories()

    with shared_service.client() as client:
        upload = client.post("/v1/uploads", json={"format": form, "size": len(content)}).json()
        sent = client.put(upload["links"]["self"], content=content)
        job = {"dataset": {"upload": upload["id"]}, "backbone": SMALL, "shrinkage": 0.5}
        submitted = client.post("/v1/jobs", json=job)
        state, text = "refused", sent.text
        if submitted.is_success:
            links = submitted.json()["links"]
            client.get(links["events"])  # until it has ended
            text += client.get(links["self"]).text
            state = client.get(links["self"]).json()["state"]
            text += client.get(f"{links['self']}/scores").text
            text += client.get(f"{links['self']}/errors").text

    assert sent.status_code in (200, 422)
    assert submitted.status_code in (202, 409)
    assert state in ("refused", "succeeded", "failed")
    assert (sent.status_code == 422) == (state == "refused")
    for image in REFUSED_IMAGES.get(name, ()):
        assert f'{{"sample_id":"cat/{image}.png","reason":' in text
    assert "root:x:0" not in text
    assert "internal" not in text
    assert not Path(OUTSIDE).exists()
    assert grown(shared_service, before) < ROOM


def grown(service: Service, before: list[int]) -> int:
    """Largest increase of the peak memory of a process, in bytes."""
    return max(now - then for now, then in zip(service.peak_memories(), before, strict=True))
