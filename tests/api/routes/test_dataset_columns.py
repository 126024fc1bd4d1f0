"""Columns of a job's own dataset, where that is a table, are joined as those of any other table."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from httpx2 import Response

from api.settings import Settings
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions

Call = Callable[..., Response]
Finish = Callable[..., str]

OPTIONS = {"image_column": "image", "label_column": "label", "id_column": "file"}


def write_table(path: Path, labels: tuple[int, ...] = (0, 0, 1, 1)) -> None:
    """A table of images in another order than their scores; the last one has no score."""
    ids = ["s3", "s2", "s1", "s0", "unreadable"]
    columns = {
        "image": pa.array([b"\x89PNG" + name.encode() for name in ids], pa.binary()),
        "label": [*labels, 1],
        "file": ids,
        "camera": ["D", "C", "B", "A", "Z"],
        "weight": [4, 3, 2, 1, 0],
    }
    pq.write_table(pa.table(columns), path)


@pytest.fixture
def body() -> dict[str, object]:
    return {"dataset": {"root": "photos", "path": "table.parquet"}, **OPTIONS}


@pytest.fixture
def table(settings: Settings) -> Path:
    path = Path(settings.roots["photos"]) / "table.parquet"
    write_table(path)
    return path


@pytest.fixture
def job(finish: Finish, table: Path) -> str:
    opened = open_dataset(str(table), DatasetOptions(**OPTIONS))
    return finish(fingerprint=opened.fingerprint, dataset_options=OPTIONS)


def cameras(call: Call) -> list[str]:
    """Samples of camera B."""
    rows = call("owner", "GET", "scores?is.camera=B").json()["samples"]
    return [row["sample_id"] for row in rows]


def test_a_column_of_the_dataset_is_joined_by_its_ids(call: Call) -> None:
    answer = call("owner", "PUT", "columns/dataset?column=camera")

    assert answer.status_code == 200, answer.text
    assert answer.json() | {"attached_at": None} == {
        "name": "dataset",
        "columns": ["camera"],
        "notes": ["the dataset: 1 of 5 ids of the table have no sample"],
        "attached_at": None,
    }
    assert cameras(call) == ["s1"]
    assert call("owner", "DELETE", "columns/dataset").status_code == 204
    assert call("owner", "GET", "columns").json() == {"columns": [], "tables": []}


def test_without_names_all_columns_are_joined_that_can_be_shown(call: Call) -> None:
    answer = call("owner", "PUT", "columns/dataset").json()

    assert answer["columns"] == ["label", "camera", "weight"]
    assert "not shown: image" in answer["notes"][-1]


def test_a_dataset_that_has_changed_since_is_joined_by_its_ids_and_named(
    call: Call, table: Path
) -> None:
    write_table(table, labels=(1, 1, 0, 0))

    answer = call("owner", "PUT", "columns/dataset?column=camera").json()

    assert "the dataset differs from the dataset that was scored" in answer["notes"][0]
    assert cameras(call) == ["s1"]


def test_what_cannot_be_joined_says_so_and_names_no_path_of_the_server(
    call: Call, table: Path, tmp_path: Path
) -> None:
    unknown = call("owner", "PUT", "columns/dataset?column=lens")
    sent = call("owner", "PUT", "columns/dataset", content=b"sample_id,x\ns0,1\n")
    table.write_bytes(b"PAR1 damaged")
    damaged = call("owner", "PUT", "columns/dataset")
    table.unlink()
    gone = call("owner", "PUT", "columns/dataset")

    assert [each.status_code for each in (unknown, sent, damaged, gone)] == [422] * 4
    assert "the dataset has no column 'lens'" in unknown.json()["detail"]
    assert "send no bytes" in sent.json()["remedy"]
    for answer in (unknown, sent, damaged, gone):
        assert str(tmp_path) not in answer.text
    assert call("owner", "GET", "columns").json()["tables"] == []


def test_a_table_that_leads_out_of_its_root_is_not_read(
    call: Call, table: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.parquet"
    table.rename(outside)
    table.symlink_to(outside)

    answer = call("owner", "PUT", "columns/dataset?column=camera")

    assert answer.status_code == 422
    assert str(tmp_path) not in answer.text
    assert call("owner", "GET", "columns").json()["tables"] == []


@pytest.mark.slow
def test_only_the_owner_attaches_them_and_the_page_has_a_form(call: Call, job: str) -> None:
    page = f"/jobs/{job}/columns"

    for name, status in (("stranger", 404), ("overseer", 403), ("owner", 200)):
        assert call(name, "POST", f"{page}/dataset", data={"names": "camera"}).status_code == status

    assert cameras(call) == ["s1"]
    assert "<bdi>dataset</bdi>" in call("owner", "GET", page).text
    refused = call("owner", "POST", f"{page}/dataset", data={"names": "lens, camera"})
    assert refused.status_code == 422
    assert "has no column &#39;lens&#39;" in refused.text
    assert refused.text.count('value="lens, camera"') == 1
    assert "Columns of the dataset" not in call("overseer", "GET", page).text
