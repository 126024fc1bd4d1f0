"""A complete upload is a file of the announced format, or it is refused."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.service import ServiceClient, announce, assert_problem, client_of


def parquet(**columns: Any) -> bytes:  # noqa: ANN401
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def tar(count: int) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as opened:
        for number in range(count):
            header = tarfile.TarInfo(f"cat/{number}.png")
            header.size = 4
            opened.addfile(header, io.BytesIO(b"abcd"))
    return data.getvalue()


class Pickled(pa.ExtensionType):
    """A type that pyarrow must not rebuild from a file."""

    def __init__(self) -> None:
        super().__init__(pa.binary(), "arrow.py_extension_type")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"cos\nsystem\n(S'false'\ntR."

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _data: bytes) -> "Pickled":
        return cls()


def pickled() -> bytes:
    cells = pa.ExtensionArray.from_storage(Pickled(), pa.array([b"x"]))
    return parquet(image=[b"x"], other=pa.StructArray.from_arrays([cells], ["inside"]))


BAD: list[tuple[str, Callable[[], bytes]]] = [
    ("tar", lambda: b"no tar"),
    ("tar", lambda: tar(0)),
    ("tar", lambda: tar(3)[:1500]),
    ("zip", lambda: tar(3)),
    ("zip", lambda: b"PK\x05\x06"),
    ("parquet", lambda: tar(3)),
    ("parquet", lambda: b"PAR1"),
    ("parquet", lambda: b"PAR1" + b"\xff" * 4 + b"PAR1"),
    ("parquet", lambda: b"PAR1" + b"\x08\0\0\0\0\0\0\0" + b"\x08\0\0\0PAR1"),
    ("parquet", lambda: parquet(path=["/etc/passwd"], label=[1])),
    ("parquet", pickled),
]


@pytest.mark.parametrize(("form", "make"), BAD)
def test_a_file_of_another_format_is_refused_and_can_be_deleted(
    client: ServiceClient, form: str, make: Callable[[], bytes]
) -> None:
    data = make()
    address = announce(client, form, len(data))

    answer = client.put(address, content=data)

    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/unreadable"
    assert str(client.settings.data_dir) not in answer.text
    assert client.get(address).json()["state"] == "open"
    assert client.delete(address).status_code == 204
    assert client.get(address).status_code == 404
    assert list(client.settings.upload_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("form", "data"), [("tar", tar(2)), ("parquet", parquet(image=[b"x"], label=[1]))]
)
def test_good_files_of_every_format_are_accepted(
    client: ServiceClient, form: str, data: bytes
) -> None:
    address = announce(client, form, len(data))

    assert client.put(address, content=data).json()["state"] == "complete"


@pytest.mark.slow
def test_an_upload_whose_check_takes_too_long_is_refused_and_stays_open(tmp_path: Path) -> None:
    content = tar(20_000)
    with client_of(tmp_path, upload_check_seconds=0.01) as client:
        announced = client.post("/v1/uploads", json={"format": "tar", "size": len(content)})
        address = announced.headers["Location"]

        refused = client.put(address, content=content)

        assert_problem(refused, 422, "unreadable")
        assert "took longer than 0.01 s" in refused.json()["detail"]
        assert client.get(address).json()["state"] == "open"
