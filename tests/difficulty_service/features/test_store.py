"""The feature store: whole shards, resuming, and refusing features of other settings."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from pyarrow import feather

from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.features import store as feature_store
from difficulty_service.features.description import FeatureDescription, is_store, read_description
from difficulty_service.features.errors_file import BadImage, as_csv, read_errors, write_errors
from difficulty_service.features.shard import ShardTable
from difficulty_service.features.store import (
    PREFETCHED_SHARDS,
    FeatureStore,
    create_store,
    open_store,
)

DESCRIPTION = {
    "class_names": ["cat", "dog"],
    "num_shards": 2,
    "augment_runs": 0,
    "backbone": "builtin",
    "dataset": "photos",
}


def new_store(folder: Path, *, resume: bool = True, **changes: object) -> FeatureStore:
    """A store of two shards, whose description has some changes."""
    return create_store(folder, FeatureDescription.of(DESCRIPTION | changes), resume=resume)


def shard_table(rows: int = 3) -> ShardTable:
    return ShardTable(
        sample_ids=[f"photo {row}" for row in range(rows)],
        labels=torch.arange(rows) % 2,
        runs=torch.zeros(rows, dtype=torch.int64),
        features=torch.arange(rows * 4, dtype=torch.float32).view(rows, 4),
    )


def test_a_shard_that_is_written_is_read(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    store.write_shard(1, shard_table(), [BadImage("photo 9", "truncated")])

    table = store.read_shard(1)

    assert table.sample_ids == ["photo 0", "photo 1", "photo 2"]
    assert torch.equal(table.labels, torch.tensor([0, 1, 0]))
    assert torch.equal(table.features, shard_table().features)


def test_a_shard_without_any_readable_image_keeps_its_errors(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.write_shard(0, shard_table(0), [BadImage("photo 9", "truncated")])
    store.write_shard(1, shard_table(), [BadImage("photo 8", "empty")])

    assert store.read_shard(0).features.shape == (0, 4)
    assert store.bad_images() == [BadImage("photo 9", "truncated"), BadImage("photo 8", "empty")]


@pytest.mark.parametrize(("runs", "rows_at_a_time"), [(1, 2), (1, 3), (1, 100), (3, 4), (3, 2)])
def test_the_pieces_of_a_store_hold_every_row_once(
    tmp_path: Path, runs: int, rows_at_a_time: int
) -> None:
    described = {"num_shards": 3, "shard_size": 5, "augment_runs": runs if runs > 1 else 0}
    store = new_store(tmp_path, **described)
    for shard, samples in enumerate((5, 0, 2)):
        store.write_shard(shard, shard_table(samples * runs), [])

    pieces = [
        store.open_shard(shard, ["sample_id"], rows) for shard, rows in store.slices(rows_at_a_time)
    ]

    expected = [f"photo {row}" for samples in (5, 0, 2) for row in range(samples * runs)]
    assert [name for piece in pieces for name in piece.sample_ids.to_pylist()] == expected
    first = next(piece for piece in pieces[1:] if len(piece.labels))
    begin = int(first.sample_ids[0].as_py().split()[1])
    features = first.read_features(slice(0, len(first.labels)))
    assert torch.equal(features, shard_table(99).features[begin : begin + len(first.labels)])
    assert all(len(piece.labels) % runs == 0 for piece in pieces)
    assert max(len(piece.labels) for piece in pieces) <= max(rows_at_a_time, runs)


def test_no_row_of_a_shard_that_is_longer_than_it_should_be_is_left_out(tmp_path: Path) -> None:
    store = new_store(tmp_path, num_shards=1, shard_size=5)
    store.write_shard(0, shard_table(12), [])

    pieces = [store.open_shard(shard, [], rows) for shard, rows in store.slices(2)]

    assert [len(piece.labels) for piece in pieces] == [2, 2, 8]


def test_every_shard_is_asked_for_once_and_some_shards_before_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store(tmp_path, num_shards=12, shard_size=5)
    prefetched: list[Path] = []
    monkeypatch.setattr(feature_store, "prefetch_shard", prefetched.append)

    prefetched_by_then = [len(prefetched) for _ in store.slices(5)]

    assert prefetched == [store.shard_file(shard) for shard in range(12)]
    assert prefetched_by_then == [min(12, PREFETCHED_SHARDS + shard) for shard in range(12)]


def test_a_shard_that_went_missing_is_named_when_it_is_read_not_when_it_is_asked_for(
    tmp_path: Path,
) -> None:
    store = new_store(tmp_path, num_shards=1, shard_size=5)

    ((shard, rows),) = store.slices(5)

    with pytest.raises(FeatureStoreError, match=r"part-00000\.arrow is missing; run"):
        store.open_shard(shard, [], rows)


def test_errors_are_a_parquet_file_and_one_that_a_spreadsheet_opens_without_running_it(
    tmp_path: Path,
) -> None:
    store = new_store(tmp_path)

    path = write_errors(store.folder, [BadImage('=1+1,"ä".png', "truncated")])

    assert pq.read_table(path).to_pylist() == [{"sample_id": '=1+1,"ä".png', "reason": "truncated"}]
    with as_csv(path).open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["sample_id", "reason"], ['\'=1+1,"ä".png', "truncated"]]


def test_errors_are_read_back_and_none_where_none_were_written(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    before = read_errors(store.folder)

    write_errors(store.folder, [BadImage("photo 9", "truncated")])

    assert before == []
    assert read_errors(store.folder) == [BadImage("photo 9", "truncated")]


def test_warnings_are_kept_and_do_not_prevent_resuming(tmp_path: Path) -> None:
    new_store(tmp_path).with_warnings(["1 entry is skipped"])
    kept = FeatureStore(tmp_path, read_description(tmp_path)).warnings

    resumed = new_store(tmp_path)

    assert kept == ("1 entry is skipped",)
    assert resumed.warnings == ()


def test_the_format_is_a_list_of_floats_that_others_can_read(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.write_shard(0, shard_table(), [])

    table = feather.read_table(store.shard_file(0))

    assert table.column_names == ["sample_id", "label", "run", "features"]
    assert table["features"].to_pylist()[0] == [0.0, 1.0, 2.0, 3.0]


def test_a_resumed_store_keeps_its_shards(tmp_path: Path) -> None:
    new_store(tmp_path).write_shard(0, shard_table(), [])

    resumed = new_store(tmp_path)

    assert resumed.missing_shards() == [1]


def test_a_dataset_that_moved_is_resumed(tmp_path: Path) -> None:
    new_store(tmp_path).write_shard(0, shard_table(), [])

    assert new_store(tmp_path, dataset="/mnt/photos").missing_shards() == [1]


def test_not_resuming_deletes_the_shards(tmp_path: Path) -> None:
    new_store(tmp_path).write_shard(0, shard_table(), [])

    replaced = new_store(tmp_path, resume=False, backbone="clip")

    assert replaced.missing_shards() == [0, 1]


@pytest.mark.parametrize(
    "change", [{"backbone": "clip"}, {"class_names": ["dog", "cat"]}, {"new": 1}]
)
def test_features_made_otherwise_are_not_mixed(tmp_path: Path, change: dict[str, Any]) -> None:
    new_store(tmp_path)

    with pytest.raises(FeatureStoreError, match=f"{next(iter(change))}.*resume=False"):
        new_store(tmp_path, **change)


def test_an_incomplete_store_is_not_opened(tmp_path: Path) -> None:
    new_store(tmp_path).write_shard(1, shard_table(), [])

    with pytest.raises(FeatureStoreError, match=r"lacks 1 of 2 shards, first part-00000\.arrow"):
        open_store(tmp_path)


def test_a_damaged_shard_is_named_with_the_remedy(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.shard_file(0).write_bytes(b"ARROW1 and then nothing")

    with pytest.raises(FeatureStoreError, match=r"part-00000\.arrow is damaged.*delete it"):
        store.read_shard(0)
    with pytest.raises(FeatureStoreError, match=r"part-00000\.arrow is damaged.*delete it"):
        store.bad_images()


def test_a_folder_of_something_else_is_not_a_store(tmp_path: Path) -> None:
    assert not is_store(tmp_path)
    with pytest.raises(FeatureStoreError, match="not a feature store"):
        open_store(tmp_path)


def test_a_damaged_description_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text("{")

    with pytest.raises(FeatureStoreError, match=r"store\.json is damaged"):
        open_store(tmp_path)


@pytest.mark.parametrize("version", [None, 1, 3])
def test_another_version_is_refused_by_name_and_left_as_it_is(
    tmp_path: Path, version: int | None
) -> None:
    new_store(tmp_path).write_shard(0, shard_table(), [])
    text = json.dumps({**DESCRIPTION, "format_version": version})
    (tmp_path / "store.json").write_text(text)
    refusal = (
        rf"store\.json has version {version} of feature stores, but this package reads 2; delete "
        "the folder and run `difficulty extract` again"
    )

    with pytest.raises(FeatureStoreError, match=refusal):
        open_store(tmp_path)
    with pytest.raises(FeatureStoreError, match=refusal):
        new_store(tmp_path)

    assert (tmp_path / "store.json").read_text() == text
    assert (tmp_path / "part-00000.arrow").exists()


@pytest.mark.slow
def test_reading_a_store_does_not_load_pandas(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    new_store(folder, num_shards=1).write_shard(0, shard_table(), [])
    code = (
        "import sys; from pathlib import Path; "
        "from difficulty_service.features.store import open_store; "
        f"table = open_store(Path({str(folder)!r})).read_shard(0); "
        "sys.exit(len(table.features) != 3 or 'pandas' in sys.modules)"
    )

    finished = subprocess.run([sys.executable, "-c", code], check=False)  # noqa: S603

    assert finished.returncode == 0
