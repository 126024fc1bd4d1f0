"""A thousand files that are no images beside a thousand that are: all listed, none fatal."""

import os
import random
import resource
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from difficulty_service.cli import main
from difficulty_service.scores.file import read_scores

Command = Callable[..., subprocess.CompletedProcess[str]]

EACH = 1000
CLASSES_OF_FEW = ("bird", "cat")
CLASSES = ("cat", "dog")
BOMB_SIDE = 20_000
MEMORY_BOUND_KIB = 100 * 1024


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand good images in two classes."""
    root = tmp_path_factory.mktemp("good") / "photos"
    add_good(root)
    return root


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, and a thousand damaged files among them."""
    root = tmp_path_factory.mktemp("mixed") / "photos"
    add_good(root)
    picture = (root / CLASSES[0] / "0000.png").read_bytes()
    bomb = tmp_path_factory.mktemp("bomb") / "bomb.png"
    bomb.write_bytes(png_bomb())
    ways = list(damages(picture, bomb, random.Random(6)).values())  # noqa: S311 - no secrets
    for number in range(EACH):
        damage = ways[number // len(CLASSES) % len(ways)]
        damage(root / CLASSES[number % len(CLASSES)] / f"{number:04d} bad.png")
    return root


def add_good(root: Path) -> None:
    generator = np.random.default_rng(11)
    for number in range(EACH):
        path = root / CLASSES[number % len(CLASSES)] / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        side = int(generator.integers(12, 33))
        pixels = generator.integers(0, 256, size=(side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)


def damages(
    picture: bytes, bomb: Path, chance: random.Random
) -> dict[str, Callable[[Path], object]]:
    """What can be where an image should be: each is put at the path that it is given."""
    size = len(picture)
    return {
        "cut off": lambda path: path.write_bytes(picture[: chance.randint(1, size * 3 // 4)]),
        "beheaded": lambda path: path.write_bytes(picture[chance.randint(1, size // 2) :]),
        "bomb": lambda path: os.link(bomb, path),
        "empty": lambda path: path.touch(),
        "text": lambda path: path.write_text("It is worth a thousand words.\n"),
        "garbage": lambda path: path.write_bytes(chance.randbytes(chance.randint(1, 5000))),
        "of another name": lambda path: path.with_suffix(".doc").write_bytes(picture),
        "pipe": lambda path: os.mkfifo(path),
        "folder": lambda path: path.mkdir(),
        "broken link": lambda path: path.symlink_to("nowhere.png"),
    }


def png_bomb() -> bytes:
    """A whole black and white image of 400 million pixels in 50 kB."""
    header = struct.pack(">IIBBBBB", BOMB_SIDE, BOMB_SIDE, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((1 + BOMB_SIDE // 8) * BOMB_SIDE), 9)
    chunks = ((b"IHDR", header), (b"IDAT", rows), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def score_and_measure(
    forkserver: ForkServerContext, photos: Path, scores: Path, network: tuple[str, ...]
) -> int:
    """Scores in a process of its own; gives its largest resident memory in KiB."""
    words = ("score", photos, "--out", scores, *network, "--shard-size", 500)
    told = scores.with_suffix(".memory")
    process = forkserver.Process(target=score_and_tell, args=([str(word) for word in words], told))
    process.start()
    process.join()
    assert process.exitcode == 0
    return int(told.read_text())


def score_and_tell(words: list[str], told: Path) -> None:
    """Calls the command, and writes the largest resident memory of this process to a file."""
    sys.argv[:] = ["difficulty", *words]
    try:
        sys.exit(main())
    finally:
        told.write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))


@pytest.mark.slow
def test_a_thousand_damaged_files_are_listed_and_the_others_are_scored_in_flat_memory(
    forkserver: ForkServerContext,
    good: Path,
    mixed: Path,
    tmp_path: Path,
    network: tuple[str, ...],
) -> None:
    good_scores, mixed_scores = tmp_path / "good.parquet", tmp_path / "mixed.parquet"

    memory_of_good = score_and_measure(forkserver, good, good_scores, network)
    # Of so many files that are no images by their names it is asked.
    sure = (*network, "--format", "image-folder")
    memory_of_mixed = score_and_measure(forkserver, mixed, mixed_scores, sure)

    found = {path.relative_to(mixed).as_posix() for path in mixed.glob("*/*")}
    damaged = {path for path in found if "bad" in path}
    errors = pq.read_table(tmp_path / "mixed.features" / "errors.parquet").to_pydict()
    assert len(errors["sample_id"]) == EACH
    assert set(errors["sample_id"]) == damaged
    assert all(reason and len(reason.splitlines()) == 1 for reason in errors["reason"])
    scored = read_scores(mixed_scores)
    assert len(scored.table) == EACH
    assert set(scored.table["sample_id"].to_pylist()) == found - damaged
    assert scored.table["md_agnostic"].null_count == 0
    assert scored.provenance.num_bad_images == EACH
    np.testing.assert_allclose(
        scored.table["rmd"], read_scores(good_scores).table["rmd"], rtol=0.05, atol=0.05
    )
    assert memory_of_mixed - memory_of_good < MEMORY_BOUND_KIB


def test_every_kind_of_damage_has_a_reason_of_its_own(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    picture = (few_photos / "bird" / "000.png").read_bytes()
    bomb = tmp_path / "bomb.png"
    bomb.write_bytes(png_bomb())
    ways = damages(picture, bomb, random.Random(1))  # noqa: S311 - no secrets
    for number, damage in enumerate(ways.values()):
        damage(few_photos / "cat" / f"{number} bad.png")

    done = difficulty("extract", few_photos, "--out", tmp_path / "store", *network)

    assert done.returncode == 0
    assert "20 of 30 images have features" in done.stdout
    errors = tmp_path / "store" / "errors.csv"
    assert f"10 images could not be read; {errors} lists each with its reason\n" in done.stderr
    assert done.stderr.count("\n  1 image, cat/") == 7
    assert "\n  3 images, first cat/1 bad.png: not an image of a known format" in done.stderr
    reasons = pq.read_table(errors.with_suffix(".parquet"))["reason"].to_pylist()
    expected = {
        "cut off": "",
        "beheaded": "not an image of a known format",
        "bomb": "20000 x 20000 pixels are more than the 50000000 allowed",
        "empty": "the file is empty",
        "text": "it begins with b'It is wo'",
        "garbage": "not an image of a known format",
        "of another name": "not an image file by its extension '.doc'",
        "pipe": "not a regular file",
        "folder": "a directory, not an image file",
        "broken link": "a broken symbolic link",
    }
    assert list(expected) == list(ways)
    for reason, part in zip(reasons, expected.values(), strict=True):
        assert part in reason


def test_stopping_at_the_first_damaged_image_names_it(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    (few_photos / "bird" / "004.png").write_bytes(b"")
    (few_photos / "cat" / "001.png").write_bytes(b"")

    done = difficulty(
        *("extract", few_photos, "--out", tmp_path / "store", *network, "--on-error", "stop")
    )

    assert done.returncode == 1
    assert "error: bird/004.png in " in done.stderr
    assert "the file is empty" in done.stderr
    assert "--on-error skip" in done.stderr
    assert "cat/001.png" not in done.stderr


def test_a_dataset_without_a_readable_image_is_an_error(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    for photo in few_photos.rglob("*.png"):
        photo.write_text("no image")
    scores = tmp_path / "scores.parquet"

    first = difficulty("score", few_photos, "--out", scores, *network)
    second = difficulty("score", few_photos, "--out", scores, *network)

    for done in (first, second):
        assert done.returncode == 1
        assert "error: none of the 20 images can be read; the first is bird/000.png" in done.stderr
    assert not scores.exists()


def test_a_class_without_a_readable_image_is_a_warning_that_names_it(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    for photo in (few_photos / "bird").iterdir():
        photo.write_text("no image")
    scores = tmp_path / "scores.parquet"

    done = difficulty(
        *("score", few_photos, "--out", scores, *network, "--shrinkage", "leave-one-out")
    )

    assert done.returncode == 0, done.stderr
    assert "warning: no image of these classes can be read: bird" in done.stderr
    scored = read_scores(scores)
    assert scored.provenance.class_names == tuple(CLASSES_OF_FEW)
    assert "no image of these classes can be read: bird" in scored.provenance.warnings
    assert scored.table["label_name"].to_pylist() == ["cat"] * 10
    assert scored.table["md_agnostic"].null_count == 0
