"""The marks of one job change the dataset of another one."""

from pathlib import Path

import pytest

from api.jobs.marks import apply_marks
from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.review.marks import Mark, MarkedSample
from tests.factories import write_image_folder

DROP = MarkedSample(Mark.DROP)


def relabel(name: str) -> MarkedSample:
    return MarkedSample(Mark.RELABEL, name)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Three images of each of the classes cat and dog, in shards of two."""
    write_image_folder(tmp_path, ("cat", "dog"), each=3)
    return open_dataset(str(tmp_path), DatasetOptions(shard_size=2))


def test_relabelled_samples_get_their_class_and_dropped_ones_are_left_out(dataset: Dataset) -> None:
    marks = {"cat/0.png": DROP, "cat/2.png": relabel("dog"), "dog/1.png": DROP}

    changed = apply_marks(dataset, marks, "source")

    assert list(changed.sample_ids) == ["cat/1.png", "cat/2.png", "dog/0.png", "dog/2.png"]
    assert changed.labels.tolist() == [0, 1, 1, 1]
    assert changed.warnings[-1:] == (
        "the marks of job source change 1 label and leave out 2 images",
    )


def test_every_sample_keeps_its_own_image(dataset: Dataset) -> None:
    marks = {"cat/0.png": DROP, "dog/0.png": DROP, "dog/1.png": DROP}
    before = {s.sample_id: s.file for shard in range(3) for s in dataset.read_shard(shard)}

    changed = apply_marks(dataset, marks, "source")

    after = {s.sample_id: s.file for shard in range(2) for s in changed.read_shard(shard)}
    assert after == {each: before[each] for each in ("cat/1.png", "cat/2.png", "dog/2.png")}


def test_a_class_that_the_dataset_lacks_is_added(dataset: Dataset) -> None:
    changed = apply_marks(dataset, {"cat/1.png": relabel("fox")}, "source")

    assert changed.class_names == ("cat", "dog", "fox")
    assert changed.labels.tolist() == [0, 2, 0, 1, 1, 1]


def test_other_marks_give_another_fingerprint(dataset: Dataset) -> None:
    one, two, again = (
        apply_marks(dataset, {"cat/1.png": mark}, "source").fingerprint
        for mark in (DROP, relabel("dog"), DROP)
    )

    assert len({dataset.fingerprint, one, two}) == 3
    assert again == one


def test_marks_of_samples_that_are_not_there_are_counted(dataset: Dataset) -> None:
    changed = apply_marks(dataset, {"cat/1.png": DROP, "gone.png": DROP}, "source")

    assert changed.warnings[-1] == "1 image marked in job source cannot be found in the dataset"


def test_marks_of_another_dataset_are_refused(dataset: Dataset) -> None:
    with pytest.raises(DatasetError, match="none of the 1 images marked in job source"):
        apply_marks(dataset, {"gone.png": DROP}, "source")


def test_dropping_everything_is_refused(dataset: Dataset) -> None:
    with pytest.raises(DatasetError, match="the marks of job source drop every image"):
        apply_marks(dataset, dict.fromkeys(dataset.sample_ids, DROP), "source")
