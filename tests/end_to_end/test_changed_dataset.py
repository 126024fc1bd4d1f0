"""After a change of the dataset only new images are extracted."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from difficulty_service.features.store import open_store

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def extract(difficulty: Command, tmp_path: Path, network: tuple[str, ...]) -> Callable[..., str]:
    """Extracts a dataset into a store in small shards; gives the output, or the error."""

    def run(dataset: Path, *options: object, store: str = "store") -> str:
        small = () if "--shard-size" in options else ("--shard-size", 6)
        words = ("extract", dataset, "--out", tmp_path / store, *small, *options)
        done = difficulty(*words, *network)
        return done.stdout if done.returncode == 0 else done.stderr

    return run


def assert_like_fresh(extract: Callable[..., str], dataset: Path, *options: object) -> None:
    """The store has the rows, the features and the errors of a new one."""
    extract(dataset, *options, store="fresh")
    folder = dataset.parent
    stores = [open_store(folder / name) for name in ("store", "fresh")]
    assert stores[0].description == stores[1].description
    for shard in range(stores[0].num_shards):
        resumed, fresh = (store.read_shard(shard) for store in stores)
        assert resumed.sample_ids == fresh.sample_ids
        assert torch.equal(resumed.labels, fresh.labels)
        assert torch.equal(resumed.runs, fresh.runs)
        # A batch of another size rounds otherwise.
        torch.testing.assert_close(resumed.features, fresh.features, rtol=0, atol=1e-5)
    bad = [[(each.sample_id, each.reason) for each in store.bad_images()] for store in stores]
    assert bad[0] == bad[1]


def assert_same_bytes(folder: Path) -> None:
    shards = sorted((folder / "fresh").glob("part-*"))
    assert shards
    assert all(
        (folder / "store" / shard.name).read_bytes() == shard.read_bytes() for shard in shards
    )


def test_after_moving_a_file_no_image_is_extracted_again(
    extract: Callable[..., str], few_photos: Path
) -> None:
    extract(few_photos)
    (few_photos / "bird" / "003.png").rename(few_photos / "cat" / "moved.png")

    output = extract(few_photos)

    assert "20 of 20 features are kept; 0 images are new" in output
    assert_like_fresh(extract, few_photos)
    assert_same_bytes(few_photos.parent)
    assert not (few_photos.parent / "store" / "previous").exists()


def test_a_file_that_was_replaced_by_one_of_the_same_size_is_extracted_again(
    extract: Callable[..., str], few_photos: Path
) -> None:
    extract(few_photos)
    photo = few_photos / "bird" / "003.png"
    size = photo.stat().st_size
    other = min((few_photos / "cat").iterdir(), key=lambda file: file.stat().st_size)
    assert other.stat().st_size <= size
    photo.write_bytes(other.read_bytes().ljust(size, b"\0"))  # readers ignore what follows

    output = extract(few_photos)

    assert "19 of 20 features are kept; 1 image is new" in output
    assert_like_fresh(extract, few_photos)


def test_a_file_with_another_time_and_the_same_content_is_not_extracted_again(
    extract: Callable[..., str], few_photos: Path
) -> None:
    extract(few_photos)
    os.utime(few_photos / "bird" / "003.png", (1, 1))

    output = extract(few_photos)
    afterwards = extract(few_photos)

    assert "20 of 20 features are kept; 0 images are new" in output
    assert "kept" not in afterwards
    assert_like_fresh(extract, few_photos)
    assert_same_bytes(few_photos.parent)


def test_only_new_and_changed_images_are_extracted(
    extract: Callable[..., str], few_photos: Path
) -> None:
    extract(few_photos)
    birds = few_photos / "bird"
    shutil.copy(birds / "005.png", birds / "a-copy.png")
    noise = np.random.default_rng(0).bytes(3 * 64)
    (birds / "0.ppm").write_bytes(b"P6 8 8 255\n" + noise)
    (birds / "007.png").write_bytes((few_photos / "cat" / "007.png").read_bytes() + b"longer")

    output = extract(few_photos)

    assert "20 of 22 features are kept; 2 images are new" in output
    assert_like_fresh(extract, few_photos)


def test_images_that_left_the_dataset_are_kept_until_they_come_back(
    extract: Callable[..., str], few_photos: Path
) -> None:
    extract(few_photos)

    limited = extract(few_photos, "--limit", 5)
    again = extract(few_photos)

    assert "5 of 5 features are kept; 0 images are new" in limited
    assert "features of 15 images that are not in the dataset are kept" in limited
    assert "20 of 20 features are kept; 0 images are new" in again
    assert_like_fresh(extract, few_photos)
    assert_same_bytes(few_photos.parent)


def test_another_shard_size_keeps_all_features(
    extract: Callable[..., str], few_photos: Path
) -> None:
    extract(few_photos, "--shard-size", 7)

    output = extract(few_photos)

    assert "20 of 20 features are kept" in output
    assert_like_fresh(extract, few_photos)


def test_bad_images_keep_their_reason_and_are_read_once_they_are_repaired(
    extract: Callable[..., str], few_photos: Path
) -> None:
    whole = (few_photos / "bird" / "002.png").read_bytes()
    for name in ("bird/002.png", "cat/004.png"):
        (few_photos / name).write_bytes(whole[:60])
    (few_photos / "cat" / "005.png").write_bytes(b"no image")
    extract(few_photos)
    (few_photos / "bird" / "002.png").write_bytes(whole)

    output = extract(few_photos)

    assert "18 of 20 images have features" in output
    assert "17 of 18 features are kept; 1 image is new" in output
    assert_like_fresh(extract, few_photos)


def test_a_table_keeps_its_features_with_other_labels_and_another_id_column(
    extract: Callable[..., str], few_photos: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table.parquet"
    images = [path.read_bytes() for path in sorted(few_photos.rglob("*.png"))]
    columns = {"image": images, "label": [0] * 10 + [1] * 10, "name": [f"n{i}" for i in range(20)]}
    pq.write_table(pa.table(columns), table)
    extract(table)
    pq.write_table(pa.table(columns | {"label": [1, *columns["label"][1:]]}), table)

    output = extract(table, "--id-column", "name")

    assert "20 of 20 features are kept; 0 images are new" in output
    assert_like_fresh(extract, table, "--id-column", "name")
    assert_same_bytes(tmp_path)


def test_a_table_that_was_written_again_with_the_same_size_is_extracted_again(
    extract: Callable[..., str], tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    header = b"P6 8 8 255\n"  # such images have one size, whatever they show

    def write(images: list[bytes]) -> None:
        columns = {"image": images, "label": [0] * 10 + [1] * 10}
        pq.write_table(pa.table(columns), tmp_path / "table.parquet", compression="none")

    images = [header + generator.bytes(192) for _ in range(20)]
    write(images)
    size = (tmp_path / "table.parquet").stat().st_size
    extract(tmp_path / "table.parquet")
    write([header + generator.bytes(192), *images[1:]])
    assert (tmp_path / "table.parquet").stat().st_size == size

    output = extract(tmp_path / "table.parquet")

    assert "19 of 20 features are kept; 1 image is new" in output
    assert_like_fresh(extract, tmp_path / "table.parquet")


def test_a_table_that_was_copied_anew_keeps_its_features(
    extract: Callable[..., str], few_photos: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table.parquet"
    images = [path.read_bytes() for path in sorted(few_photos.rglob("*.png"))]
    pq.write_table(pa.table({"image": images, "label": [0] * 10 + [1] * 10}), table)
    extract(table)
    table.write_bytes(table.read_bytes())

    again, once_more = extract(table), extract(table)

    assert "20 of 20 features are kept; 0 images are new" in again
    assert "features are kept" not in once_more
    assert not (tmp_path / "store" / "previous").exists()


def test_another_image_column_of_the_same_rows_is_extracted_anew(
    extract: Callable[..., str], few_photos: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table.parquet"
    images = [path.read_bytes() for path in sorted(few_photos.rglob("*.png"))]
    pq.write_table(
        pa.table({"front": images, "back": images[::-1], "label": [0] * 10 + [1] * 10}), table
    )
    extract(table, "--image-column", "front")

    extract(table, "--image-column", "back")

    assert_like_fresh(extract, table, "--image-column", "back")


def test_random_crops_are_kept_as_long_as_the_id_stays_because_they_depend_on_it(
    extract: Callable[..., str], few_photos: Path
) -> None:
    options = ("--augment-runs", 3)
    extract(few_photos, *options)
    (few_photos / "bird" / "003.png").rename(few_photos / "bird" / "a.png")

    output = extract(few_photos, *options)

    assert "19 of 20 features are kept; 1 image is new" in output
    assert_like_fresh(extract, few_photos, *options)


def test_a_class_more_changes_the_labels_only(
    extract: Callable[..., str], few_photos: Path
) -> None:
    extract(few_photos)
    (few_photos / "ant").mkdir()
    (few_photos / "cat" / "000.png").rename(few_photos / "ant" / "000.png")

    output = extract(few_photos)

    assert "0 images are new" in output
    assert_like_fresh(extract, few_photos)


def test_not_resuming_deletes_the_features_of_earlier_datasets_too(
    extract: Callable[..., str], few_photos: Path, tmp_path: Path
) -> None:
    extract(few_photos)
    extract(few_photos, "--limit", 5)

    output = extract(few_photos, "--no-resume")

    assert "20 of 20 images have features" in output
    assert "kept" not in output
    assert not list((tmp_path / "store").glob("previous/*"))
