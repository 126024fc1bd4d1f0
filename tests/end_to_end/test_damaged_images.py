"""A thousand files that are no images beside a thousand that are: all listed, none fatal."""

import os
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from difficulty_service.score_file import read_scores

Command = Callable[..., subprocess.CompletedProcess[str]]

EACH = 1000
CLASSES = ("cat", "dog")
BOMB_SIDE = 20_000
MEBIBYTE = 1 << 20
MEMORY_BOUND = 100 * MEBIBYTE

KINDS = (
    *("truncated", "bomb", "empty", "text", "wrong extension", "garbage", "pipe", "directory"),
    *("broken link", "beheaded"),
)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand good images in two classes."""
    root = tmp_path_factory.mktemp("good") / "photos"
    fill_with_good_images(root)
    return root


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a thousand damaged files among them."""
    root = tmp_path_factory.mktemp("mixed") / "photos"
    fill_with_good_images(root)
    bomb = tmp_path_factory.mktemp("bomb") / "bomb.png"
    bomb.write_bytes(png_bomb())
    chance = random.Random(6)  # noqa: S311 - damage, not secrets
    for number in range(EACH):
        folder = root / CLASSES[number % len(CLASSES)]
        add_damaged(folder, f"bad {number:04d}", KINDS[number % len(KINDS)], bomb, chance)
    return root


def fill_with_good_images(root: Path) -> None:
    generator = np.random.default_rng(11)
    for number in range(EACH):
        path = root / CLASSES[number % len(CLASSES)] / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        side = int(generator.integers(12, 33))
        pixels = generator.integers(0, 256, size=(side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)


def add_damaged(folder: Path, stem: str, kind: str, bomb: Path, chance: random.Random) -> None:
    path = folder / f"{stem}.png"
    picture = (folder / sorted(os.listdir(folder))[-1]).with_name(good_name(folder)).read_bytes()
    if kind == "truncated":
        path.write_bytes(picture[: chance.randint(1, len(picture) * 3 // 4)])
    elif kind == "beheaded":
        path.write_bytes(picture[chance.randint(1, len(picture) // 2) :])
    elif kind == "bomb":
        os.link(bomb, path)
    elif kind == "empty":
        path.touch()
    elif kind == "text":
        path.write_text("A thousand words.\n")
    elif kind == "wrong extension":
        path.with_suffix(".doc").write_bytes(picture)
    elif kind == "garbage":
        path.with_suffix(".jpg").write_bytes(chance.randbytes(chance.randint(1, 5000)))
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("nowhere.png")
