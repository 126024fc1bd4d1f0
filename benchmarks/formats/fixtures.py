"""Copies a few of the written datasets to where the tests read them.

    python -m benchmarks.formats.fixtures [FOLDER]

The datasets are those that `python -m benchmarks.formats` wrote. They are small, and of several
programs; none has a path of the machine that wrote it.
"""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "data" / "formats"
CHOSEN = (
    "datumaro-coco-same-name-in-two-splits",
    "datumaro-cvat-for-images-turned-box",
    "datumaro-kitti-plain",
    "datumaro-pascal-voc-counted-from-1-plain",
    "datumaro-yolo-of-darknet-same-name-in-two-splits",
    "globox-coco-plain",
    "label-studio-sdk-label-studio-json-outlines",
    "label-studio-sdk-yolo-empty-image",
    "labelformat-cvat-for-images-sub-folders",
    "pycocotools-coco-of-masks-plain",
    "supervision-coco-turned-photograph",
    "supervision-pascal-voc-empty-image",
    "supervision-yolo-plain",
    "ultralytics-yolo-obb-turned-box",
    "webdataset-tar-with-json-plain",
)


def main() -> None:
    """Copies them anew."""
    written = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".formats") / "written"
    shutil.rmtree(FIXTURES, ignore_errors=True)
    for name in CHOSEN:
        shutil.copytree(written / name / "data", FIXTURES / name)
        for folder in sorted((FIXTURES / name).rglob("*"), reverse=True):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()  # Git keeps none


if __name__ == "__main__":
    main()
