"""Copies a few of the written datasets to where the tests read them.

    python -m benchmarks.formats.fixtures [FOLDER]

The datasets are those that `python -m benchmarks.formats` wrote. They are small, and of several
programs; none has a path of the machine that wrote it. So are the decisions that programs wrote by
`python -m benchmarks.formats.round_trips FOLDER 3`.
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


DECISIONS = ROOT / "tests" / "data" / "decisions"
DECIDED = {
    "decisions.json": "decisions.json",
    "label-studio.json": "of_label_studio/JSON.json",
    "label-studio-min.json": "of_label_studio/JSON_MIN.json",
    "label-studio.csv": "of_label_studio/CSV.csv",
    "label-studio.tsv": "of_label_studio/TSV.tsv",
    "cvat-by-datumaro.xml": "of_datumaro/written/annotations.xml",
    "fiftyone-samples.json": "of_fiftyone/FiftyOneDataset/samples.json",
    "datasets.csv": "of_datasets/marks.csv",
    "datasets.parquet": "of_datasets/marks.parquet",
}
"""What programs wrote of decisions, by the name of the copy."""


def copy_decisions(trips: Path) -> None:
    """Copies the decisions anew, without the folder in which they were made."""
    shutil.rmtree(DECISIONS, ignore_errors=True)
    DECISIONS.mkdir(parents=True)
    for name, path in DECIDED.items():
        data = (trips / path).read_bytes()
        (DECISIONS / name).write_bytes(data.replace(str(trips).encode(), b"/data"))


def main() -> None:
    """Copies them anew."""
    place = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".formats").resolve()
    copy_decisions(place / "trips")
    written = place / "written"
    shutil.rmtree(FIXTURES, ignore_errors=True)
    for name in CHOSEN:
        shutil.copytree(written / name / "data", FIXTURES / name)
        for folder in sorted((FIXTURES / name).rglob("*"), reverse=True):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()  # Git keeps none


if __name__ == "__main__":
    main()
