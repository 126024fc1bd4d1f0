"""A folder as people have it: one command scores it and names whatever it leaves out."""

import io
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from difficulty_service.scores.file import read_scores

Command = Callable[..., subprocess.CompletedProcess[str]]

SKIPPED = {
    "only documents": "a folder without images",
    "labels.csv": "a file outside the class folders",
    "cover.JPG": "an image outside the class folders",
    "empty class": "an empty class folder",
    "ignored files": "an empty class folder",
}
UNREADABLE = {
    "bird/IMG_2044.MOV": "not an image file by its extension '.MOV'",
    "bird/notes.txt": "not an image file by its extension '.txt'",
    "bird/broken link.jpg": "a broken symbolic link",
    "bird/empty.jpg": "the file is empty",
    "bird/text.jpg": "not an image of a known format",
    "bird/truncated.jpg": "truncated",
    "bird/IMG_2044.HEIC": "HEI",
    "cat/huge.png": "9000 x 6000 pixels are more than the 50000000 allowed",
}
READABLE = (
    "bird/really a png.jpg",
    "bird/grey.jpg",
    "bird/cmyk.jpg",
    "bird/sixteen bits.png",
    "bird/animated.gif",
    "bird/#tag 100%/it's.JPEG",
    "Käfer 🐞/foto_é.jpg",
    "鳥/😀.jpg",
    "鳥/link.jpg",
)


@pytest.fixture
def messy(photos: Path, tmp_path: Path) -> Path:
    """Six hundred photos among odd names, formats, links and damage."""
    root = tmp_path / "photos"
    shutil.copytree(photos, root)
    for name in ("bird/#tag 100%", "Käfer 🐞", "鳥", "empty class", "ignored files"):
        (root / name).mkdir()
    picture = Image.open(root / "bird" / "000.png").convert("RGB").resize((30, 20))
    add_readable(root, picture)
    add_unreadable(root, encode(picture, "JPEG"))
    (root / "labels.csv").write_text("path,label\n")
    (root / "cover.JPG").write_bytes(encode(picture, "JPEG"))
    for name in (".DS_Store", "bird/._000.png", "ignored files/Thumbs.db"):
        (root / name).write_bytes(b"\0\0\0\1Bud1")
    return root


def encode(picture: Image.Image, file_format: str) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, file_format)
    return buffer.getvalue()


def add_readable(root: Path, picture: Image.Image) -> None:
    jpeg = encode(picture, "JPEG")
    (root / "bird/really a png.jpg").write_bytes(encode(picture, "PNG"))
    (root / "bird/grey.jpg").write_bytes(encode(picture.convert("L"), "JPEG"))
    (root / "bird/cmyk.jpg").write_bytes(encode(picture.convert("CMYK"), "JPEG"))
    wide = np.asarray(picture.convert("L")).astype(np.uint16) * 257
    Image.fromarray(wide).save(root / "bird/sixteen bits.png")
    frames = [picture.rotate(angle) for angle in (90, 180)]
    picture.save(root / "bird/animated.gif", save_all=True, append_images=frames)
    for name in ("bird/#tag 100%/it's.JPEG", "Käfer 🐞/foto_é.jpg", "鳥/😀.jpg"):
        (root / name).write_bytes(jpeg)
    (root / "鳥/link.jpg").symlink_to(root / "bird/000.png")


def add_unreadable(root: Path, jpeg: bytes) -> None:
    (root / "only documents").mkdir()
    contents = {
        "bird/IMG_2044.MOV": b"\0\0\0\x14ftypqt  ",
        "bird/notes.txt": b"hello",
        "bird/empty.jpg": b"",
        "bird/text.jpg": b"It is worth a thousand words.",
        "bird/truncated.jpg": jpeg[:-40],
        "bird/IMG_2044.HEIC": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + os.urandom(400),
        "only documents/a.pdf": b"%PDF-1.7",
    }
    for name, data in contents.items():
        (root / name).write_bytes(data)
    (root / "bird/broken link.jpg").symlink_to("nowhere.jpg")
    Image.new("1", (9000, 6000)).save(root / "cat/huge.png")


@pytest.mark.slow
def test_a_messy_folder_is_scored_and_whatever_is_left_out_is_named(
    difficulty: Command, messy: Path, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    scores = tmp_path / "scores.parquet"

    done = difficulty("score", messy, "--out", scores, *builtin)

    assert done.returncode == 0, done.stderr
    errors = pq.read_table(tmp_path / "scores.features" / "errors.parquet").to_pydict()
    reasons = dict(zip(errors["sample_id"], errors["reason"], strict=True))
    expected = {**SKIPPED, **UNREADABLE}
    assert sorted(reasons) == sorted(expected)
    for name, part in expected.items():
        assert part in reasons[name]
    scored = read_scores(scores)
    assert set(READABLE) <= set(scored.table["sample_id"].to_pylist())
    assert len(scored.table) == 600 + len(READABLE)
    assert "only documents" not in scored.provenance.class_names
    for warning in (
        "8 images could not be read; 5 entries of the dataset were skipped;",
        "  1 image, bird/IMG_2044.MOV: not an image file by its extension '.MOV'\n",
        "  1 image, bird/empty.jpg: the file is empty\n",
        "50000000 allowed; raise --max-pixels if the image is genuine\n",
        "1 entry is skipped (a file outside the class folders): 'labels.csv'",
        "2 entries are skipped (an empty class folder): 'empty class', 'ignored files'",
        "1 entry is skipped (a folder without images): 'only documents'",
    ):
        assert warning in done.stderr
    assert any("'cover.JPG'" in sentence for sentence in scored.provenance.warnings)


def test_stopping_ends_at_the_first_image_that_cannot_be_read_and_not_at_what_is_skipped(
    difficulty: Command, few_photos: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    (few_photos / "empty class").mkdir()
    (few_photos / "labels.csv").write_text("path,label\n")
    options = ("--out", tmp_path / "store", *network, "--on-error", "stop")
    whole = difficulty("extract", few_photos, *options)
    (few_photos / "cat" / "text.jpg").write_text("no image")

    stopped = difficulty("extract", few_photos, *options, "--no-resume")

    assert whole.returncode == 0, whole.stderr
    assert "'empty class'" in whole.stderr
    assert stopped.returncode == 1
    assert "error: cat/text.jpg in " in stopped.stderr
