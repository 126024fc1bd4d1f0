"""A dataset with a boundary is never read outside its root."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import DatasetError, ImageError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.file_search import find_files
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.datasets.storage import OUTSIDE, boundary_at
from tests.factories import png_of


def png(colour: int) -> bytes:
    return png_of((colour, colour, colour))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two classes inside, and a picture outside."""
    root = tmp_path / "root"
    for number, name in enumerate(("ant", "bee")):
        (root / "photos" / name).mkdir(parents=True)
        (root / "photos" / name / "own.png").write_bytes(png(number))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.png").write_bytes(png(200))
    return root


def options(root: Path) -> DatasetOptions:
    return DatasetOptions(boundary=boundary_at(str(root)))


def read_all(location: Path, options: DatasetOptions) -> dict[str, bytes | str]:
    """The content of each sample, or the reason why it cannot be read."""
    dataset = open_dataset(str(location), options)
    found: dict[str, bytes | str] = {}
    for sample in dataset.read_shard(0):
        try:
            with sample.open() as file:
                found[sample.sample_id] = file.read()
        except ImageError as error:
            found[sample.sample_id] = str(error)
    return found


def test_content_inside_is_read_as_without_a_boundary(root: Path) -> None:
    inside = read_all(root / "photos", options(root))

    assert inside == read_all(root / "photos", DatasetOptions())
    assert inside["ant/own.png"] == png(0)


def test_a_link_to_a_file_outside_is_refused_and_one_to_a_file_inside_is_read(root: Path) -> None:
    (root / "photos/ant/out.png").symlink_to(root.parent / "outside/secret.png")
    (root / "photos/ant/in.png").symlink_to(root / "photos/bee/own.png")

    found = read_all(root / "photos", options(root))

    assert OUTSIDE in str(found["ant/out.png"])
    assert found["ant/in.png"] == png(1)


def test_a_link_to_a_folder_outside_discloses_nothing(root: Path) -> None:
    (root / "photos/ant/more").symlink_to(root.parent / "outside")

    found = read_all(root / "photos", options(root))

    assert not any("secret" in sample_id for sample_id in found)
    assert isinstance(found["ant/more"], str)


def test_a_class_folder_that_links_outside_is_refused(root: Path) -> None:
    (root / "photos/cat").symlink_to(root.parent / "outside")

    try:
        found = read_all(root / "photos", options(root))
    except DatasetError:
        return

    assert not any("secret" in sample_id for sample_id in found)
    assert png(200) not in found.values()


def test_a_dataset_folder_that_is_itself_a_link_outside_is_refused(root: Path) -> None:
    (root / "link").symlink_to(root.parent / "outside")

    with pytest.raises(DatasetError, match=OUTSIDE):
        open_dataset(str(root / "link"), options(root))


def test_a_glob_that_leads_outside_is_refused(root: Path) -> None:
    with pytest.raises(DatasetError, match=OUTSIDE):
        find_files(f"{root}/../outside/*.png", boundary_at(str(root)))


@pytest.mark.parametrize(
    "cell",
    [
        "{outside}/secret.png",
        "../../outside/secret.png",
        "photos/../../../outside/secret.png",
        "file://{outside}/secret.png",
        "FILE://{outside}/secret.png",
        "s3://bucket/secret.png",
        "http://127.0.0.1/secret.png",
        "https://127.0.0.1/secret.png",
        "memory://secret.png",
        "simplecache::file://{outside}/secret.png",
        "link/secret.png",
    ],
)
def test_a_cell_of_a_table_that_leads_outside_is_refused(root: Path, cell: str) -> None:
    (root / "tables").mkdir()
    (root / "tables/link").symlink_to(root.parent / "outside")
    outside = root.parent / "outside"
    table = pa.table(
        {"image": ["../photos/ant/own.png", cell.format(outside=outside)], "label": [0, 1]}
    )
    pq.write_table(table, root / "tables/t.parquet")

    found = list(read_all(root / "tables/t.parquet", options(root)).values())

    assert found[0] == png(0)
    assert isinstance(found[1], str)


@pytest.mark.parametrize("cell", ["{outside}/secret.png", "../../outside/secret.png", "a\0.png"])
def test_a_cell_that_leads_outside_is_not_looked_up_among_the_features_of_earlier_jobs(
    root: Path, cell: str
) -> None:
    (root / "tables").mkdir()
    cells = ["../photos/ant/own.png", cell.format(outside=root.parent / "outside")]
    pq.write_table(pa.table({"image": cells, "label": [0, 1]}), root / "tables/t.parquet")

    samples = open_dataset(str(root / "tables/t.parquet"), options(root)).read_shard(0)

    assert [sample.file is not None for sample in samples] == [True, False]


def test_a_file_swapped_for_a_link_after_the_listing_is_refused(root: Path) -> None:
    dataset = open_dataset(str(root / "photos"), options(root))
    (root / "photos/ant/own.png").unlink()
    (root / "photos/ant/own.png").symlink_to(root.parent / "outside/secret.png")

    sample = next(dataset.read_shard(0))

    with pytest.raises(ImageError, match=OUTSIDE):
        sample.open()


def test_a_pipe_inside_is_refused_without_waiting_for_a_writer(root: Path) -> None:
    os.mkfifo(root / "photos/ant/pipe.png")

    found = read_all(root / "photos", options(root))

    assert "not a regular file" in str(found["ant/pipe.png"])


def test_a_root_that_is_a_link_is_resolved(root: Path) -> None:
    (root.parent / "alias").symlink_to(root)

    found = read_all(root.parent / "alias" / "photos", options(root.parent / "alias"))

    assert found["ant/own.png"] == png(0)


def test_hugging_face_datasets_are_not_read_within_a_boundary(root: Path) -> None:
    with pytest.raises(DatasetError, match="cannot be read within a boundary"):
        open_dataset("hf:cifar10", options(root))


def test_a_single_file_may_be_the_boundary_and_its_neighbours_are_outside(root: Path) -> None:
    table = pa.table({"image": [png(7), b""], "path": ["", "photos/ant/own.png"], "label": [0, 1]})
    pq.write_table(table.drop("path"), root / "bytes.parquet")
    pq.write_table(table.drop("image").rename_columns(["image", "label"]), root / "paths.parquet")

    own = read_all(root / "bytes.parquet", options(root / "bytes.parquet"))
    neighbours = read_all(root / "paths.parquet", options(root / "paths.parquet"))

    assert png(7) in own.values()
    assert all(isinstance(found, str) for found in neighbours.values())
