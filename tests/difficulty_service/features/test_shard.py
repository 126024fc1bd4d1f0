"""Shards of a feature store: mapped features, damage to them, and files that others wrote."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import feather

from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.features.errors_file import BadImage
from difficulty_service.features.shard import ShardTable, open_shard, read_bad_images, write_shard
from difficulty_service.features.shard_images import keep_images


def shard_table(rows: int, dim: int) -> ShardTable:
    return ShardTable(
        sample_ids=[f"photo {row}" for row in range(rows)],
        labels=torch.arange(rows) % 7,
        runs=torch.zeros(rows, dtype=torch.int64),
        features=torch.randn(rows, dim, generator=torch.Generator().manual_seed(rows)),
    )


def flip_bit(path: Path, found: bytes) -> None:
    """Flips a bit where some bytes first occur in a file."""
    data = bytearray(path.read_bytes())
    data[data.index(found)] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(("rows", "dim"), [(0, 8), (1, 1), (3, 4), (5000, 96), (70_000, 3)])
def test_features_that_are_written_are_read_whole_and_in_part(
    tmp_path: Path, rows: int, dim: int
) -> None:
    table = shard_table(rows, dim)
    path = tmp_path / "shard.arrow"

    write_shard(path, table, [])

    read_features = open_shard(path, []).read_features
    assert torch.equal(read_features(slice(0, rows)), table.features)
    middle = slice(rows // 3, min(rows, rows // 3 + 1))
    assert torch.equal(read_features(middle), table.features[middle])


def test_features_are_not_copied_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "shard.arrow"
    write_shard(path, shard_table(70_000, 96), [])
    before = pa.total_allocated_bytes()

    read_features = open_shard(path, []).read_features
    first, again = (read_features(slice(4096, 8192)) for _ in range(2))

    assert first.data_ptr() == again.data_ptr()
    assert pa.total_allocated_bytes() - before < 100_000


def test_the_same_shard_is_written_as_the_same_bytes(tmp_path: Path) -> None:
    table = replace(shard_table(500, 8), contents=[bytes(32)] * 500, stamps=[None, 3] * 250)

    for name in ("a.arrow", "b.arrow"):
        write_shard(tmp_path / name, table, [BadImage("photo 9", "empty")])

    assert (tmp_path / "a.arrow").read_bytes() == (tmp_path / "b.arrow").read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "uncompressed"},
        {"compression": "uncompressed", "chunksize": 100},
        {"compression": "lz4", "chunksize": 70},
    ],
)
def test_a_file_that_another_program_wrote_again_is_read(
    tmp_path: Path, options: dict[str, object]
) -> None:
    table = shard_table(500, 8)
    path = tmp_path / "shard.arrow"
    write_shard(path, table, [BadImage("photo 9", "empty")])

    reversed_rows = feather.read_table(path).take(np.arange(500)[::-1])
    feather.write_feather(reversed_rows, path, **options)  # the metadata goes along

    opened = open_shard(path, ["sample_id"])
    expected = table.features.flip(0)[100:300]
    assert torch.equal(opened.read_features(slice(100, 300)), expected)
    assert opened.sample_ids.to_pylist() == table.sample_ids[::-1]
    assert read_bad_images(path) == [BadImage("photo 9", "empty")]


def test_a_file_that_became_shorter_is_named(tmp_path: Path) -> None:
    path = tmp_path / "shard.arrow"
    write_shard(path, shard_table(500, 8), [])
    opened = open_shard(path, [])
    path.write_bytes(path.read_bytes()[:10_000])

    with pytest.raises(FeatureStoreError, match=r"shard\.arrow ends within its features; delete"):
        opened.read_features(slice(0, 500))


def test_a_file_that_ends_early_is_named_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "shard.arrow"
    write_shard(path, shard_table(500, 8), [])
    data = path.read_bytes()

    for length in (0, 5, 100, len(data) // 2, len(data) - 200, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(FeatureStoreError, match=r"shard\.arrow is damaged .*; delete it"):
            open_shard(path, [])


def test_damaged_features_are_named_by_whoever_reads_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "shard.arrow"
    table = shard_table(5000, 96)
    write_shard(path, table, [])
    flip_bit(path, table.features[4000].numpy().tobytes())

    opened = open_shard(path, [])

    assert torch.equal(opened.read_features(slice(9, 30)), table.features[9:30])
    for rows in (slice(0, 5000), slice(3990, 3995), slice(4001, 4100)):
        with pytest.raises(FeatureStoreError, match=r"shard\.arrow is damaged .*; delete it"):
            opened.read_features(rows)


def test_rows_are_checked_against_the_blocks_of_the_file_that_they_lie_in(tmp_path: Path) -> None:
    path = tmp_path / "shard.arrow"
    table = shard_table(5000, 96)
    write_shard(path, table, [])
    flip_bit(path, table.features[4000].numpy().tobytes())

    opened = open_shard(path, [], slice(1000, None))

    assert torch.equal(opened.read_features(slice(0, 10)), table.features[1000:1010])
    with pytest.raises(FeatureStoreError, match="is damaged"):
        opened.read_features(slice(3001, 3002))


@pytest.mark.parametrize("text", [b"photo 77", b"empty", b"features", b"difficulty-xxh3"])
def test_damage_outside_the_features_is_found_by_every_reader(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "shard.arrow"
    write_shard(path, shard_table(500, 8), [BadImage("photo 9", "empty")])
    flip_bit(path, text)

    for read in (lambda: open_shard(path, []), lambda: read_bad_images(path)):
        with pytest.raises(FeatureStoreError, match=r"shard\.arrow is damaged .*; delete it"):
            read()


def test_damaged_features_are_not_written_again_with_a_new_checksum(tmp_path: Path) -> None:
    path = tmp_path / "shard.arrow"
    table = shard_table(50, 8)
    write_shard(path, replace(table, contents=[bytes(32)] * 50), [])
    flip_bit(path, table.features[40].numpy().tobytes())

    with pytest.raises(FeatureStoreError, match="is damaged"):
        keep_images(path, np.arange(50) < 20, 1)


@pytest.mark.parametrize("rows", [slice(0, 1), slice(100, 3000), slice(1023, 1025), slice(7, 7)])
def test_rows_across_blocks_are_those_of_the_file(tmp_path: Path, rows: slice) -> None:
    path = tmp_path / "shard.arrow"
    table = shard_table(5000, 96)
    write_shard(path, table, [])

    read_features = open_shard(path, []).read_features

    for _ in range(2):  # a block that was checked is not checked again
        assert torch.equal(read_features(rows), table.features[rows])
