"""One picture of many samples, each above its label and score."""

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from difficulty_service.base.files import replacing

TILE, CAPTION, COLUMNS = 96, 16, 10


def write_contact_sheet(path: Path, images: Sequence[bytes], captions: Sequence[str]) -> None:
    """Writes a PNG with the images in rows of ten, in the given order."""
    rows = -(-len(images) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * TILE, rows * (TILE + CAPTION)), "white")
    draw = ImageDraw.Draw(sheet)
    for index, (encoded, caption) in enumerate(zip(images, captions, strict=True)):
        left, top = index % COLUMNS * TILE, index // COLUMNS * (TILE + CAPTION)
        with Image.open(io.BytesIO(encoded)) as image:
            tile = image.convert("RGB").resize((TILE - 4, TILE - 4), Image.Resampling.NEAREST)
        sheet.paste(tile, (left + 2, top + 2))
        draw.text((left + 4, top + TILE - 1), caption, fill="black")
    with replacing(path) as temporary:
        sheet.save(temporary, format="PNG")
