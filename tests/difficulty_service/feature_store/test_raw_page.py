"""Features that are read as the bytes they are, and files that others wrote."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from difficulty_service.errors import FeatureStoreError
from difficulty_service.feature_store.part import Part, open_part, write_part
from difficulty_service.feature_store.part_images import keep_images
from difficulty_service.feature_store.raw_page import find_raw_page
from difficulty_service.files.checksum import verify_path


def make_part(rows: int, dim: int) -> Part:
    return Part(
        sample_ids=[f"photo {row}" for row in range(rows)],
        labels=torch.arange(rows) % 7,
        runs=torch.zeros(rows, dtype=torch.int64),
        features=torch.randn(rows, dim, generator=torch.Generator().manual_seed(rows)),
    )


@pytest.mark.parametrize(("rows", "dim"), [(1, 1), (3, 4), (5000, 96), (70_000, 3)])
def test_features_lie_in_the_file_as_they_are_in_memory(
    tmp_path: Path, rows: int, dim: int
) -> None:
    part = make_part(rows, dim)
    path = tmp_path / "part.parquet"

    write_part(path, part, [])

    assert find_raw_page(path, pq.read_metadata(path), verify_path(path)) is not None
    read_features = open_part(path, []).read_features
    assert torch.equal(read_features(slice(0, rows), torch.empty), part.features)
    middle = slice(rows // 3, rows // 3 + 1)
    assert torch.equal(read_features(middle, torch.empty), part.features[middle])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "none", "use_dictionary": False},
        {"compression": "none", "use_dictionary": ["sample_id"], "data_page_size": 100},
        {"compression": "none", "use_dictionary": False, "row_group_size": 10},
        {"compression": "none", "column_encoding": {"features.list.element": "BYTE_STREAM_SPLIT"}},
    ],
)
def test_a_file_that_another_program_wrote_again_is_decoded(
    tmp_path: Path, options: dict[str, object]
) -> None:
    part = make_part(500, 8)
    path = tmp_path / "part.parquet"
    write_part(path, part, [])

    table = pq.read_table(path)
    if "column_encoding" in options:
        options = {"use_dictionary": False, **options}
    pq.write_table(table, path, **options)  # the metadata goes along

    opened = open_part(path, ["sample_id"])
    assert find_raw_page(path, pq.read_metadata(path), verify_path(path)) is None
    assert torch.equal(opened.read_features(slice(100, 300), torch.empty), part.features[100:300])
    assert opened.sample_ids.to_pylist() == part.sample_ids


def test_a_part_without_samples_has_features_of_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"

    write_part(path, make_part(0, 8), [])

    assert open_part(path, []).read_features(slice(0, 0), torch.empty).shape == (0, 8)


def test_a_file_that_became_shorter_is_named(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    write_part(path, make_part(500, 8), [])
    opened = open_part(path, [])
    path.write_bytes(path.read_bytes()[:10_000])

    with pytest.raises(FeatureStoreError, match=r"part\.parquet ends within its features; delete"):
        opened.read_features(slice(0, 500), torch.empty)


def test_damaged_features_are_named_by_whoever_reads_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    part = make_part(5000, 96)
    write_part(path, part, [])
    data = bytearray(path.read_bytes())
    data[data.index(part.features[4000].numpy().tobytes())] ^= 1
    path.write_bytes(data)

    opened = open_part(path, [])

    assert torch.equal(opened.read_features(slice(9, 30), torch.empty), part.features[9:30])
    for rows in (slice(0, 5000), slice(3990, 3995), slice(4001, 4100)):
        with pytest.raises(FeatureStoreError, match=r"part\.parquet is damaged .*; delete it"):
            opened.read_features(rows, torch.empty)


def test_damaged_features_are_not_written_again_with_a_new_checksum(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    part = make_part(50, 8)
    write_part(path, replace(part, contents=[bytes(32)] * 50), [])
    data = bytearray(path.read_bytes())
    data[data.index(part.features[40].numpy().tobytes())] ^= 1
    path.write_bytes(data)

    with pytest.raises(FeatureStoreError, match="is damaged"):
        keep_images(path, np.arange(50) < 20, 1)


@pytest.mark.parametrize("rows", [slice(0, 1), slice(100, 3000), slice(1023, 1025), slice(7, 7)])
def test_rows_across_blocks_are_those_of_the_file(tmp_path: Path, rows: slice) -> None:
    path = tmp_path / "part.parquet"
    part = make_part(5000, 96)
    write_part(path, part, [])

    read_features = open_part(path, []).read_features

    for _ in range(2):  # a block that was checked is not read as a whole again
        assert torch.equal(read_features(rows, torch.empty), part.features[rows])
