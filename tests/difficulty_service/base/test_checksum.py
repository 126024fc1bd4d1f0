"""Checksums inside files: ordinary files to others, and damage is found."""

import json
import os
import zipfile
from contextlib import suppress
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import xxhash
from pyarrow import feather
from safetensors.torch import load_file, save_file

from difficulty_service.base.checked_safetensors import read_tensors, write_tensors
from difficulty_service.base.checksums import (
    LINE_BYTES,
    PREFIX,
    ZEROS,
    DamagedFile,
    add_checksum,
    dump_checked,
    load_checked,
    verify_path,
    verify_zip,
)
from difficulty_service.base.tables import (
    map_arrow,
    open_parquet,
    parquet_writer,
    read_parquet,
    write_arrow,
    write_parquet,
)

TABLE = pa.table({"a": range(1000), "b": [f"row {row}" for row in range(1000)]})
BATCH = TABLE.replace_schema_metadata({"of": "a test"}).to_batches()[0]
TENSORS = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.ones(3)}


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("rb+") as file:
        file.seek(position, os.SEEK_SET if position >= 0 else os.SEEK_END)
        file.write(data)


def test_the_checksum_is_the_xxh3_of_the_file_with_zeros_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"

    write_parquet(path, TABLE)

    data = path.read_bytes()
    digits = data.index(PREFIX) + len(PREFIX)
    zeroed = data[:digits] + ZEROS + data[digits + len(ZEROS) :]
    assert data[digits : digits + len(ZEROS)].decode() == xxhash.xxh3_128_hexdigest(zeroed)


def test_other_programs_read_a_checked_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"

    with parquet_writer(path, TABLE.schema) as write:
        write(TABLE.slice(0, 600))
        write(TABLE.slice(600))

    assert pq.read_table(path).equals(TABLE)
    assert pq.read_metadata(path).num_row_groups == 2
    assert pd.read_parquet(path)["a"].sum() == 499_500
    assert read_parquet(path, ["a"]).column_names == ["a"]


@pytest.mark.parametrize("by", ["pandas", "pyarrow"])
def test_a_parquet_file_that_another_program_wrote_again_is_read(tmp_path: Path, by: str) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, TABLE)

    if by == "pandas":
        pd.read_parquet(path).to_parquet(path)
    else:
        file = pq.read_table(path)
        metadata = dict(pq.read_metadata(path).metadata)
        pq.write_table(file.replace_schema_metadata(metadata), path, compression="zstd")

    assert verify_path(path) is None
    assert read_parquet(path).to_pydict() == TABLE.to_pydict()


def test_a_parquet_file_written_again_by_this_package_gets_a_new_checksum(tmp_path: Path) -> None:
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write_parquet(first, TABLE)

    metadata = dict(pq.read_metadata(first).metadata)
    write_parquet(second, TABLE.slice(7).replace_schema_metadata(metadata))

    assert verify_path(second) is not None
    assert len(read_parquet(second)) == 993


@pytest.mark.parametrize("lost", [1, len(PREFIX), LINE_BYTES])
def test_a_parquet_file_that_lost_its_checksum_is_damaged(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, TABLE)

    overwrite(path, path.read_bytes().index(PREFIX), bytes(lost))

    with pytest.raises(DamagedFile, match="lost"), open_parquet(path):
        pass


def test_a_parquet_file_with_a_damaged_length_of_its_footer_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, TABLE)

    overwrite(path, -8, b"\x10\x00\x00\x00")

    with pytest.raises(DamagedFile), open_parquet(path):
        pass


def test_a_file_that_changes_after_it_was_read_is_checked_again(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, TABLE)
    for seconds in (1_000_000, 2_000_000):
        os.utime(path, (seconds, seconds))
        if seconds == 1_000_000:
            read_parquet(path)
            overwrite(path, 100, b"\xff\xff")

    with pytest.raises(DamagedFile):
        read_parquet(path)


def test_other_programs_read_a_checked_arrow_file(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"

    write_arrow(path, BATCH)

    assert feather.read_table(path).equals(TABLE)
    batch, is_checked = map_arrow(path)
    assert is_checked
    assert batch.equals(BATCH, check_metadata=True)


@pytest.mark.parametrize("rows", [0, 300, 1000])
def test_an_arrow_file_that_another_program_wrote_again_is_read_unchecked(
    tmp_path: Path, rows: int
) -> None:
    path = tmp_path / "a.arrow"
    write_arrow(path, BATCH)

    feather.write_feather(feather.read_table(path)[:rows], path, chunksize=400)

    batch, is_checked = map_arrow(path)
    assert not is_checked
    assert batch.equals(BATCH[:rows], check_metadata=True)


@pytest.mark.parametrize("lost", [1, len(PREFIX), LINE_BYTES])
def test_an_arrow_file_that_lost_its_checksum_is_damaged(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "a.arrow"
    write_arrow(path, BATCH)

    overwrite(path, path.read_bytes().index(PREFIX), bytes(lost))

    with pytest.raises(DamagedFile, match="lost"):
        map_arrow(path)


def test_the_checksum_of_an_arrow_file_leaves_out_the_numbers_of_one_column(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    numbers = np.random.default_rng(0).integers(0, 99, 600, np.int32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(numbers), 3)
    write_arrow(path, pa.record_batch({"a": range(200), "vectors": column}), without="vectors")
    start = path.read_bytes().index(numbers.tobytes())

    for position in (start, start + numbers.nbytes - 1):
        overwrite(path, position, b"\xff")
        map_arrow(path)
    for position in (start - 1, start + numbers.nbytes):
        whole = path.read_bytes()
        overwrite(path, position, bytes([whole[position] ^ 1]))
        with pytest.raises(DamagedFile):
            map_arrow(path)
        path.write_bytes(whole)


def test_other_programs_read_checked_tensors(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"

    write_tensors(path, TENSORS, {"of": "a test"})

    assert torch.equal(load_file(path)["weight"], TENSORS["weight"])
    tensors, metadata = read_tensors(path)
    assert torch.equal(tensors["bias"], TENSORS["bias"])
    assert metadata == {"of": "a test"}


def test_tensors_that_another_program_wrote_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file(TENSORS, path)

    assert read_tensors(path)[1] == {}


@pytest.mark.parametrize("position", [-1, None])
def test_damaged_tensors_are_found(tmp_path: Path, position: int | None) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, TENSORS)

    overwrite(path, path.read_bytes().index(PREFIX) if position is None else position, b"_")

    with pytest.raises(DamagedFile):
        read_tensors(path)


def test_archives_are_read_by_numpy_and_damage_to_them_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, numbers=np.arange(100))
    verify_zip(path)

    add_checksum(path)

    verify_zip(path)
    assert np.load(path)["numbers"].sum() == 4950
    assert zipfile.ZipFile(path).testzip() is None
    for position in (-1, -LINE_BYTES, 50):
        whole = path.read_bytes()
        overwrite(path, position, b"\x7f")
        with pytest.raises(DamagedFile):
            verify_zip(path)
        path.write_bytes(whole)


def test_json_with_a_checksum_may_be_laid_out_again() -> None:
    text = dump_checked({"b": (1, 2.5), "a": {"é": None}, "3": "x"})

    again = json.dumps(json.loads(text), indent=4, sort_keys=True)

    assert load_checked(again) == load_checked(text) == {"b": [1, 2.5], "a": {"é": None}, "3": "x"}


def test_json_that_was_changed_is_named_unless_its_checksum_is_deleted() -> None:
    changed = dump_checked({"a": 1}).replace('"a": 1', '"a": 2')

    with pytest.raises(DamagedFile, match="delete the members checksum and with_checksum"):
        load_checked(changed)

    assert load_checked('{"a": 2}') == {"a": 2}


def test_json_whose_checksum_has_another_name_is_damaged() -> None:
    with pytest.raises(DamagedFile):
        load_checked(dump_checked({"a": 1}).replace('"checksum"', '"checkqum"'))


@pytest.mark.parametrize("is_sorted", [False, True])
def test_json_from_which_any_piece_was_cut_is_whole_damaged_or_empty(*, is_sorted: bool) -> None:
    values = {"seed": 3, "backbone": "builtin"}
    text = dump_checked(values, indent=1, sort_keys=is_sorted)

    found = []
    for start, end in combinations(range(len(text) + 1), 2):
        with suppress(ValueError):
            found.append(load_checked(text[:start] + text[end:]))

    assert values in found  # white space was cut
    assert all(each in (values, {}) for each in found)


def test_the_members_of_json_are_sorted_between_those_of_the_checksum() -> None:
    text = dump_checked({"z": {"b": 1, "a": 2}, "c": 1}, sort_keys=True)

    assert list(json.loads(text)) == ["with_checksum", "c", "z", "checksum"]
    assert list(json.loads(text)["z"]) == ["a", "b"]
