"""Planted errors of boxes: how many are found, beside cleanlab.

    pip install '.[peers]'
    python -m benchmarks.evidence.objects [--seeds 3] [--images 120] [--backbone builtin]

Each image is an enlarged photograph of Tiny ImageNet with 18 photographs of CIFAR-10's test set
in it, at 40 to 90 pixels. Of their boxes 5 % get another category, 5 % are moved by half their side
and 5 % are taken away, at random, each box for one reason at most.

cleanlab's scores of object detection take the boxes that a detector predicts. The one here sees the
same features and was trained on other images, in three folds: a logistic regression for the
categories and for windows beside all boxes. It classifies the boxes as they are given for swapped
categories, and all windows of `difficulty missing` for misplaced or missing boxes. Predictions
count from a probability of 1/2, as few reach the 0.95 of cleanlab's default. cleanlab's quality of
labels takes the probabilities at the boxes as those of images.

Writes `objects.csv` of the evidence, for each kind of error and each peer: how many were planted
and are expected (the sum of `p_wrong` over these and the boxes that are right), how many have a
`p_wrong` above 1/2 and the share of these that are errors, how many are among as many of the most
suspicious, the AUROC and the average precision, and what ours has more than the peer, with the 95 %
interval over the seeds of the errors. A missing box is found by a region that is apart from better
ones and whose intersection over union with it is 0.3 or more; regions of the peers are others, so
that there is no AUROC, and boxes without one count in the average precision. The regression alone
ranks regions by the probability of an object.
"""

import argparse
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torchvision.ops import box_iou

import difficulty_service as ds
from benchmarks.evidence.page import DOCS, TABLES, write_page
from benchmarks.evidence.tables import Row, write_rows
from benchmarks.evidence.training.comparison import paired_difference
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder, skipped
from difficulty_service.analyses.missing_boxes.find import apart
from difficulty_service.analyses.missing_boxes.odds import object_odds
from difficulty_service.analyses.missing_boxes.windows import lies_beside, slide, window_sides
from difficulty_service.images.crops import Crop

SHARED = shared_folder()
CLASSES, BACKGROUND = 10, 10
SIDES = (640, 320)
ROWS, COLUMNS_OF_CELLS, CELL = 3, 6, 106
KINDS = ("swapped", "shifted", "removed")
SHARE = 0.05
"""Share of the boxes that have each kind of error."""

FOLDS, LEAST, MATCHING = 3, 0.5, 0.3
"""Folds of images, probability from which cleanlab takes a prediction, and intersection over union
from which a region finds a box."""

FOUND, PRECISION = "found", "average_precision"
MEASURES = (FOUND, "auroc", PRECISION)
COLUMNS = (
    *("kind", "peer", "seeds", "boxes", "errors", "expected", "above_half"),
    "above_half_wrong_share",
    *(
        f"{peer}{name}{ending}"
        for name in MEASURES
        for peer, ending in (("", ""), ("peer_", ""), ("", "_difference"), ("", "_difference_95"))
    ),
    "machine",
)

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Boxes:
    """Boxes in the images.

    Attributes:
        images: Number of the image of each. Shape (boxes,).
        sides: Left, top, right and bottom. Shape (boxes, 4).
        labels: Category, or BACKGROUND for windows. Shape (boxes,).
        features: Of the crops. Shape (boxes, dim).
    """

    images: Ints
    sides: Numbers
    labels: Ints
    features: NDArray[np.float32]

    def of(self, chosen: Bools | Ints) -> "Boxes":
        """Some of them."""
        return Boxes(
            self.images[chosen], self.sides[chosen], self.labels[chosen], self.features[chosen]
        )


@dataclass(frozen=True)
class Draw:
    """The boxes with one draw of errors.

    Attributes:
        kinds: Position in KINDS of the error of each, -1 where it is right. Shape (boxes,).
    """

    given: Boxes
    kinds: Ints

    def judged(self, kind: int) -> Bools:
        """The boxes that have an error of this kind or none."""
        return (self.kinds == kind) | (self.kinds < 0)


def paste(shared: Path, images: int) -> tuple[list[bytes], Ints, Numbers, Ints]:
    """Encoded images, and number of the image, sides and category of each of their objects."""
    random = np.random.default_rng(0)
    photographs = pq.read_table(shared / "data/cifar10_test.parquet", columns=["image", "label"])
    grounds = pq.read_table(shared / "data/tiny_imagenet_val2000.parquet", columns=["image"])
    cells = ROWS * COLUMNS_OF_CELLS
    scenes, boxes = [], []
    for number in range(images):
        ground = Image.open(io.BytesIO(grounds["image"][number % len(grounds)].as_py()))
        scene = ground.convert("RGB").resize(SIDES, Image.Resampling.BICUBIC)
        for cell in range(cells):
            side = int(random.integers(40, 91))
            left, top = (
                CELL * place + int(random.integers(0, CELL - side))
                for place in (cell % COLUMNS_OF_CELLS, cell // COLUMNS_OF_CELLS)
            )
            data = photographs["image"][number * cells + cell].as_py()
            photograph = Image.open(io.BytesIO(data)).convert("RGB")
            scene.paste(photograph.resize((side, side), Image.Resampling.BICUBIC), (left, top))
            boxes.append((left, top, left + side, top + side))
        file = io.BytesIO()
        scene.save(file, "JPEG", quality=92)
        scenes.append(file.getvalue())
    labels = photographs["label"][: images * cells].to_numpy()
    return (
        scenes,
        np.repeat(np.arange(images), cells),
        np.array(boxes, np.float64),
        labels.astype(np.int64),
    )


def windows(images: int, sides: Numbers) -> tuple[Ints, Numbers]:
    """Number of the image and sides of the windows that suit boxes."""
    of_one = slide(*SIDES, window_sides(sides[:, 2] - sides[:, 0]))
    return np.repeat(np.arange(images), len(of_one)), np.tile(of_one, (images, 1))


def encode(
    encoder: ds.Encoder, scenes: Sequence[bytes], images: Ints, sides: Numbers
) -> NDArray[np.float32]:
    """Features of the crops, as those of boxes are made."""

    def crops() -> Iterator[bytes]:
        for image, each in zip(images.tolist(), sides.tolist(), strict=True):
            yield Crop(tuple(each)).cut(scenes[image], SIDES[0] * SIDES[1])

    return encoder.encode(crops())


def move(sides: Numbers, random: np.random.Generator) -> Numbers:
    """The boxes half their side to the left, right, top or bottom, where the image has room."""
    half = (sides[:, 2] - sides[:, 0]) / 2
    axis = random.integers(0, 2, len(sides))
    sign = np.where(random.random(len(sides)) < 1 / 2, -1, 1)
    rows = np.arange(len(sides))
    ends = sides[rows, axis + 2] + sign * half, sides[rows, axis] + sign * half
    is_out = (ends[0] > np.array(SIDES)[axis]) | (ends[1] < 0)
    moved = sides.copy()
    for offset in (0, 2):
        moved[rows, axis + offset] += np.where(is_out, -sign, sign) * half
    return moved


def plant(
    right: Boxes, seed: int, encoder: ds.Encoder, scenes: Sequence[bytes]
) -> tuple[Draw, Boxes]:
    """The boxes with errors, and those that were taken away."""
    random = np.random.default_rng(seed)
    drawn = random.random(len(right.labels)) // SHARE
    kinds = np.where(drawn < len(KINDS), drawn, -1).astype(np.int64)
    swapped, shifted, removed = (kinds == kind for kind in range(len(KINDS)))
    labels, sides, features = right.labels.copy(), right.sides.copy(), right.features.copy()
    labels[swapped] = (labels + random.integers(1, CLASSES, len(labels)))[swapped] % CLASSES
    sides[shifted] = move(sides[shifted], random)
    features[shifted] = encode(encoder, scenes, right.images[shifted], sides[shifted])
    given = Boxes(right.images, sides, labels, features)
    return Draw(given.of(~removed), kinds[~removed]), right.of(removed)


def beside(found: Boxes, given: Boxes) -> Bools:
    """Which windows lie beside all boxes of their image. Shape (windows,)."""
    is_beside = np.ones(len(found.labels), np.bool_)
    for image in np.unique(given.images):
        rows = found.images == image
        is_beside[rows] = lies_beside(found.sides[rows], given.sides[given.images == image])
    return is_beside


def predict(given: Boxes, found: Boxes) -> tuple[Numbers, Numbers]:
    """Probabilities of the categories at boxes and of those and the background at windows.

    Out of sample: the regressions have not seen the image. Shape (boxes, 10) and (windows, 11).
    """
    of_boxes = np.zeros((len(given.labels), CLASSES))
    of_windows = np.zeros((len(found.labels), CLASSES + 1))
    outside = beside(found, given)
    for train, test in GroupKFold(FOLDS).split(given.images, groups=given.images):
        held_out = np.isin(found.images, given.images[test])
        known = found.of(outside & ~held_out)
        of_boxes[test] = _regression(given.features[train], given.labels[train]).predict_proba(
            given.features[test]
        )
        rows = np.concatenate([given.features[train], known.features])
        labels = np.concatenate([given.labels[train], known.labels])
        of_windows[held_out] = _regression(rows, labels).predict_proba(found.features[held_out])
    return of_boxes, of_windows


def _regression(features: NDArray[np.float32], labels: Ints) -> LogisticRegression:
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=50))
    return probe.fit(features, labels)


Predictions = list[list[Numbers]]
"""Predicted boxes of each image by category, with their probability as a fifth number."""


def as_predictions(images: int, boxes: Boxes, probabilities: Numbers) -> Predictions:
    """Predictions as cleanlab takes them: of each box the likeliest category."""
    likeliest, surest = probabilities[:, :CLASSES].argmax(axis=1), probabilities[:, :CLASSES].max(1)
    rows = np.column_stack([boxes.sides, surest])
    return [
        [rows[(boxes.images == image) & (likeliest == label)] for label in range(CLASSES)]
        for image in range(images)
    ]


def as_labels(images: int, boxes: Boxes) -> list[dict[str, NDArray[np.generic]]]:
    """Annotations as cleanlab takes them."""
    found = (boxes.images == image for image in range(images))
    return [{"bboxes": boxes.sides[each], "labels": boxes.labels[each]} for each in found]


def surest(boxes: Boxes, scores: Numbers) -> Ints:
    """Positions of the boxes that overlap no surer one of their image, the surest first."""
    return apart(boxes.images, boxes.sides, torch.from_numpy(scores))


@dataclass(frozen=True)
class Peers:
    """What cleanlab says of some boxes and regions, the larger the more suspicious.

    Attributes:
        swapped, shifted: Scores of the boxes by the names of peers. Shape (boxes,) each.
        removed: Regions, the most suspicious first, by the names of peers.
    """

    swapped: Mapping[str, Numbers]
    shifted: Mapping[str, Numbers]
    removed: Mapping[str, Boxes]


def cleanlabs(images: int, given: Boxes, found: Boxes) -> Peers:
    """The scores of cleanlab, and the order of its detector alone."""
    from cleanlab.object_detection.rank import (
        compute_badloc_box_scores,
        compute_overlooked_box_scores,
        compute_swap_box_scores,
    )
    from cleanlab.rank import get_label_quality_scores

    of_boxes, of_windows = predict(given, found)
    labels, at_boxes = as_labels(images, given), as_predictions(images, given, of_boxes)
    order = surest(found, of_windows[:, :CLASSES].max(axis=1))
    order = order[of_windows[order].argmax(axis=1) != BACKGROUND]
    # cleanlab gives the boxes of an image by their category, and in their order within it.
    order = order[np.lexsort([of_windows[order].argmax(axis=1), found.images[order]])]
    objects, chances = found.of(order), of_windows[order, :CLASSES]
    detected = as_predictions(images, objects, chances)
    threshold = {"high_probability_threshold": LEAST}
    swap = compute_swap_box_scores(labels=labels, predictions=at_boxes, **threshold)
    badloc = compute_badloc_box_scores(labels=labels, predictions=detected)
    overlooked = np.concatenate(
        compute_overlooked_box_scores(labels=labels, predictions=detected, **threshold)
    )
    known = np.flatnonzero(~np.isnan(overlooked))
    quality = 1 - get_label_quality_scores(given.labels, of_boxes)
    outside = found.of(beside(found, given))
    is_object = 1 - of_windows[beside(found, given), BACKGROUND]
    return Peers(
        {"object detection": 1 - np.concatenate(swap), "labels": quality},
        {"object detection": 1 - np.concatenate(badloc), "labels": quality},
        {
            "object detection": objects.of(known[np.argsort(overlooked[known], kind="stable")]),
            "regression alone": outside.of(surest(outside, is_object)),
        },
    )


def regions(given: Boxes, found: Boxes) -> Boxes:
    """The regions of `difficulty missing`, those most like an object first."""
    outside = found.of(beside(found, given))
    boxes, labels, rows = map(torch.from_numpy, (given.features, given.labels, outside.features))
    return outside.of(surest(outside, object_odds(boxes, labels, rows).log_odds.numpy()))


@dataclass(frozen=True)
class Ranked:
    """How a ranking finds errors: as many of the first, AUROC and average precision.

    Attributes:
        auroc: None where others rank other regions.
    """

    found: float
    auroc: float | None
    average_precision: float

    @classmethod
    def of(cls, scores: Numbers, is_wrong: Bools) -> "Ranked":
        """Of boxes in any order, of which the most suspicious have the largest scores."""
        first = np.argsort(-scores, kind="stable")[: is_wrong.sum()]
        return cls(
            is_wrong[first].mean(),
            roc_auc_score(is_wrong, scores),
            average_precision_score(is_wrong, scores),
        )

    @classmethod
    def of_regions(cls, ranked: Boxes, removed: Boxes) -> "Ranked":
        """Of regions, the most suspicious first; each box is found once, by the first of them."""
        is_hit = np.zeros(len(ranked.labels), np.bool_)
        overlaps = box_iou(torch.from_numpy(ranked.sides), torch.from_numpy(removed.sides)).numpy()
        overlaps[ranked.images[:, None] != removed.images] = 0
        for box in range(len(removed.labels)):
            hits = np.flatnonzero((overlaps[:, box] >= MATCHING) & ~is_hit)
            is_hit[hits[:1]] = True
        number = len(removed.labels)
        precision = is_hit.cumsum() / np.arange(1, len(is_hit) + 1)
        return cls(is_hit[:number].sum() / number, None, precision[is_hit].sum() / number)


@dataclass(frozen=True)
class Found:
    """What is found of one kind of error in one draw.

    Attributes:
        counts: Numbers of boxes and errors, the expected one, how many are above 1/2, and how many
            of these are errors; of regions the first two alone.
    """

    counts: Sequence[float]
    ours: Ranked
    peers: Mapping[str, Ranked]


def compare(p_wrong: Numbers, peers: Mapping[str, Numbers], is_wrong: Bools) -> Found:
    """How all find the errors of some boxes. Shape (boxes,) each."""
    sure = p_wrong > 0.5  # noqa: PLR2004 - more likely than not
    counts = (len(p_wrong), is_wrong.sum(), p_wrong.sum(), sure.sum(), (sure & is_wrong).sum())
    ranked = {name: Ranked.of(scores, is_wrong) for name, scores in peers.items()}
    return Found(counts, Ranked.of(p_wrong, is_wrong), ranked)


def rows_of(kind: str, draws: Sequence[Found]) -> Iterator[Row]:
    """A row for each peer: means over the draws, and the differences with their intervals."""
    counts = np.mean([each.counts for each in draws], axis=0)
    names = ("boxes", "errors", "expected", "above_half")
    shared = {"kind": kind, "seeds": str(len(draws))}
    shared |= {name: f"{count:.0f}" for name, count in zip(names, counts, strict=False)}
    *_, sure, right = counts
    if len(counts) > len(names) and sure:
        shared["above_half_wrong_share"] = f"{right / sure:.2f}"
    for peer in draws[0].peers:
        row = {**shared, "peer": peer}
        for name in MEASURES if draws[0].ours.auroc is not None else (FOUND, PRECISION):
            ours = [getattr(each.ours, name) for each in draws]
            theirs = [getattr(each.peers[peer], name) for each in draws]
            row |= {name: f"{np.mean(ours):.3f}", f"peer_{name}": f"{np.mean(theirs):.3f}"}
            if len(draws) > 1:
                mean, error = paired_difference(ours, theirs)
                row |= {
                    f"{name}_difference": f"{mean:.3f}",
                    f"{name}_difference_95": f"{error:.3f}",
                }
        yield row


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """The rows of all kinds of errors."""
    encoder = ds.backbone(arguments.backbone)
    scenes, images, sides, labels = paste(SHARED, arguments.images)
    right = Boxes(images, sides, labels, encode(encoder, scenes, images, sides))
    places = windows(arguments.images, sides)
    nothing = np.full(len(places[0]), BACKGROUND)
    found = Boxes(*places, nothing, encode(encoder, scenes, *places))
    draws: dict[str, list[Found]] = {kind: [] for kind in KINDS}
    for seed in range(arguments.seeds):
        draw, removed = plant(right, seed + 1, encoder, scenes)
        scores = ds.score(draw.given.features, draw.given.labels, scorers=["suspicion"])
        p_wrong = scores["p_wrong"].to_numpy().astype(np.float64)
        peers = cleanlabs(arguments.images, draw.given, found)
        for kind, of_kind in (("swapped", peers.swapped), ("shifted", peers.shifted)):
            judged = draw.judged(KINDS.index(kind))
            of_peers = {name: one[judged] for name, one in of_kind.items()}
            draws[kind].append(compare(p_wrong[judged], of_peers, draw.kinds[judged] >= 0))
        ranked = {
            name: Ranked.of_regions(each, removed)
            for name, each in (("", regions(draw.given, found)), *peers.removed.items())
        }
        counts = (len(right.labels), len(removed.labels))
        draws["removed"].append(Found(counts, ranked.pop(""), ranked))
    for kind, each in draws.items():
        for row in rows_of(kind, each):
            print(row, flush=True)
            yield {**row, "machine": machine()}


def main() -> None:
    """Plants errors, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=120)
    parser.add_argument("--backbone", default="builtin")
    arguments = parser.parse_args()
    if not (SHARED / "data/cifar10_test.parquet").exists():
        sys.exit(skipped("CIFAR-10"))
    write_rows(DOCS / TABLES / "objects.csv", COLUMNS, list(rows(arguments)))
    write_page(DOCS)


if __name__ == "__main__":
    main()
