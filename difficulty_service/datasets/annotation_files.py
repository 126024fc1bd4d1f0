"""Files of annotations that other programs write and that are not read, told by how they begin."""

import re
from collections.abc import Callable
from dataclasses import dataclass

HEAD_BYTES = 1 << 16
"""Bytes of a file by which it is told."""

_KITTI = re.compile(rb"[A-Za-z_]+(?: -?\d+(?:\.\d+)?){14,15}\s*(?:\n|$)")
_DOTA = re.compile(rb"(?:imagesource:|(?:-?\d+(?:\.\d+)? ){8}\S+ [012]\s*(?:\n|$))")
_LIST = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")


@dataclass(frozen=True)
class _Kind:
    title: str
    is_it: Callable[[bytes], object]


def _has(*texts: bytes) -> Callable[[bytes], bool]:
    return lambda head: all(text in head for text in texts)


_KINDS = (
    _Kind("LabelMe", _has(b'"shapes"', b'"imagePath"')),
    _Kind("LabelMe", _has(b'"shapes"', b'"shape_type"')),
    _Kind("LabelMe", _has(b"<annotation>", b"<polygon>")),
    _Kind("VIA (VGG Image Annotator)", _has(b'"shape_attributes"')),
    _Kind("VIA (VGG Image Annotator)", _has(b'"_via_')),
    _Kind("Datumaro", _has(b'"dm_format_version"')),
    _Kind("Datumaro", _has(b'"categories"', b'"items"', b'"label_categories"')),
    _Kind("CreateML", lambda head: _LIST.match(head) and b'"coordinates"' in head),
    _Kind("Lightly", _has(b'"file_name"', b'"predictions"', b'"bbox"')),
    _Kind("Open Images", _has(b"ImageID,", b"LabelName,", b"XMin,")),
    _Kind("KITTI", _KITTI.match),
    _Kind("DOTA", _DOTA.match),
)


def title_of_annotations(head: bytes) -> str | None:
    """The program or dataset whose annotations a file begins with; None where it is not known."""
    return next((kind.title for kind in _KINDS if kind.is_it(head)), None)
