"""The images of scored samples, found again in their dataset."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from difficulty_service.datasets.sample import ImageOpener
from difficulty_service.pages.stored_images import match_images
from difficulty_service.scores.provenance import Provenance
from tests.dataset_files import dataset_of


def test_only_shards_with_one_of_the_samples_are_opened(photos: Path) -> None:
    dataset = dataset_of(photos, shard_size=2)
    opened: list[range] = []

    def open_images(positions: range) -> Iterator[ImageOpener]:
        opened.append(positions)
        return dataset.open_images(positions)

    source = match_images(
        Provenance(), dataset.sample_ids, replace(dataset, open_images=open_images)
    )
    problems: list[tuple[str, str]] = []

    images = dict(
        source.images(["cat/1.png", "gone.png"], lambda *problem: problems.append(problem))
    )

    assert [image.path for image in images.values()] == [photos / "cat" / "1.png"]
    assert opened == [range(2, 4)]
    assert [sample_id for sample_id, _ in problems] == ["gone.png"]
