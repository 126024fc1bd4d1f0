"""Why a dataset is not read as the scenes are: what each program does on purpose or leaves out."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from benchmarks.formats.table import TableRow


@dataclass(frozen=True)
class Explanation:
    """A reason for some differences of some datasets.

    Attributes:
        names: Pattern of the names of the datasets.
        differences: Patterns of the differences.
    """

    names: str
    differences: tuple[str, ...]
    sentence: str

    def holds(self, row: TableRow, difference: str) -> bool:
        """Whether it is the reason for a difference."""
        return fnmatchcase(row.name, self.names) and any(
            fnmatchcase(difference, pattern) for pattern in self.differences
        )


_FROM_0 = (
    "It counts pixels from 0; corners of Pascal VOC are counted from 1, as ours reads them, so "
    "left and top are a pixel less."
)
_SKIPPED = "Ours lists boxes that are turned as skipped."
_ONE_FILE = (
    "It writes images of the same name in two splits over each other: one of them stays, in both "
    "splits."
)
_ONE_IMAGE = (
    "It writes images of the same name in two splits over each other, so that boxes of one split "
    "are beside the objects."
)
_UNTURNED = (
    "It writes the sides that the box had before it was turned, from the corner that is the upper "
    "left one afterwards."
)

EXPLANATIONS: tuple[Explanation, ...] = (
    Explanation(
        "datumaro-coco-turned-box",
        ("* 1 missing",),
        "It writes no turned box into COCO.",
    ),
    Explanation(
        "globox-open-images-empty-image",
        ("ours 1 image fewer",),
        "A table of boxes has no row for an image without any.",
    ),
    Explanation("datumaro-pascal-voc-same-name*", ("*",), _ONE_FILE),
    Explanation("datumaro-cvat-*-same-name*", ("ours 1 crops *",), _ONE_IMAGE),
    Explanation("datumaro-pascal-voc-[!c]*", ("ours 1.00 px",), _FROM_0),
    Explanation("labelformat-pascal-voc-*", ("ours 1.00 px",), _FROM_0),
    Explanation("globox-pascal-voc-*", ("ours 1.00 px",), _FROM_0),
    Explanation("label-studio-sdk-pascal-voc-[!f]*", ("ours 1.00 px",), _FROM_0),
    Explanation(
        "datumaro-*",
        ("tool classes 'background'",),
        "Its reader adds a class for the background.",
    ),
    Explanation(
        "datumaro-pascal-voc-counted-from-1-plain",
        ("tool 1.00 px",),
        "Its reader counts from 0 unless it is told what the writer was told.",
    ),
    Explanation(
        "datumaro-pascal-voc-counted-from-1-fractions*",
        ("ours 0.?? px", "tool 0.?? px"),
        "It rounds the corners outwards to whole pixels.",
    ),
    Explanation(
        "datumaro-yolo-sub-folders",
        ("tool fails: ItemImportError*",),
        "Its reader takes the folder of an image for the name of a split, and fails.",
    ),
    Explanation("datumaro-cvat-for-images-turned-box", ("ours 1 missing",), _SKIPPED),
    Explanation(
        "datumaro-folders-of-classes-same-name*",
        ("tool fails: DatasetImportError*",),
        "Its reader fails where the splits have not the same classes.",
    ),
    Explanation(
        "datumaro-dota-*",
        ("tool ? missing",),
        "It writes turned boxes alone into DOTA.",
    ),
    Explanation(
        "supervision-pascal-voc-fractions*",
        ("* 0.50 px",),
        "It rounds to whole pixels.",
    ),
    Explanation(
        "ultralytics-yolo-crowd",
        ("* 1 missing",),
        "Its converter leaves out crowds.",
    ),
    Explanation(
        "label-studio-sdk-coco-turned-box",
        ("ours 1 missing", "ours 1 more"),
        "It turns boxes in percent of width and height, so that the box around a turned one is "
        "another where these differ.",
    ),
    Explanation("label-studio-sdk-yolo-turned-box", ("* 1 missing", "* 1 more"), _UNTURNED),
    Explanation(
        "label-studio-sdk-pascal-voc-turned-box", ("ours 1 missing", "ours 1 more"), _UNTURNED
    ),
    Explanation(
        "label-studio-sdk-pascal-voc-fractions*",
        ("ours 1.?? px",),
        f"It cuts off fractions. {_FROM_0}",
    ),
    Explanation(
        "label-studio-sdk-label-studio-json-turned-box",
        ("ours 1 missing",),
        _SKIPPED,
    ),
    Explanation(
        "label-studio-sdk-label-studio-json-of-coco-outlines",
        ("ours 3 more",),
        "Its importer makes a rectangle and a polygon of an annotation that has an outline.",
    ),
    Explanation(
        "labelformat-yolo-turned-photograph",
        ("tool *",),
        "Its reader takes the size of the stored pixels, which EXIF turns, so that its boxes are "
        "elsewhere.",
    ),
    Explanation(
        "webdataset-tar-with-txt-plain",
        ("ours refuses: *",),
        "Texts are captions in these tars; ours takes labels from `.cls` and `.json`.",
    ),
    Explanation(
        "webdataset-tar-with-json-names*",
        ("* 2 missing", "ours is not cleaned*"),
        "The name of a sample ends at its first dot, as WebDataset defines it.",
    ),
)


def explain(row: TableRow, difference: str) -> str | None:
    """The sentence for a difference; None where there is none."""
    return next((each.sentence for each in EXPLANATIONS if each.holds(row, difference)), None)


def stale(rows: Sequence[TableRow]) -> list[str]:
    """Explanations of differences that no dataset has."""
    return [
        f"{each.names}: {each.sentence}"
        for each in EXPLANATIONS
        if not any(each.holds(row, one) for row in rows for one in row.differences)
    ]
