"""Refuses images that would take minutes to decode, although they have few bytes or pixels."""

from PIL import ImageFile

from difficulty_service.errors import ImageError

MAX_SCANS = 100
"""Scans of a progressive JPEG, each of which passes over all pixels; cameras write about ten."""

START_OF_SCAN = b"\xff\xda"

MAX_INTERPRETED_PIXELS = 4_000_000
"""Pixels of an image whose decoder is written in Python; one million take a second or two."""

INTERPRETED = {"ppm_plain": "a PPM with numbers as text", "bmp_rle": "a run-length coded BMP"}
"""Names of those decoders in PIL, and of the images for people."""


def refuse_slow(data: bytes, header: ImageFile.ImageFile) -> None:
    """Checks an image before it is decoded; one that is slow by accident is among the refused.

    Args:
        data: The whole encoded image.
        header: The image after its header was parsed.

    Raises:
        ImageError: The image would take too long.
    """
    if "progressive" in header.info:
        # Inside a scan 0xFF is escaped; the only others are those of an embedded preview.
        scans = data.count(START_OF_SCAN)
        if scans > MAX_SCANS:
            raise ImageError(
                f"a progressive JPEG with {scans} scans, more than the {MAX_SCANS} allowed",
                "save it again, as any program that shows it can",
            )
    kind = INTERPRETED.get(_decoder(header))
    width, height = header.size
    if kind is not None and width * height > MAX_INTERPRETED_PIXELS:
        raise ImageError(
            f"{kind} with {width} x {height} pixels, more than the {MAX_INTERPRETED_PIXELS} "
            "allowed for this kind",
            "save it as PNG",
        )


def _decoder(header: ImageFile.ImageFile) -> str:
    """Name of the decoder of an image in PIL; empty where its plugin names none."""
    tiles = getattr(header, "tile", [])
    return str(tiles[0][0]) if tiles else ""
