"""Small Parquet files that are huge once they are decoded, or hold what no one expects."""

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.json_text import MOST_LEVELS
from difficulty_service.datasets import open_dataset, table_files
from difficulty_service.datasets.sample import DatasetOptions, TableLimits
from difficulty_service.datasets.table_files import LARGE_PAGE, read_pages
from tests.dataset_files import dataset_of

MEBIBYTE = 1 << 20
LIMITS = TableLimits(max_rows=1000, max_text_bytes=MEBIBYTE)
LIMITED = DatasetOptions(limits=LIMITS)


def write(tmp_path: Path, table: pa.Table | dict[str, Any], **options: Any) -> str:  # noqa: ANN401
    """Writes a Parquet file with the columns image and label, or others; returns its path."""
    path = tmp_path / "table.parquet"
    if isinstance(table, dict):
        table = pa.table(table)
    pq.write_table(table, path, **{"compression": "zstd", "write_statistics": False} | options)
    return str(path)


def of_text(values: list[bytes]) -> pa.Array:
    """Text that nobody has checked to be UTF-8."""
    return pa.array(values, pa.binary()).view(pa.string())


def test_rows_are_counted_before_any_is_read(tmp_path: Path) -> None:
    location = write(tmp_path, {"image": pa.nulls(1001, pa.binary()), "label": [0] * 1001})

    with pytest.raises(DatasetError, match="1,001 rows, the maximum is 1,000"):
        open_dataset(location, LIMITED)
    assert len(dataset_of(location).labels) == 1001


@pytest.mark.parametrize("column", ["label", "path"])
def test_text_is_counted_as_it_is_decoded(tmp_path: Path, column: str) -> None:
    texts = pa.DictionaryArray.from_arrays(
        pa.array(np.arange(1000) % 2), pa.array(["a" * 2000, "b" * 2000])
    ).cast(pa.string())
    labels = pa.array(["cat", "dog"] * 500)
    location = write(
        tmp_path, {"image": [b"x"] * 1000, "label": labels, "path": texts} | {column: texts}
    )
    assert Path(location).stat().st_size < 10_000

    with pytest.raises(DatasetError, match="more than 1,048,576 bytes in memory"):
        open_dataset(location, LIMITED)


@pytest.mark.slow
def test_an_image_that_all_rows_repeat_is_in_memory_a_few_times_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = np.random.default_rng(0).bytes(8 * MEBIBYTE)
    location = write(tmp_path, {"image": [image] * 64, "label": [0, 1] * 32})
    assert Path(location).stat().st_size < 10 * MEBIBYTE
    monkeypatch.setattr(table_files, "BATCH_BYTES", 2 * len(image))
    dataset = open_dataset(location, LIMITED)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    openers = list(dataset.open_images(range(64)))  # as where many images are read ahead
    sizes = [len(opener().read()) for opener in openers]

    assert sizes == [len(image)] * 64
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < 16 * len(image)


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_a_page_that_unpacks_to_far_more_than_images_do_is_refused(
    tmp_path: Path, *, use_dictionary: bool
) -> None:
    image = bytes(LARGE_PAGE + 1)
    columns = {"image": [image, image], "label": [0, 1]}
    location = write(tmp_path, columns, use_dictionary=use_dictionary)
    assert Path(location).stat().st_size < 20_000
    dataset = dataset_of(location)
    before = pa.total_allocated_bytes()

    with pytest.raises(DatasetError, match=r"'image'.* that unpack to"):
        list(dataset.open_images(range(2)))

    assert pa.total_allocated_bytes() - before < LARGE_PAGE


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_headers_of_pages_say_what_the_footer_says(
    tmp_path: Path, version: str, codec: str
) -> None:
    images = [np.random.default_rng(row).bytes(100 * row) for row in range(300)]
    table = pa.table({"image": [{"bytes": each, "path": "a"} for each in images]})
    location = write(
        tmp_path,
        table,
        data_page_version=version,
        compression=codec,
        row_group_size=100,
        data_page_size=10_000,
        write_statistics=True,
    )
    metadata = pq.ParquetFile(location).metadata

    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            with pa.OSFile(location) as source:
                pages = list(read_pages(source, column))
            headers = column.total_compressed_size - sum(page.stored for page in pages)
            assert 10 * len(pages) < headers < 100 * len(pages)
            assert sum(page.unpacked for page in pages) + headers == column.total_uncompressed_size


def test_noise_in_place_of_pages_is_a_damaged_file(tmp_path: Path) -> None:
    location = write(tmp_path, {"image": [bytes(range(256))] * 9, "label": [0, 1, 2] * 3})
    column = pq.ParquetFile(location).metadata.row_group(0).column(0)
    start = column.dictionary_page_offset
    whole = Path(location).read_bytes()
    generator = np.random.default_rng(0)

    for _ in range(200):
        noise = generator.bytes(column.total_compressed_size)
        Path(location).write_bytes(whole[:start] + noise + whole[start + len(noise) :])
        with pa.OSFile(location) as source, pytest.raises(DatasetError, match=r"damaged|unpack"):
            list(read_pages(source, column))


@pytest.mark.parametrize("column", ["label", "path", "label_name"])
def test_text_that_is_not_utf8_is_named_by_its_column(tmp_path: Path, column: str) -> None:
    columns = {"image": [b"x", b"y"], "label": [0, 1]} | {column: of_text([b"\xff\xfe", b"a"])}

    with pytest.raises(DatasetError, match=f"column '{column}' of 'table.parquet'.*not valid"):
        dataset_of(write(tmp_path, columns))


def test_a_path_inside_a_cell_that_is_not_utf8_is_a_damaged_file(tmp_path: Path) -> None:
    images = pa.StructArray.from_arrays(
        [pa.array([b"x", b"y"]), of_text([b"\xff", b"a"])], ["bytes", "path"]
    )

    with pytest.raises(DatasetError, match="not valid"):
        dataset_of(write(tmp_path, {"image": images, "label": [0, 1]}))


@pytest.mark.parametrize("column", [b"image", b"label", b"note"])
def test_text_of_a_json_line_that_is_not_utf8_is_named_by_its_column(
    tmp_path: Path, column: bytes
) -> None:
    path = tmp_path / "table.jsonl"
    row = b'{"image": "a.png", "label": "cat", "note": "old"}'
    path.write_bytes(row + b"\n" + row.replace(b'%b": "' % column, b'%b": "\xff' % column))

    with pytest.raises(DatasetError, match=f"column '{column.decode()}' of 'table.jsonl'.*UTF-8"):
        dataset_of(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("table.jsonl", b'{"image": "a.png", "label": "cat", "\xff": 1}'),
        ("table.jsonl", b'{"image": {"path": "a.png", "\xff": 1}, "label": "cat"}'),
    ],
)
def test_a_name_of_a_column_that_is_not_utf8_is_an_unreadable_file(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(DatasetError, match=f"{name}' cannot be read as a table"):
        dataset_of(path)


@pytest.mark.parametrize("name", ["image", "label", "label_name", "split"])
def test_two_columns_of_one_name_are_refused_by_it(tmp_path: Path, name: str) -> None:
    columns = {"image": [b"x", b"y"], "label": ["a", "b"]}
    names = [*columns, name, name]
    table = pa.table([*columns.values(), ["c", "d"], ["c", "d"]], names=names)

    with pytest.raises(DatasetError, match=f"two columns '{name}'"):
        dataset_of(write(tmp_path, table))


def test_two_columns_that_are_not_used_may_have_one_name(tmp_path: Path) -> None:
    table = pa.table([[b"x", b"y"], ["a", "b"], [1, 2], [1, 2]], names=["image", "label", "n", "n"])

    assert dataset_of(write(tmp_path, table)).class_names == ("a", "b")


def test_the_largest_numbers_are_classes_like_others(tmp_path: Path) -> None:
    columns = {"image": [b"x"] * 2, "label": pa.array([2**64 - 1, 0], pa.uint64())}

    dataset = dataset_of(write(tmp_path, columns))

    assert dataset.class_names == ("0", str(2**64 - 1))
    assert dataset.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": ["a" * 1001, "b"]}, "the name of a class has 1,001 characters"),
        ({"label": ["a", "b"], "path": ["c" * 10_001, "d"]}, "an id has 10,001 characters"),
    ],
)
def test_long_names_and_ids_are_refused(
    tmp_path: Path, columns: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        dataset_of(write(tmp_path, {"image": [b"x", b"y"], **columns}))

    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("options", [DatasetOptions(), LIMITED])
@pytest.mark.parametrize("row", ['{"image": %s}', '{"image": "a.png", "label": "cat", "more": %s}'])
def test_json_lines_with_lists_in_too_many_others_are_refused(
    tmp_path: Path, row: str, options: DatasetOptions
) -> None:
    lists = "[" * MOST_LEVELS + "]" * MOST_LEVELS
    (tmp_path / "table.jsonl").write_text('{"image": "a.png", "label": "cat"}\n' + row % lists)

    with pytest.raises(DatasetError, match="objects inside more than 100 others") as refused:
        open_dataset(str(tmp_path / "table.jsonl"), options)

    assert "leave out the columns" in str(refused.value.remedy[0])
