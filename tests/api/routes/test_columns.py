"""The owner of a job attaches tables whose columns filter, order and caption its samples."""

import io
import os
import re
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from httpx2 import Response

from api.bounded_cache import BoundedCache
from api.jobs.files import delete_left_files, scratch_folder
from api.jobs.store import get_job
from api.settings import Settings
from api.storage.keys import Key
from tests.api.stored_results import keys_below
from tests.service import ServiceClient

Call = Callable[..., Response]
Keys = dict[str, tuple[Key, str]]

CAMERAS = b"sample_id,camera,taken\ns0,A,2024-01-01\ns1,<b>B</b>,2024-01-02\ns3,A,2024-01-03\n"
HOSTILE = '=1+1<img src=x onerror="alert(1)">.csv'


def share(call: Call, keys: Keys, name: str) -> None:
    assert call("owner", "PUT", f"reviewers/{keys[name][0].id}").status_code == 204


def listed(page: str) -> list[int]:
    return [int(row) for row in re.findall(r'<li class="card" id="image-(\d+)"', page)]


def parquet(**columns: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


@pytest.mark.slow
@pytest.mark.usefixtures("new_interpreters")
def test_columns_of_a_table_filter_order_and_caption_the_samples(call: Call, job: str) -> None:
    answer = call("owner", "PUT", "columns/cameras.csv", content=CAMERAS)

    assert answer.status_code == 200, answer.text
    assert answer.json()["notes"] == ["cameras.csv: 1 of 4 samples have no row"]
    found = call("owner", "GET", "columns").json()
    assert found["columns"] == [
        {"name": "camera", "kind": "category"},
        {"name": "taken", "kind": "date"},
    ]
    assert found["tables"] == [answer.json()]
    rows = call("owner", "GET", "scores?is.camera=A&sort=rmd").json()["samples"]
    assert [row["sample_id"] for row in rows] == ["s3", "s0"]
    page = call("owner", "GET", f"/jobs/{job}/images?min.taken=2024-01-02&sort=desc.taken").text
    assert listed(page) == [3, 1]
    assert re.findall(r"<bdi>(2024[^<]*)</bdi>", page) == ["2024-01-03", "2024-01-02"]
    one = call("owner", "GET", f"/jobs/{job}/images/1").text
    assert "<bdi>&lt;b&gt;B&lt;/b&gt;</bdi>" in one
    colours = call("owner", "GET", f"/jobs/{job}/map/column?name=camera").json()
    assert colours["names"] == ["<b>B</b>", "A"]


def test_named_columns_only_are_shown_and_a_second_table_tells_equal_names_apart(
    call: Call,
) -> None:
    table = parquet(path=["s0", "s1"], camera=["X", "Y"], taken=[1.5, 2.5], other=[1, 2])
    call("owner", "PUT", "columns/cameras.csv?column=camera", content=CAMERAS)

    call("owner", "PUT", "columns/b.parquet?column=taken&column=camera", content=table)

    found = call("owner", "GET", "columns").json()
    assert [each["name"] for each in found["columns"]] == ["camera", "taken", "camera (b.parquet)"]
    assert [each["columns"] for each in found["tables"]] == [["camera"], ["taken", "camera"]]
    rows = call("owner", "GET", "scores?is.camera (b.parquet)=Y&is.camera=<b>B</b>").json()
    assert [row["sample_id"] for row in rows["samples"]] == ["s1"]


def test_a_table_that_is_sent_again_replaces_the_one_before_and_its_file(
    call: Call, client: ServiceClient
) -> None:
    artifacts = client.services.artifacts
    call("owner", "PUT", "columns/cameras.csv", content=CAMERAS)
    before = keys_below(artifacts, "jobs")

    call("owner", "PUT", "columns/cameras.csv", content=b"sample_id,weight\ns2,0.5\n")

    assert [each["name"] for each in call("owner", "GET", "columns").json()["columns"]] == [
        "weight"
    ]
    after = keys_below(artifacts, "jobs")
    assert len(after) == len(before) == 2
    assert after != before
    assert call("owner", "DELETE", "columns/cameras.csv").status_code == 204
    assert call("owner", "GET", "columns").json() == {"columns": [], "tables": []}
    assert call("owner", "DELETE", "columns/cameras.csv").status_code == 404
    assert [key for key in keys_below(artifacts, "jobs") if "tables" in key] == []
    assert list(scratch_folder(client.settings).iterdir()) == []


@pytest.mark.slow
def test_who_sees_the_job_sees_its_columns_and_only_its_owner_changes_them(
    call: Call, keys: Keys, job: str
) -> None:
    call("owner", "PUT", "columns/cameras.csv", content=CAMERAS)
    share(call, keys, "colleague")

    def statuses(name: str) -> list[int]:
        form = {"files": {"table": ("a.csv", CAMERAS)}}
        return [
            call(name, "GET", "columns").status_code,
            call(name, "GET", f"/jobs/{job}/columns").status_code,
            call(name, "PUT", "columns/a.csv", content=CAMERAS).status_code,
            call(name, "POST", f"/jobs/{job}/columns", **form).status_code,
            call(name, "DELETE", "columns/a.csv").status_code,
        ]

    assert statuses("stranger") == [404] * 5
    for name in ("colleague", "overseer"):
        assert statuses(name) == [200, 200, 403, 403, 403]
        assert "Attach a table" not in call(name, "GET", f"/jobs/{job}/columns").text
    assert statuses("owner") == statuses("admin") == [200, 200, 200, 200, 204]
    page = call("colleague", "GET", f"/jobs/{job}/images?is.camera=A").text
    assert listed(page) == [0, 3]


def test_columns_go_with_their_job(call: Call, client: ServiceClient, job: str) -> None:
    services = client.services
    call("owner", "PUT", "columns/cameras.csv", content=CAMERAS)

    assert call("owner", "DELETE", "").status_code == 204

    assert get_job(services.engine, None, job) is None
    assert list((client.settings.data_dir / "artifacts").rglob("*.arrow")) == []
    assert call("owner", "PUT", "columns/cameras.csv", content=CAMERAS).status_code == 404


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_tables_in_json_are_attached_as_others_are(call: Call, ending: str) -> None:
    rows = [f'{{"sample_id": "s{number}", "camera": "{name}"}}' for number, name in enumerate("AB")]
    content = "\n".join(rows) if ending == "jsonl" else f"[{','.join(rows)}]"

    answer = call("owner", "PUT", f"columns/cameras.{ending}", content=content.encode())

    assert answer.status_code == 200, answer.text
    assert answer.json()["columns"] == ["camera"]
    found = call("owner", "GET", "scores?is.camera=B").json()["samples"]
    assert [row["sample_id"] for row in found] == ["s1"]


UNUSABLE = (
    ("a.csv", b"", "a.csv cannot be joined to the scores: 'a.csv' cannot be read as a table"),
    ("a.csv", b"sample_id\ns0\n", "a.csv has no column that can be shown"),
    ("a.csv", b"x,y\n1,2\n", "a.csv has no column of sample ids: its columns are x, y"),
    ("a.csv", b"sample_id,x\nother,1\n", "none of 4 sample ids is in column sample_id"),
    ("a.csv", b"sample_id,x\ns0,1,2\n", "Expected 2 columns, got 3"),
    ("a.csv", b"sample_id,x\ns0,\x81\n", "is neither UTF-8 nor cp1252"),
    ("a.parquet", b"sample_id,x\ns0,1\n", "it does not end as Parquet does"),
    ("a.parquet", b"PAR1" + b"\xff\xff\xff\x07PAR1", "a.parquet cannot be read"),
    ("a.jsonl", b"[" * 100_000, "a.jsonl' has lists or objects inside more than 100 others"),
    ("a.json", b"[" * 100_000, "a.json' has lists or objects inside more than 100 others"),
    ("a.json", b'{"s0": 1}', "a.json' cannot be read as a table: it is one object, with 's0'"),
    ("a.csv?column=y", b"sample_id,x\ns0,1\n", "a.csv has no column 'y'"),
    ("a.zip", CAMERAS, "'a.zip' is no name of a table"),
    ("a.xlsx", CAMERAS, "'a.xlsx' is no name of a table"),
    ("%2E%2E%5C\u202ea.csv", CAMERAS, "is no name of a table"),
    ("x" * 97 + ".csv", CAMERAS, "at most 100 characters"),
)


def test_a_table_that_cannot_be_joined_is_explained_without_paths_of_the_server(
    call: Call, settings: Settings
) -> None:
    for name, content, message in UNUSABLE:
        answer = call("owner", "PUT", f"columns/{name}", content=content)

        assert answer.status_code == 422, (name, answer.text)
        assert message in answer.json()["detail"]
        assert answer.json()["remedy"]
        assert str(settings.data_dir) not in answer.text
    assert call("owner", "GET", "columns").json()["tables"] == []


def test_limits_of_tables_hold(call: Call, settings: Settings, job: str) -> None:
    many = {f"c{number}": [1.5] for number in range(1001)}
    wide = parquet(sample_id=["s0"], **many)
    large = "columns/a.csv"

    refused = call("owner", "PUT", "columns/a.parquet", content=wide)
    chosen = call("owner", "PUT", "columns/a.parquet?column=c1000", content=wide)
    object.__setattr__(settings, "max_text_bytes", 8 << 20)
    repeated = pa.array(["x" * 1000]).take(pa.array(np.zeros(10_000, np.int64)))
    bomb = parquet(sample_id=[f"s{row}" for row in range(10_000)], note=repeated)
    unpacked = call("owner", "PUT", "columns/c.parquet", content=bomb)
    first = call(
        "owner",
        "PUT",
        "columns/b.parquet",
        content=parquet(sample_id=["s0"], **{f"d{number}": [1.5] for number in range(50)}),
    )

    assert "has 1,002 columns, more than the 1,000" in refused.json()["detail"]
    assert chosen.json()["columns"] == ["c1000"]
    assert first.status_code == 409
    assert len(bomb) < 100_000
    assert "more than 8,388,608 bytes in memory" in unpacked.json()["detail"]
    assert "more than 40" in first.json()["detail"]
    object.__setattr__(settings, "max_table_bytes", 1000)
    assert call("owner", "PUT", large, content=b"x" * 1001).status_code == 413
    form = {"table": ("a.csv", b"x" * 100_000)}
    assert call("owner", "POST", f"/jobs/{job}/columns", files=form).status_code == 413


def test_names_of_tables_and_columns_are_escaped_and_no_formula_is_run(
    call: Call, job: str
) -> None:
    content = b'"sample_id","<script>alert(1)</script>"\ns0,=1+1\n'
    page = f"/jobs/{job}/columns"

    shown = call("owner", "POST", page, files={"table": (HOSTILE.replace('"', "'"), content)}).text

    assert "<script>alert" not in shown
    assert "<img src=x" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown


def test_the_page_attaches_and_removes_tables_without_a_script(call: Call, job: str) -> None:
    page = f"/jobs/{job}/columns"

    refused = call(
        "owner", "POST", page, files={"table": ("a.csv", CAMERAS)}, data={"names": "lens"}
    )
    shown = call(
        "owner",
        "POST",
        page,
        files={"table": ("a.csv", CAMERAS)},
        data={"names": " taken, camera,"},
    ).text

    assert refused.status_code == 422
    assert "a.csv has no column &#39;lens&#39;" in refused.text
    assert 'value="lens"' in refused.text
    assert re.findall(r"<td>(<bdi>taken.*?)</td>", shown) == ["<bdi>taken</bdi>, <bdi>camera</bdi>"]
    assert "1 of 4 samples have no row" in shown
    removed = call("owner", "POST", f"{page}/remove", data={"name": "a.csv"}).text
    assert "No table is attached" in removed


def test_a_damaged_file_shows_no_columns_and_is_read_again_once_it_is_whole(
    call: Call, client: ServiceClient
) -> None:
    call("owner", "PUT", "columns/cameras.csv", content=CAMERAS)
    (file,) = (client.settings.data_dir / "artifacts").rglob("joined.arrow")
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    open_columns = client.services.open_columns
    assert isinstance(open_columns._open, BoundedCache)
    open_columns._open.clear()

    damaged = call("owner", "GET", "columns").json()
    file.write_bytes(whole)

    assert (damaged["columns"], len(damaged["tables"])) == ([], 1)
    assert len(call("owner", "GET", "columns").json()["columns"]) == 2


def test_tables_that_a_killed_server_left_are_deleted_after_a_week(client: ServiceClient) -> None:
    services = client.services
    for name, age in (("new", 3600), ("old", 8 * 86400)):
        (scratch_folder(client.settings) / name).mkdir(parents=True)
        (scratch_folder(client.settings) / name / "table.csv").write_bytes(CAMERAS)
        at = time.time() - age
        os.utime(scratch_folder(client.settings) / name, (at, at))

    delete_left_files(
        services.engine, client.settings, services.artifacts
    )  # if the server was not first

    assert [path.name for path in scratch_folder(client.settings).iterdir()] == ["new"]


def test_an_unfinished_job_has_no_columns(call: Call, body: dict[str, object]) -> None:
    address = call("owner", "POST", "/v1/jobs", json=body).headers["Location"]

    answer = call("owner", "PUT", f"{address}/columns/a.csv", content=CAMERAS)

    assert answer.status_code == 409
    assert call("owner", "GET", f"{address}/columns").status_code == 409


def test_each_key_has_its_own_views_of_a_job_and_sees_no_others(
    call: Call, keys: Keys, job: str
) -> None:
    call("owner", "PUT", "columns/cameras.csv", content=CAMERAS)
    share(call, keys, "colleague")
    share(call, keys, "reader")
    images = f"/jobs/{job}/images"

    def views(name: str) -> list[str]:
        page = call(name, "GET", images).text
        return re.findall(r'href="[^"]*images([^"]*)"><bdi>((?:mine|<i>|&lt;)[^<]*)</bdi>', page)

    def save(name: str, query: str, view: str) -> int:
        return call(name, "POST", f"{images}/views?{query}", data={"name": view}).status_code

    assert save("owner", "is.camera=A&sort=desc.taken", " <i>mine") == 200
    assert save("colleague", "sort=hardest", "mine") == 200
    assert save("colleague", "sort=easiest", "mine") == 200
    assert save("reader", "sort=easiest", "mine") == 403
    assert save("stranger", "sort=easiest", "mine") == 404
    assert save("owner", "&".join(f"has.c{number}={'x' * 900}" for number in range(12)), "x") == 422

    assert views("owner") == [("?sort=desc.taken&amp;is.camera=A", "&lt;i&gt;mine")]
    assert views("colleague") == [("?sort=easiest", "mine")]
    assert views("reader") == views("admin") == []
    assert "Saved views" not in call("reader", "GET", images).text
    call("colleague", "POST", f"{images}/views/delete", data={"name": "<i>mine"})
    call("colleague", "POST", f"{images}/views/delete", data={"name": "mine"})
    assert (len(views("owner")), views("colleague")) == (1, [])
