"""Datasets as other programs wrote them, beside what these were given.

`benchmarks/formats` wrote `tests/data/formats` with the programs that the folders are named for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.formats.scenes import CATEGORIES, COLOURS, SITUATIONS, Scene, Thing
from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.sample import Dataset, Sample
from tests.dataset_files import dataset_of

WRITTEN = Path(__file__).resolve().parents[2] / "data" / "formats"
ROUNDING = 0.002
"""Pixels by which five digits of a share of an image may differ."""


@dataclass(frozen=True)
class Written:
    """A dataset, or a split of it.

    Attributes:
        split: That is asked for; the scenes of this split are in it, all without one.
        skipped: Number of objects that are listed as none of the samples.
    """

    folder: str
    situation: str
    split: str | None = None
    skipped: int = 0

    @property
    def scenes(self) -> Sequence[Scene]:
        """What the program was given."""
        every = SITUATIONS[self.situation]
        return [scene for scene in every if self.split in (None, scene.split)]


TWO, DARKNET = "datumaro-coco-same-name-in-two-splits", "datumaro-yolo-of-darknet-same-name"
BOXES = (
    Written(TWO, "same name in two splits", "train"),
    Written(TWO, "same name in two splits", "val"),
    Written(f"{DARKNET}-in-two-splits", "same name in two splits", "train"),
    Written(f"{DARKNET}-in-two-splits", "same name in two splits", "val"),
    Written("datumaro-cvat-for-images-turned-box", "turned box", skipped=1),
    Written("datumaro-pascal-voc-counted-from-1-plain", "plain"),
    Written("globox-coco-plain", "plain"),
    Written("label-studio-sdk-label-studio-json-outlines", "outlines"),
    Written("label-studio-sdk-yolo-empty-image", "empty image"),
    Written("labelformat-cvat-for-images-sub-folders", "sub-folders"),
    Written("pycocotools-coco-of-masks-plain", "plain"),
    Written("supervision-coco-turned-photograph", "turned photograph"),
    Written("supervision-pascal-voc-empty-image", "empty image"),
    Written("supervision-yolo-plain", "plain"),
    Written("ultralytics-yolo-obb-turned-box", "turned box", "train"),
)
each_of_boxes = pytest.mark.parametrize(
    "written", BOXES, ids=[f"{each.folder} {each.split or ''}".strip() for each in BOXES]
)


def _opened(written: Written) -> Dataset:
    return dataset_of(WRITTEN / written.folder, split=written.split)


def _given(written: Written) -> dict[str, list[Thing]]:
    """The objects of each image, from left to right, but for those that are skipped."""
    given = {}
    for scene in written.scenes:
        things = [each for each in scene.things if not (written.skipped and each.degrees)]
        given[scene.name] = sorted(things, key=lambda thing: _around(thing)[0])
    return given


def _around(thing: Thing) -> tuple[float, float, float, float]:
    across, down = zip(*thing.outline, strict=True)
    return min(across), min(down), max(across), max(down)


def _found(dataset: Dataset, written: Written) -> dict[str, list[tuple[str, list[float]]]]:
    """Class and sides in pixels of the boxes of each image, from left to right."""
    whole = dataset.scenes
    assert whole is not None
    found: dict[str, list[tuple[str, list[float]]]] = {each.name: [] for each in written.scenes}
    for row, sides, label in zip(whole.rows, whole.sides, dataset.labels, strict=True):
        scene = next(each for each in written.scenes if whole.names[row].endswith(each.file))
        width, height = whole.frames[row] or scene.size
        across, down = scene.size[0] / width, scene.size[1] / height
        pixels = [float(each) for each in sides * [across, down, across, down]]
        found[scene.name].append((dataset.class_names[label], pixels))
    return {name: sorted(boxes, key=lambda box: box[1][0]) for name, boxes in found.items()}


@each_of_boxes
def test_every_box_is_where_the_program_was_given_it(written: Written) -> None:
    found = _found(_opened(written), written)

    for name, things in _given(written).items():
        sides = [each for _, each in found[name]]
        np.testing.assert_allclose(sides, [_around(thing) for thing in things], atol=ROUNDING)


@each_of_boxes
def test_every_box_has_the_class_that_the_program_was_given(written: Written) -> None:
    dataset = _opened(written)

    found = _found(dataset, written)

    assert sorted(dataset.class_names) == sorted(CATEGORIES)
    for name, things in _given(written).items():
        assert [label for label, _ in found[name]] == [thing.label for thing in things]


@each_of_boxes
def test_every_image_is_counted_and_every_object_that_is_no_box_listed(written: Written) -> None:
    dataset = _opened(written)

    assert dataset.scenes is not None
    assert len(dataset.scenes.names) == len(written.scenes)
    assert len(dataset.skipped) == written.skipped


@each_of_boxes
def test_every_crop_shows_the_colour_of_its_class(written: Written) -> None:
    dataset = _opened(written)

    samples = [each for shard in range(dataset.num_shards) for each in dataset.read_shard(shard)]

    assert [_colour(each) for each in samples] == [
        dataset.class_names[each.label] for each in samples
    ]


def _colour(sample: Sample) -> str:
    with sample.open() as file, Image.open(file) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    return max(COLOURS, key=lambda name: (abs(pixels - COLOURS[name]).max(axis=2) < 40).sum())


@each_of_boxes
def test_two_decisions_change_two_boxes_alone(written: Written, tmp_path: Path) -> None:
    dataset = _opened(written)
    assert dataset.revise is not None
    first, last = dataset.sample_ids[0], dataset.sample_ids[-1]
    label = next(name for name in CATEGORIES if name != dataset.class_names[dataset.labels[0]])
    before = _rows(dataset)

    revision = dataset.revise({first: label, last: None})
    for name in (*revision.others, *revision.changed):
        content = revision.changed.get(name, Path(revision.root.path, name).read_bytes())
        assert isinstance(content, bytes)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    after = _rows(dataset_of(tmp_path, split=written.split))

    assert not revision.unknown
    assert after == [(before[0][0], label, before[0][2]), *before[1:-1]]


def _rows(dataset: Dataset) -> list[tuple[str, str, list[float]]]:
    assert dataset.scenes is not None
    return [
        (dataset.scenes.names[row], dataset.class_names[label], sides)
        for row, label, sides in zip(
            dataset.scenes.rows, dataset.labels, dataset.scenes.sides.tolist(), strict=True
        )
    ]


def test_kitti_is_refused_by_its_name() -> None:
    with pytest.raises(DatasetError, match="KITTI"):
        dataset_of(WRITTEN / "datumaro-kitti-plain")


def test_a_tar_of_webdataset_has_the_labels_it_was_written_with() -> None:
    dataset = dataset_of(WRITTEN / "webdataset-tar-with-json-plain")

    labels = {
        sample_id: dataset.class_names[label]
        for sample_id, label in zip(dataset.sample_ids, dataset.labels, strict=True)
    }

    assert labels == {scene.name: scene.things[0].label for scene in SITUATIONS["plain"]}
