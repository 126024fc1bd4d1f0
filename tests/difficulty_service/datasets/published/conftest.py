"""A small dataset in the files of its authors."""

from pathlib import Path

import pytest

from tests.dataset_files import draw_images, pickle_as_python_2

CIFAR_10_BATCHES = [f"data_batch_{number}" for number in range(1, 6)]


@pytest.fixture
def cifar_10(tmp_path: Path) -> Path:
    """CIFAR-10 for Python with three images in each file."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for number, name in enumerate([*CIFAR_10_BATCHES, "test_batch"]):
        data = draw_images(3, 3072, seed=number)
        labels = [number, 9, 0]
        (folder / name).write_bytes(pickle_as_python_2(data, {"labels": labels}))
    names = [f"class {number}" for number in range(10)]
    (folder / "batches.meta").write_bytes(
        pickle_as_python_2(draw_images(1, 4), {"label_names": names})
    )
    return folder
