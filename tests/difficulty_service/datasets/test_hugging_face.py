"""Hugging Face datasets: saved to disk, by name, and without the package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from difficulty_service.base.errors import DatasetError, MissingPackage
from tests.dataset_files import IMAGES, contents_of, dataset_of

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


def test_a_folder_from_save_to_disk_gives_its_bytes_and_class_names(tmp_path: Path) -> None:
    _rows(IMAGES, [0, 1] * 6).save_to_disk(tmp_path / "saved")

    dataset = dataset_of(tmp_path / "saved", shard_size=5)

    assert dataset.class_names == ("cat", "dog", "horse")
    assert dataset.labels.tolist() == [0, 1] * 6
    assert dataset.sample_ids[:2] == ["data#0", "data#1"]
    assert contents_of(dataset) == IMAGES


def test_several_splits_need_a_choice(tmp_path: Path) -> None:
    splits = {"train": _rows(IMAGES[:4], [0, 1, 2, 0], "train"), "test": _rows(IMAGES[4:5], [2])}
    hub.DatasetDict(splits).save_to_disk(tmp_path / "saved")

    dataset = dataset_of(tmp_path / "saved", split="train")

    assert dataset.sample_ids[0] == "train#0"
    assert contents_of(dataset) == IMAGES[:4]
    test = dataset_of(tmp_path / "saved", split="test")
    assert test.sample_ids == ["test#0"]
    with pytest.raises(DatasetError, match=r"holds the splits \['train', 'test'\]; choose one"):
        dataset_of(tmp_path / "saved")
    with pytest.raises(DatasetError, match="no split 'val'"):
        dataset_of(tmp_path / "saved", split="val")


@pytest.mark.parametrize("damaged", ["*.arrow", "state.json"])
def test_a_damaged_folder_is_no_failure_of_storage_that_may_pass(
    tmp_path: Path, damaged: str
) -> None:
    _rows(IMAGES[:2], [0, 1]).save_to_disk(tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob(damaged)
    if file.suffix == ".json":
        file.write_text("{}")
    else:
        os.truncate(file, file.stat().st_size - 60)

    with pytest.raises(DatasetError, match=r"saved' cannot be read: .*; save it again") as failed:
        dataset_of(tmp_path / "saved")

    assert not isinstance(failed.value.__cause__, OSError)


def test_the_fingerprint_depends_on_the_sizes_of_the_images(tmp_path: Path) -> None:
    _rows(IMAGES[:2], [0, 1]).save_to_disk(tmp_path / "a")
    _rows([IMAGES[0], IMAGES[1] + b"x"], [0, 1]).save_to_disk(tmp_path / "b")

    a = dataset_of(tmp_path / "a")
    b = dataset_of(tmp_path / "b")

    assert a.fingerprint != b.fingerprint


def test_rows_without_a_label_are_skipped(tmp_path: Path) -> None:
    _rows(IMAGES[:4], [0, -1, 1, None]).save_to_disk(tmp_path / "saved")

    dataset = dataset_of(tmp_path / "saved")

    assert dataset.sample_ids == ["data#0", "data#2"]
    assert contents_of(dataset) == [IMAGES[0], IMAGES[2]]
    assert list(dataset.skipped) == [
        ("data#1", "the label is -1"),
        ("data#3", "the label is missing"),
    ]


def test_a_name_is_loaded_through_the_package_and_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "named").mkdir()
    _rows(IMAGES[:3], [0, 1, 2]).to_parquet(tmp_path / "named" / "train.parquet")

    dataset = dataset_of(f"hf:{tmp_path / 'named'}")

    assert dataset.class_names == ("cat", "dog", "horse")
    assert dataset.sample_ids[0] == "train#0"
    assert contents_of(dataset) == IMAGES[:3]


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
        dataset_of("hf:mnist")


def test_lists_of_one_label_have_the_names_of_their_classes(tmp_path: Path) -> None:
    features = hub.Features(
        {"image": hub.Image(), "labels": hub.Sequence(hub.ClassLabel(names=["dog", "cat"]))}
    )
    rows = {"image": IMAGES[:3], "labels": [[1], [0], []]}
    hub.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "saved")

    dataset = dataset_of(tmp_path / "saved")

    assert [dataset.class_names[label] for label in dataset.labels.tolist()] == ["cat", "dog"]
    assert [name for name, _ in dataset.skipped] == ["data#2"]
