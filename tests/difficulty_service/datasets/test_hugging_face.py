"""Hugging Face datasets: saved to disk, by name, and without the package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from difficulty_service.base.errors import DatasetError, MissingPackage
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset, DatasetOptions

hub = pytest.importorskip("datasets", reason="the package `datasets` is optional")


@pytest.fixture(autouse=True)
def _quiet() -> None:
    hub.disable_progress_bars()


def _rows(images: list[bytes], labels: list[int | None], split: str | None = None) -> "hub.Dataset":
    features = hub.Features(
        {"image": hub.Image(), "label": hub.ClassLabel(names=["cat", "dog", "horse"])}
    )
    cells = [{"bytes": image, "path": None} for image in images]
    columns = {"image": cells, "label": labels}
    return hub.Dataset.from_dict(columns, features=features, split=split)


def _bytes(dataset: Dataset) -> list[bytes]:
    found = []
    for shard in range(dataset.num_shards):
        for sample in dataset.read_shard(shard):
            with sample.open() as file:
                found.append(file.read())
    return found


def test_a_folder_from_save_to_disk_gives_its_bytes_and_class_names(
    tmp_path: Path, images: list[bytes]
) -> None:
    _rows(images, [0, 1] * 6).save_to_disk(tmp_path / "saved")

    dataset = open_dataset(str(tmp_path / "saved"), DatasetOptions(shard_size=5))

    assert dataset.class_names == ("cat", "dog", "horse")
    assert dataset.labels.tolist() == [0, 1] * 6
    assert dataset.sample_ids[:2] == ["data#0", "data#1"]
    assert _bytes(dataset) == images


def test_several_splits_need_a_choice(tmp_path: Path, images: list[bytes]) -> None:
    splits = {"train": _rows(images[:4], [0, 1, 2, 0], "train"), "test": _rows(images[4:5], [2])}
    hub.DatasetDict(splits).save_to_disk(tmp_path / "saved")

    dataset = open_dataset(str(tmp_path / "saved"), DatasetOptions(split="train"))

    assert dataset.sample_ids[0] == "train#0"
    assert _bytes(dataset) == images[:4]
    test = open_dataset(str(tmp_path / "saved"), DatasetOptions(split="test"))
    assert test.sample_ids == ["test#0"]
    with pytest.raises(DatasetError, match=r"holds the splits \['train', 'test'\]; choose one"):
        open_dataset(str(tmp_path / "saved"), DatasetOptions())
    with pytest.raises(DatasetError, match="no split 'val'"):
        open_dataset(str(tmp_path / "saved"), DatasetOptions(split="val"))


@pytest.mark.parametrize("damaged", ["*.arrow", "state.json"])
def test_a_damaged_folder_is_no_failure_of_storage_that_may_pass(
    tmp_path: Path, images: list[bytes], damaged: str
) -> None:
    _rows(images[:2], [0, 1]).save_to_disk(tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob(damaged)
    if file.suffix == ".json":
        file.write_text("{}")
    else:
        os.truncate(file, file.stat().st_size - 60)

    with pytest.raises(DatasetError, match=r"saved' cannot be read: .*; save it again") as failed:
        open_dataset(str(tmp_path / "saved"), DatasetOptions())

    assert not isinstance(failed.value.__cause__, OSError)


def test_the_fingerprint_depends_on_the_sizes_of_the_images(
    tmp_path: Path, images: list[bytes]
) -> None:
    _rows(images[:2], [0, 1]).save_to_disk(tmp_path / "a")
    _rows([images[0], images[1] + b"x"], [0, 1]).save_to_disk(tmp_path / "b")

    a = open_dataset(str(tmp_path / "a"), DatasetOptions())
    b = open_dataset(str(tmp_path / "b"), DatasetOptions())

    assert a.fingerprint != b.fingerprint


def test_rows_without_a_label_are_skipped(tmp_path: Path, images: list[bytes]) -> None:
    _rows(images[:4], [0, -1, 1, None]).save_to_disk(tmp_path / "saved")

    dataset = open_dataset(str(tmp_path / "saved"), DatasetOptions())

    assert dataset.sample_ids == ["data#0", "data#2"]
    assert _bytes(dataset) == [images[0], images[2]]
    assert list(dataset.skipped) == [
        ("data#1", "the label is -1"),
        ("data#3", "the label is missing"),
    ]


def test_a_name_is_loaded_through_the_package_and_its_cache(
    tmp_path: Path, images: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "named").mkdir()
    _rows(images[:3], [0, 1, 2]).to_parquet(tmp_path / "named" / "train.parquet")

    dataset = open_dataset(f"hf:{tmp_path / 'named'}", DatasetOptions())

    assert dataset.class_names == ("cat", "dog", "horse")
    assert dataset.sample_ids[0] == "train#0"
    assert _bytes(dataset) == images[:3]


@pytest.mark.slow
def test_an_unknown_name_without_a_network_raises_one_error_with_a_remedy(tmp_path: Path) -> None:
    code = (
        "from difficulty_service.datasets import open_dataset\n"
        "from difficulty_service.datasets.sample import DatasetOptions\n"
        "from difficulty_service.base.errors import DatasetError\n"
        "try:\n"
        "    open_dataset('hf:no-such-owner/no-such-name', DatasetOptions())\n"
        "except DatasetError as error:\n"
        "    assert 'check the name, the network' in str(error), error\n"
        "else:\n"
        "    raise SystemExit('no error')\n"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}

    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_without_the_package_the_error_has_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)

    with pytest.raises(MissingPackage, match=r"pip install 'difficulty-service\[hugging-face\]'"):
        open_dataset("hf:mnist", DatasetOptions())


def test_lists_of_one_label_have_the_names_of_their_classes(
    tmp_path: Path, images: list[bytes]
) -> None:
    features = hub.Features(
        {"image": hub.Image(), "labels": hub.Sequence(hub.ClassLabel(names=["dog", "cat"]))}
    )
    rows = {"image": images[:3], "labels": [[1], [0], []]}
    hub.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "saved")

    dataset = open_dataset(str(tmp_path / "saved"), DatasetOptions())

    assert [dataset.class_names[label] for label in dataset.labels.tolist()] == ["cat", "dog"]
    assert [name for name, _ in dataset.skipped] == ["data#2"]
