"""Planted errors of boxes, and how many of them rankings find."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.evidence import objects, page_of_tasks
from benchmarks.evidence.objects import SIDES, Boxes, Ranked
from benchmarks.evidence.page_text import Tables
from benchmarks.evidence.tables import write_rows


def boxes_at(*corners: tuple[int, int, int], side: int = 20) -> Boxes:
    """Boxes of a side by their image, left and top."""
    images, left, top = np.array(corners, np.int64).T
    sides = np.column_stack([left, top, left + side, top + side]).astype(np.float64)
    nothing = np.zeros(len(images), np.int64)
    return Boxes(images, sides, nothing, nothing[:, None].astype(np.float32))


def test_moved_boxes_are_half_their_side_off_and_inside_the_image() -> None:
    random = np.random.default_rng(0)
    sides = random.integers(40, 91, 500)
    left, top = (random.integers(0, length - sides) for length in SIDES)
    boxes = np.column_stack([left, top, left + sides, top + sides]).astype(np.float64)

    moved = objects.move(boxes, random)

    assert np.abs(moved - boxes).sum(axis=1) == pytest.approx(sides)
    assert moved.min() >= 0
    assert (moved[:, 2] <= SIDES[0]).all()
    assert (moved[:, 3] <= SIDES[1]).all()


def test_a_ranking_finds_errors_among_as_many_of_the_first() -> None:
    is_wrong = np.array([True, False, True, False])

    found = Ranked.of(np.array([0.9, 0.6, 0.4, 0.1]), is_wrong)

    assert found == Ranked(0.5, 0.75, pytest.approx((1 + 2 / 3) / 2))


def test_a_removed_box_is_found_once_by_a_region_of_its_image() -> None:
    removed = boxes_at((0, 0, 0), (1, 50, 50))
    ranked = boxes_at((1, 0, 0), (0, 4, 0), (0, 0, 4), (1, 52, 50))

    found = Ranked.of_regions(ranked, removed)

    assert found.found == 0.5
    assert found.auroc is None
    assert found.average_precision == pytest.approx((1 / 2 + 2 / 4) / 2)


def test_predictions_stand_in_the_list_of_their_likeliest_category() -> None:
    boxes = boxes_at((0, 0, 0), (1, 5, 5), (1, 9, 9))
    probabilities = np.full((3, objects.CLASSES), 0.01)
    probabilities[[0, 1, 2], [3, 3, 7]] = 0.9

    first, second = objects.as_predictions(2, boxes, probabilities)

    assert [len(each) for each in first] == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert second[7].tolist() == [[9, 9, 29, 29, 0.9]]


def test_errors_of_boxes_stand_beside_those_of_cleanlab(tmp_path: Path) -> None:
    ours, peer = Ranked(0.6, 0.9, 0.7), Ranked(0.8, 0.5, 0.7)
    swapped = objects.Found((1000, 50, 49, 30, 24), ours, {"labels": peer})
    removed = objects.Found((1000, 50), Ranked(0.6, None, 0.7), {"labels": Ranked(0.5, None, 0.7)})
    rows = [
        *objects.rows_of("swapped", [swapped, swapped]),
        *objects.rows_of("removed", [removed, removed]),
    ]
    write_rows(tmp_path / "objects.csv", objects.COLUMNS, rows)

    text = page_of_tasks.objects(Tables(tmp_path))

    measures = "_0.600 / 0.800_ | **0.900 / 0.500** | 0.700 / 0.700"
    assert f"| swapped | 50 | labels | {measures} | 49 | 0.80 |" in text
    assert "| removed | 50 | labels | **0.600 / 0.500** | - | 0.700 / 0.700 | - | - |" in text
