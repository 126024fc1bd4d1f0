"""Regions of images that look like an object and have no box.

Square windows slide over images that are drawn at random. Those that lie beside all boxes are
encoded as the boxes were, and compared with the classes of the boxes and with each other. Of
windows that overlap, only the one most like an object stays.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from difficulty_service.analyses.missing_boxes.odds import object_odds
from difficulty_service.analyses.missing_boxes.windows import lies_beside, slide, window_sides
from difficulty_service.backbones import Loader, load_backbone
from difficulty_service.base.errors import (
    DatasetError,
    FeatureStoreError,
    ImageError,
    Setting,
)
from difficulty_service.base.tables import save_table
from difficulty_service.base.wording import count_of
from difficulty_service.bodies.missing_boxes import MissingResult
from difficulty_service.datasets.listing import Listing, build_dataset
from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener, Scenes
from difficulty_service.extraction.plan import Plan
from difficulty_service.features.description import FeatureDescription
from difficulty_service.images.crops import Crop, CropOpener, seen_as, upright_frame
from difficulty_service.images.header import open_header, read_encoded, upright_shape
from difficulty_service.images.pixels import Pixels
from difficulty_service.scoring.pipeline import NO_CALLBACKS, Callbacks, execute, make_plan
from difficulty_service.scoring.splits import Split
from difficulty_service.settings.command_options import MissingOptions
from difficulty_service.settings.machine import DeviceOptions, NetworkOptions, RunOptions
from difficulty_service.settings.options import EncodingOptions
from difficulty_service.settings.run import Run

OVERLAP = 0.2
"""Intersection over union from which two windows are about the same region."""

SCHEMA = pa.schema(
    [
        pa.field("image", pa.string(), nullable=False),
        *(pa.field(name, pa.float64(), nullable=False) for name in ("x", "y", "width", "height")),
        pa.field("label", pa.string(), nullable=False),
        pa.field("score", pa.float64(), nullable=False),
    ]
)
"""Columns of a table of regions."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class MissingBoxes:
    """Regions that look like an object and have no box.

    Attributes:
        name: What the user calls the scores.
        num_images: Number of images that were searched.
        images_of_dataset: Number of images of the dataset.
        num_windows: Number of windows beside all boxes that were compared.
        sides: Sides of the windows in pixels, ascending.
        table: The regions with the columns of SCHEMA, those most like an object first: name of the
            image; left, top, width and height in pixels of the image that the annotations go by;
            the class that fits best; and the log-odds of an object against what else lies beside
            boxes, which rank regions and are no calibrated probability.
        regions: These regions as samples, in the order of the table.
        warnings: What to know of all that, one sentence each.
    """

    name: str
    num_images: int
    images_of_dataset: int
    num_windows: int
    sides: Sequence[float]
    table: pa.Table = field(repr=False)
    regions: Dataset = field(repr=False)
    warnings: tuple[str, ...]

    @property
    def dataset(self) -> str:
        """Location of the dataset."""
        return self.regions.location

    @property
    def counts(self) -> MissingResult:
        """How much was searched and found."""
        return MissingResult(
            scores=self.name,
            images=self.num_images,
            images_of_dataset=self.images_of_dataset,
            windows=self.num_windows,
            regions=len(self.table),
            warnings=self.warnings,
        )

    def save(self, path: Path) -> None:
        """Writes the table as .parquet, .csv or .jsonl; it appears whole or not at all."""
        save_table(path, self.table, SCHEMA)


@dataclass(frozen=True)
class Windows:
    """Windows beside all boxes of some images.

    Attributes:
        rows: Place of the image of each. Shape (windows,).
        corners: Left, top, right and bottom in pixels. Shape (windows, 4).
        sizes: Width and height of each image of these, by its place.
        sides: Sides of the windows.
        problems: Reasons why other images could not be read, by their names.
    """

    rows: NDArray[np.int64]
    corners: Numbers
    sizes: Mapping[int, tuple[float, float]]
    sides: Sequence[float]
    problems: Mapping[str, str]


def encoding_plan(description: FeatureDescription, machine: DeviceOptions) -> Plan:
    """How windows are encoded: with the network and the preparation of the boxes.

    Raises:
        FeatureStoreError: The features of the boxes do not say which network made them, or are
            those of random views.
        BackboneError: This machine has no such device.
    """
    if description.backbone is None:
        raise FeatureStoreError(
            "the network of the features is unknown, so windows cannot be encoded alike",
            "score the boxes by `difficulty score`",
        )
    if description.augment_runs:
        raise FeatureStoreError(
            "the features are averaged over random views of the boxes, which windows lack",
            "score the boxes without ",
            Setting("augment_runs"),
        )
    read = description.dataset_options
    if read is not None and read.outlines:
        raise FeatureStoreError(
            "the features are limited to the outlines of objects, which windows lack",
            "score the boxes without ",
            Setting("outlines"),
        )
    size = (description.preprocessing or {}).get("size")
    network = NetworkOptions(
        backbone=description.backbone,
        features="projected" if description.features == "projected" else "penultimate",
        image_size=size if isinstance(size, int) else None,
        preprocess=description.mode or "fast",
    )
    pixels = Pixels.of(description.preprocessing)
    seen = {} if pixels is None else pixels.options()
    encoding = EncodingOptions.among(
        {
            **seen,
            "flip": bool(description.flip),
            "corrupt": description.corruption,
            "seed": description.seed,
        }
    )
    return make_plan(
        Run(
            encoding=encoding,
            network=network,
            machine=RunOptions(**machine.model_dump(exclude_unset=True)),
            features=Path(tempfile.gettempdir()) / "windows",
        )
    )


def find_missing(
    split: Split,
    dataset: Dataset,
    options: MissingOptions,
    plan: Plan,
    callbacks: Callbacks = NO_CALLBACKS,
    load: Loader = load_backbone,
) -> MissingBoxes:
    """Finds regions that look like an object of a class and have no box.

    Args:
        split: The boxes that were scored, with their features.
        dataset: The dataset that they are from.
        plan: As `encoding_plan` makes it, or as the boxes were encoded; the features of the
            windows lie for a while in a new folder beside its `out`.
        callbacks: Called while the windows are encoded.

    Raises:
        DatasetError: The samples are no boxes, or no image is left to search.
        StatisticsError: The network is another one than that of the features, or its features
            allow no densities.
        DifficultyError: As for `execute`.
    """
    scenes = dataset.scenes
    if scenes is None:
        raise DatasetError(
            f"the samples of {dataset.location!r} are whole images and not boxes",
            "look for missing boxes in a dataset of boxes, such as COCO, YOLO or Pascal VOC",
            parameter="images",
        )
    if not split.has_labels or not split.num_samples:
        raise DatasetError(f"{split.name} has no box with a category to compare windows with")
    windows = find_windows(scenes, options)
    if not len(windows.rows):
        raise DatasetError(
            f"no window of the {count_of(len(windows.sizes), 'image')} lies beside all boxes",
            "search more images: raise ",
            Setting("sample"),
            parameter="sample",
        )
    description = split.source.description
    cropped = dataset_of_windows(dataset, scenes, windows, description.class_names)
    with tempfile.TemporaryDirectory(dir=plan.out.parent) as folder:
        out = Path(folder) / plan.out.name
        # Neither the options of the dataset nor features of its samples apply to windows.
        plan = replace(
            plan, out=out, location=dataset.location, dataset=DatasetOptions(), lend=None
        )
        counted = replace(
            callbacks, progress=lambda state: callbacks.progress(replace(state, noun="window"))
        )
        extracted = execute(plan, counted, cropped, load, description)
        encoded = Split("windows", extracted.store)
        known = [int(name.rpartition("@")[2]) for name in encoded.sample_ids.to_pylist()]
        found = encoded.vectors(unit=False)
    problems = dict(windows.problems)
    for each in extracted.bad_images:
        problems.setdefault(each.sample_id.rpartition("@")[0], each.reason)
    labels = torch.from_numpy(split.labels[split.labels >= 0])
    odds = object_odds(split.vectors(unit=False), labels, found, options.seed)
    rows, corners = windows.rows[known], windows.corners[known]
    chosen = apart(rows, corners, odds.log_odds)[: options.count]
    left, top, right, bottom = corners[chosen].T
    names = [split.names[label] for label in odds.labels[chosen].tolist()]
    columns = {
        "image": [scenes.names[row] for row in rows[chosen].tolist()],
        "x": left,
        "y": top,
        "width": right - left,
        "height": bottom - top,
        "label": names,
        "score": odds.log_odds[chosen].numpy(),
    }
    return MissingBoxes(
        split.name,
        len(windows.sizes) + len(windows.problems) - len(problems),
        len(scenes.names),
        len(known),
        windows.sides,
        pa.table(columns, schema=SCHEMA),
        dataset_of_windows(
            dataset,
            scenes,
            replace(windows, rows=rows[chosen], corners=corners[chosen]),
            description.class_names,
            Pixels.of(description.preprocessing),
        ),
        (*split.warnings(), *_unreadable(problems)),
    )


def apart(rows: NDArray[np.int64], corners: Numbers, scores: torch.Tensor) -> NDArray[np.int64]:
    """Places of the windows that overlap no better one of their image, the best first."""
    from torchvision.ops import batched_nms

    boxes, images = torch.from_numpy(corners), torch.from_numpy(rows)
    places: NDArray[np.int64] = batched_nms(boxes, scores, images, OVERLAP).numpy()
    return places


def find_windows(scenes: Scenes, options: MissingOptions) -> Windows:
    """Windows beside all boxes of images that are drawn at random."""
    drawn = np.random.default_rng(options.seed).permutation(len(scenes.names))[: options.sample]
    sizes: dict[int, tuple[float, float]] = {}
    boxes: dict[int, Numbers] = {}
    problems: dict[str, str] = {}
    for row in np.sort(drawn).tolist():
        try:
            sizes[row] = _size_of(scenes, row)
        except ImageError as error:
            problems[scenes.names[row]] = error.problem
            continue
        factors = np.array(sizes[row]) if scenes.frames[row] == (1, 1) else np.ones(2)
        boxes[row] = scenes.sides[scenes.rows == row] * np.tile(factors, 2)
    corners = np.concatenate([np.empty((0, 4)), *boxes.values()])
    if not len(corners):
        raise DatasetError(
            f"none of the {count_of(len(drawn), 'image')} drawn is readable and has a box, which "
            "sets the size of windows",
            "search more images: raise ",
            Setting("sample"),
            parameter="sample",
        )
    sides = window_sides((corners[:, 2:] - corners[:, :2]).max(axis=1))
    rows, found = [np.empty(0, np.int64)], [np.empty((0, 4))]
    for row, size in sizes.items():
        places = slide(*size, sides)
        places = places[lies_beside(places, boxes[row])]
        found.append(places)
        rows.append(np.full(len(places), row))
    return Windows(np.concatenate(rows), np.concatenate(found), sizes, sides.tolist(), problems)


def _size_of(scenes: Scenes, row: int) -> tuple[float, float]:
    """Width and height in pixels of an image, as the annotations say or as it is."""
    frame = scenes.frames[row]
    is_known = frame is not None and frame != (1, 1)
    if frame is not None and is_known and not scenes.upright[row]:
        return frame
    data = read_encoded(scenes.openers[row], scenes.max_pixels)
    header = open_header(data, scenes.max_pixels)
    height, width = upright_shape(header)
    return upright_frame(frame, (width, height)) if frame and is_known else (width, height)


def dataset_of_windows(
    dataset: Dataset,
    scenes: Scenes,
    windows: Windows,
    class_names: Sequence[str],
    pixels: Pixels | None = None,
) -> Dataset:
    """The windows as samples, in the order of their images; their labels mean nothing."""
    number = len(windows.rows)
    ids = [f"{scenes.names[row]}@{each}" for each, row in enumerate(windows.rows.tolist())]
    listing = Listing(
        tuple(class_names), ids, np.zeros(number, np.int32), np.zeros(number, np.int64)
    )
    open_at = partial(_open_at, scenes, windows, pixels)
    return build_dataset(dataset.location, DatasetOptions(), listing, open_at, repr)


def _open_at(
    scenes: Scenes,
    windows: Windows,
    pixels: Pixels | None,
    positions: NDArray[np.int64],
) -> Iterator[ImageOpener]:
    for position in positions.tolist():
        row = int(windows.rows[position])
        left, top, right, bottom = windows.corners[position].tolist()
        frame = None if scenes.frames[row] == (1, 1) else scenes.frames[row]
        crop = Crop((left, top, right, bottom), frame, is_upright=scenes.upright[row])
        yield seen_as(CropOpener(scenes.openers[row], crop, scenes.max_pixels), pixels)


def _unreadable(problems: Mapping[str, str]) -> Sequence[str]:
    if not problems:
        return ()
    name, reason = next(iter(problems.items()))
    number = count_of(len(problems), "image")
    return (f"{number} cannot be read, the first is {name}: {reason}",)
