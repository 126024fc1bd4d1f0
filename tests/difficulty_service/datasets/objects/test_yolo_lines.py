"""Lines of YOLO with more numbers than a box has: outlines, tracks, masks and key points."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from difficulty_service.datasets.sample import Dataset
from tests.boxed_images import SCENES, write_image
from tests.dataset_files import dataset_of

BOX = (0.05, 0.2, 0.25, 0.6)
"""Sides of the apple of the first scene."""

TRACKED = "0 0.15 0.4 0.2 0.4 0.93 {}"
TRIANGLE = "0 0.05 0.6 0.25 0.6 0.15 {}"


def _open(folder: Path, lines: Sequence[str], *, outlines: bool = False) -> Dataset:
    """A dataset with an image for each line."""
    for number, line in enumerate(lines):
        write_image(folder / f"images/{number}.png", SCENES[0])
        path = folder / f"labels/{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{line}\n0 0.15 0.4 0.2 0.4\n")
    return dataset_of(folder, outlines=outlines)


def _sides(dataset: Dataset) -> list[list[float]]:
    assert dataset.scenes is not None
    first = [name.endswith("#1") for name in dataset.sample_ids]
    return [
        each for each, chosen in zip(dataset.scenes.sides.tolist(), first, strict=True) if chosen
    ]


@pytest.mark.parametrize(
    "lines",
    [
        [TRACKED.format(1), TRACKED.format(2), TRACKED.format(31)],
        [TRACKED.format(1), TRACKED.format("7.000000")],
        [TRACKED.format(1), "0 0.15 0.4 0.2 0.4 0.5"],
        ["0 0.15 0.4 0.2 0.4 3", "0 0.15 0.4 0.2 0.4 1"],
        [TRACKED.format(5), "1 0.1 0.1 0.4 0.1 0.4 0.4 0.1 0.35"],
    ],
    ids=["tracks", "with a point", "some without a track", "no confidence", "beside an outline"],
)
def test_boxes_with_the_number_of_a_track_are_boxes(tmp_path: Path, lines: Sequence[str]) -> None:
    dataset = _open(tmp_path, lines)

    assert _sides(dataset)[0] == pytest.approx(BOX)
    assert not dataset.skipped


@pytest.mark.parametrize(
    "lines",
    [
        [TRIANGLE.format("0.2"), TRIANGLE.format("0.2")],
        [TRIANGLE.format("1"), TRIANGLE.format("0.2")],
        [TRIANGLE.format("1"), "1 0.1 0.1 0.4 0.1 0.4 0.4 0.1 0.35"],
    ],
)
def test_outlines_of_three_corners_are_outlines(tmp_path: Path, lines: Sequence[str]) -> None:
    dataset = _open(tmp_path, lines)

    bottom = [0.05, 0.6, 0.25, 1.0] if " 1" in lines[0][-3:] else list(BOX)
    assert _sides(dataset)[0] == pytest.approx(bottom)
    assert not dataset.skipped


@pytest.mark.parametrize(
    "lines",
    [[TRACKED.format(1)], [TRACKED.format(1), TRACKED.format(2), TRIANGLE.format("0.2")]],
    ids=["a single object", "of both kinds"],
)
def test_six_numbers_that_may_be_both_are_listed_and_not_guessed(
    tmp_path: Path, lines: Sequence[str]
) -> None:
    dataset = _open(tmp_path, lines)

    ((name, reason),) = dataset.skipped
    assert name == "images/0.png#1"
    assert "three corners or a box with its confidence and the number of a track" in reason


@pytest.mark.parametrize("added", ["0.9", "12", "0.9 12"])
def test_what_a_detector_adds_to_an_outline_is_no_corner(tmp_path: Path, added: str) -> None:
    corners = "0.05 0.2 0.25 0.2 0.25 0.6 0.05 0.6"

    dataset = _open(tmp_path, [f"0 {corners} {added}", f"0 {corners} {added[:-1]}1"], outlines=True)

    assert _sides(dataset) == [pytest.approx(BOX)] * 2
    assert not dataset.skipped


def test_numbers_that_are_no_shares_of_the_image_are_no_outline(tmp_path: Path) -> None:
    lines = ["0 10 20 30 20 30 60.5", "0 10 20 30 20 30 60 10 60.5", "0 10 20 30 20 30 60 10 60"]

    dataset = _open(tmp_path, lines)

    reason = "its line is no box, and no outline in shares of the image"
    assert dataset.skipped == [(f"images/{number}.png#1", reason) for number in range(3)]


@pytest.mark.parametrize("visible", ["2", "1", "0"])
def test_key_points_without_kpt_shape_are_not_taken_for_corners(
    tmp_path: Path, visible: str
) -> None:
    line = f"0 0.15 0.4 0.2 0.4 0.1 0.3 {visible} 0.2 0.5 1"
    skipped = _open(tmp_path, [line, line]).skipped
    assert len(skipped) == 2
    assert all("write kpt_shape into data.yaml" in reason for _, reason in skipped)

    (tmp_path / "data.yaml").write_text("names: [apple]\ntrain: images\nkpt_shape: [2, 3]\n")

    dataset = _open(tmp_path, [line, line])
    assert _sides(dataset) == [pytest.approx(BOX)] * 2
    assert not dataset.skipped
