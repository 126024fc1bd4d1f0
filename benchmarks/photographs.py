"""Photographs as far as a decoder can tell."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = 4
WIDTH, HEIGHT = 500, 400


def write_photographs(folder: Path, number: int) -> list[bytes]:
    """Writes JPEGs of 500 x 400 pixels, smooth with some noise, a folder per class.

    Returns:
        The same files as bytes.
    """
    generator = np.random.default_rng(0)
    photographs = []
    for position in range(number):
        label = position % CLASSES
        coarse = generator.integers(0, 200, (10, 12, 3), np.uint8) + 14 * label
        image = Image.fromarray(coarse.astype(np.uint8)).resize((WIDTH, HEIGHT))
        noise = generator.integers(0, 12, (HEIGHT, WIDTH, 3), np.uint8)
        target = io.BytesIO()
        Image.fromarray(np.asarray(image) // 2 + noise).save(target, "JPEG", quality=85)
        path = folder / f"class{label}" / f"{position}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(target.getvalue())
        photographs.append(target.getvalue())
    return photographs
