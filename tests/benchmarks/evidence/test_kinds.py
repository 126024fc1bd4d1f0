"""Images that are made hard, and the table of which score finds which kind."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.evidence.kinds import COLUMNS, MOVED, Pixels, noisy, shifted, zoomed
from benchmarks.evidence.page_of_labels import kinds
from benchmarks.evidence.page_text import Tables
from benchmarks.evidence.tables import write_rows

SIDE = 32


@pytest.fixture
def pixels() -> Pixels:
    return np.random.default_rng(0).integers(1, 256, (SIDE, SIDE, 3)).astype(np.uint8)


def test_a_shift_moves_the_image_and_leaves_black(pixels: Pixels) -> None:
    for seed in range(8):
        moved = shifted(pixels, np.random.default_rng(seed))

        kept = moved[moved.any(axis=2)].reshape(-1, 3)
        assert len(kept) == SIDE * (SIDE - MOVED)
        assert {tuple(each) for each in kept} <= {tuple(each) for each in pixels.reshape(-1, 3)}
        black = ~moved.any(axis=2)
        assert {int(black.any(axis=0).sum()), int(black.any(axis=1).sum())} == {MOVED, SIDE}


def test_a_zoom_shows_the_middle(pixels: Pixels) -> None:
    pixels[:] = 0
    pixels[8:24, 8:24] = 200

    assert zoomed(pixels)[4:-4, 4:-4].min() > 190


def test_noise_changes_an_image_of_the_same_size(pixels: Pixels) -> None:
    changed = noisy(pixels)

    assert changed.shape == pixels.shape
    assert changed.dtype == np.uint8
    assert (changed != pixels).mean() > 0.9


def test_the_page_names_the_best_of_all_scores(tmp_path: Path) -> None:
    values = {"rmd": "0.9000", "knn": "0.2000", "forgetting": "0.9500"}
    rest = {"kind": "far", "draws": "2", "samples": "5000", "machine": "a processor"}
    rows = [rest | {"score": score, "auroc": auroc} for score, auroc in values.items()]
    write_rows(tmp_path / "kinds.csv", COLUMNS, rows)

    text = kinds(Tables(tmp_path))

    assert (
        "| far | 0.9000 | not run | not run | 0.2000 | not run | not run | forgetting 0.9500 |"
        in text
    )
    assert "5,000 test images of CIFAR-10, mean of 2 draws" in text
    assert "`knn` is below chance for far:" in text
    assert "not run." in kinds(Tables(tmp_path / "nothing"))
