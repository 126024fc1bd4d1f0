"""The truth: a few small images, the objects in them, and the situations that are written.

Everything is drawn by code, so that what a program wrote can be compared with what it was given.
This module runs in the environment of the programs, too, and needs Pillow alone.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image, ImageDraw

CATEGORIES = ("truck", "apple", "leaf")
"""Names of the classes in an order that is not that of the alphabet."""

COLOURS = {"truck": (30, 60, 200), "apple": (220, 30, 30), "leaf": (30, 180, 40)}
SIZE = (320, 200)
TURNED = 6
"""The orientation in EXIF of a photograph whose stored pixels are to be turned clockwise."""

Sides = tuple[float, float, float, float]
Point = tuple[float, float]


@dataclass(frozen=True)
class Thing:
    """An object: its class and where it is in the upright image, in pixels.

    Attributes:
        sides: Left, top, right and bottom; of a turned box those before it is turned.
        corners: Of its outline; none where it is a box alone.
        degrees: By which its box is turned clockwise around its middle.
        crowd: Whether it is a region of many objects, which COCO gives as runs of pixels.
    """

    label: str
    sides: Sides
    corners: tuple[Point, ...] = ()
    degrees: float = 0
    crowd: bool = False

    @property
    def outline(self) -> tuple[Point, ...]:
        """Corners of what it covers."""
        left, top, right, bottom = self.sides
        box = ((left, top), (right, top), (right, bottom), (left, bottom))
        if not self.degrees:
            return self.corners or box
        angle = math.radians(self.degrees)
        across, down = (left + right) / 2, (top + bottom) / 2
        cos, sin = math.cos(angle), math.sin(angle)
        return tuple(
            (
                across + (x - across) * cos - (y - down) * sin,
                down + (x - across) * sin + (y - down) * cos,
            )
            for x, y in box
        )


@dataclass(frozen=True)
class Scene:
    """An image.

    Attributes:
        name: Its path without the extension.
        size: Width and height of the upright image.
        orientation: What its EXIF block says; 1 has none.
    """

    name: str
    things: Sequence[Thing] = field(default=())
    split: str = "train"
    size: tuple[int, int] = SIZE
    orientation: int = 1

    @property
    def file(self) -> str:
        """Its path; photographs that are turned are JPEG."""
        return f"{self.name}.{'png' if self.orientation == 1 else 'jpg'}"


_PLAIN = (
    Scene("a", (Thing("truck", (20, 30, 100, 90)), Thing("apple", (150, 60, 210, 130)))),
    Scene("b", (Thing("leaf", (40, 20, 90, 100)), Thing("apple", (200, 110, 260, 170)))),
    Scene("c", (Thing("leaf", (120, 80, 220, 150)), Thing("truck", (10, 10, 60, 50)))),
)

SITUATIONS: dict[str, tuple[Scene, ...]] = {
    "plain": _PLAIN,
    "empty image": (*_PLAIN, Scene("nothing")),
    "same name in two splits": (
        *_PLAIN[:2],
        Scene("a", (Thing("leaf", (60, 70, 140, 150)),), "val"),
        Scene("d", (Thing("apple", (30, 30, 90, 80)), Thing("truck", (100, 90, 180, 140))), "val"),
    ),
    "names with blanks, dots and umlauts": (
        Scene("day 1.morning", _PLAIN[0].things),
        Scene("größe ü", _PLAIN[1].things),
        Scene("v1.2.final", _PLAIN[2].things),
    ),
    "sub-folders": (
        Scene("day1/cam.0/a", _PLAIN[0].things),
        Scene("day2/cam.0/a", _PLAIN[1].things),
        Scene("day2/c", _PLAIN[2].things),
    ),
    "fractions of pixels": (
        Scene("a", (Thing("truck", (20.25, 30.5, 100.75, 90.4)),)),
        Scene("b", (Thing("leaf", (40.6, 20.1, 90.3, 100.9)),)),
        Scene("c", (Thing("apple", (7 / 3, 11 / 7, 200 / 3, 400 / 7)),)),
    ),
    "at the borders": (
        Scene("a", (Thing("truck", (0, 0, *SIZE)),)),
        Scene("b", (Thing("leaf", (0, 0, 40, 50)), Thing("apple", (260, 120, *SIZE)))),
        Scene("c", (Thing("apple", (1, 1, 50, 60)), Thing("truck", (200, 100, 319, 199)))),
    ),
    "outlines": (
        Scene(
            "a",
            (Thing("truck", (20, 30, 100, 90), ((20, 50), (60, 30), (100, 60), (50, 90))),),
        ),
        Scene(
            "b",
            (
                Thing("leaf", (40, 20, 90, 100), ((40, 20), (90, 40), (60, 100))),
                Thing(
                    "apple", (200, 110, 260, 170), ((230, 110), (260, 140), (230, 170), (200, 140))
                ),
            ),
        ),
    ),
    "crowd": (
        *_PLAIN[:2],
        Scene(
            "c",
            (
                Thing("truck", (10, 10, 60, 50)),
                Thing("leaf", (120, 80, 220, 150), crowd=True),
            ),
        ),
    ),
    "turned box": (
        *_PLAIN[:2],
        Scene(
            "c",
            (Thing("leaf", (120, 80, 220, 150), degrees=30), Thing("truck", (10, 10, 60, 50))),
        ),
    ),
    "turned photograph": (
        Scene(
            "a",
            (Thing("truck", (20, 30, 100, 90)), Thing("apple", (150, 60, 190, 130))),
            size=(200, 320),
            orientation=TURNED,
        ),
        Scene("b", _PLAIN[1].things),
    ),
}
"""What is written, by the name that the table has."""


def encoded(scene: Scene) -> bytes:
    """An image with an area of its colour for each object, as PNG, or turned as JPEG."""
    image = Image.new("RGB", scene.size, (200, 200, 190))
    pen = ImageDraw.Draw(image)
    for thing in scene.things:
        pen.polygon(thing.outline, COLOURS[thing.label])
    file = io.BytesIO()
    if scene.orientation == 1:
        image.save(file, "PNG")
    else:
        exif = Image.Exif()
        exif[0x0112] = scene.orientation
        image.transpose(Image.Transpose.ROTATE_90).save(file, "JPEG", quality=90, exif=exif)
    return file.getvalue()


def draw(path: Path, scene: Scene) -> None:
    """Writes the image of a scene."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(scene))


def draw_all(folder: Path, scenes: Sequence[Scene]) -> list[Path]:
    """Draws scenes of one split below a folder, under their names."""
    paths = [folder / scene.file for scene in scenes]
    for path, scene in zip(paths, scenes, strict=True):
        draw(path, scene)
    return paths


def by_split(scenes: Sequence[Scene]) -> dict[str, list[Scene]]:
    """The scenes of each split."""
    splits = list(dict.fromkeys(scene.split for scene in scenes))
    return {split: [scene for scene in scenes if scene.split == split] for split in splits}
