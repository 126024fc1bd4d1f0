"""Faults of images: how well each kind is found that is planted in photographs, and what it costs.

Run: python -m benchmarks.image_faults [tiny_imagenet_val2000.parquet] [--images 400]
     python -m benchmarks.image_faults --held-out

Of real images, a table with a column `image` of encoded files, each fault is planted in a copy of
all of them: corruptions at severity 3 (see `difficulty_service.images.corruptions`), and changes
made here. A number tells the copies from the originals with the AUROC that is printed: 1 is
without an error, 0.5 chance. `found` is the share of the copies that have the fault by its limit
when one image in twenty has it, and `false` that of the others with any fault.

CleanVision's scores of the same images stand beside them where `pip install cleanvision` was run.

`--held-out` prints the same shares of images by which no limit was chosen, beside those of the
first 400 of Tiny ImageNet, by which they were, and how many images as they are have which fault.

Otherwise, images are at last extracted by turns with and without the numbers that tell how they
look; the ratio is that of processor time.
"""

import argparse
import io
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.metrics import roc_auc_score

from benchmarks.extraction import write_small_images
from benchmarks.machine import machine
from benchmarks.photographs import write_photographs
from benchmarks.real_data import shared_folder
from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions, Preprocessing
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction import batches
from difficulty_service.extraction.shards import extract_shards
from difficulty_service.extraction.task import ExtractionTask
from difficulty_service.images.appearance import NUMBERS, measure, sample_pixels
from difficulty_service.images.corruptions import Corruption
from difficulty_service.images.preparation import decode, pixels_of, to_view
from difficulty_service.scoring.image_faults import FAULTS, Numbers, clearest_faults, find_limits

Pixels = NDArray[np.uint8]
SEVERITY = 3
ONE_IN = 20
CHOSEN_BY = 400  # images of Tiny ImageNet, the first ones, by which the limits were chosen


@dataclass(frozen=True)
class Planted:
    """A fault that is planted.

    Attributes:
        fault: What `image_fault` calls it.
        issue: What CleanVision calls it; None where it has no such check.
    """

    name: str
    fault: str
    issue: str | None
    change: Callable[[Pixels], Pixels]


def corrupted(name: str) -> Callable[[Pixels], Pixels]:
    """A corruption of the benchmarks."""
    corruption = Corruption(name, SEVERITY)

    def change(pixels: Pixels) -> Pixels:
        return corruption.apply(torch.tensor(pixels).permute(2, 0, 1)).permute(1, 2, 0).numpy()

    return change


def scaled(factor: float) -> Callable[[Pixels], Pixels]:
    """All levels times a factor."""
    return lambda pixels: np.clip(pixels * factor, 0, 255).astype(np.uint8)


def one_colour(pixels: Pixels) -> Pixels:
    """The mean colour of the image."""
    return np.broadcast_to(pixels.mean(axis=(0, 1)), pixels.shape).astype(np.uint8)


def cut_off(pixels: Pixels) -> Pixels:
    """The lower fifth is grey."""
    pixels = pixels.copy()
    pixels[-len(pixels) // 5 :] = 128
    return pixels


def reduced(pixels: Pixels) -> Pixels:
    """A fifth of both sides."""
    height, width, _ = pixels.shape
    return np.asarray(Image.fromarray(pixels).resize((width // 5, height // 5)))


def middle_quarter(pixels: Pixels) -> Pixels:
    """The rows in the middle, a quarter of all."""
    return pixels[len(pixels) * 3 // 8 : len(pixels) * 5 // 8]


PLANTED = (
    *(
        Planted(name, "blurred", "blurry", corrupted(name))
        for name in ("gaussian_blur", "defocus_blur", "motion_blur", "zoom_blur", "glass_blur")
    ),
    Planted("levels times 0.25", "dark", "dark", scaled(0.25)),
    Planted("levels times 0.15", "dark", "dark", scaled(0.15)),
    Planted("brightness", "overexposed", "light", corrupted("brightness")),
    Planted("levels times 4", "overexposed", "light", scaled(4.0)),
    Planted("contrast", "low contrast", "low_information", corrupted("contrast")),
    Planted("one colour", "one colour", "low_information", one_colour),
    Planted("lower fifth grey", "cut off", None, cut_off),
    Planted("a fifth of the size", "small", "odd_size", reduced),
    Planted("middle quarter", "elongated", "odd_aspect_ratio", middle_quarter),
)


def read_images(table: Path, number: int, start: int = 0) -> list[Pixels]:
    """Some consecutive images of a table."""
    rows = pq.read_table(table, columns=["image"]).slice(start, number)["image"].to_pylist()
    files = [row["bytes"] if isinstance(row, dict) else row for row in rows]
    return [np.asarray(Image.open(io.BytesIO(file)).convert("RGB")) for file in files]


def numbers_of(images: Sequence[Pixels]) -> NDArray[np.float32]:
    """How some images look. Shape (images, numbers)."""
    return measure([sample_pixels(image) for image in images])


def auroc(clean: NDArray[np.floating], planted: NDArray[np.floating]) -> float:
    """How well a number that is smaller where there is a fault tells the copies."""
    is_planted = np.repeat([0, 1], [len(clean), len(planted)])
    return float(roc_auc_score(is_planted, -np.concatenate([clean, planted])))


def shares(
    clean: NDArray[np.float32], planted: NDArray[np.float32], code: int
) -> tuple[float, float]:
    """Shares of the planted images with their fault, and of the others with any."""
    found = others = 0
    rounds = range(ONE_IN)
    for first in rounds:
        numbers = clean.copy()
        numbers[first::ONE_IN] = planted[first::ONE_IN]
        codes = clearest_faults(numbers, find_limits(numbers))
        is_planted = np.arange(len(codes)) % ONE_IN == first
        found += int((codes[is_planted] == code).sum())
        others += int((codes[~is_planted] != 0).sum())
    return found / len(clean), others / len(clean) / (ONE_IN - 1)


def of_cleanvision(images: Sequence[Pixels], issue: str) -> NDArray[np.float64] | None:
    """CleanVision's score, smaller where there is an issue; None where it is not installed."""
    try:
        from cleanvision import Imagelab
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for number, image in enumerate(images):
            Image.fromarray(image).save(Path(folder) / f"{number:05d}.png")
        lab = Imagelab(data_path=folder)
        lab.find_issues({issue: {}}, n_jobs=1, verbose=False)
        scores: NDArray[np.float64] = lab.issues.sort_index()[f"{issue}_score"].to_numpy()
    return scores


def report(images: list[Pixels]) -> None:
    """Prints a line for each planted kind."""
    clean = numbers_of(images)
    names = [fault.name for fault in FAULTS]
    print(f"{len(images)} images; severity {SEVERITY}")
    print(f"{'planted':20} {'fault':14} {'AUROC':>6} {'found':>6} {'false':>6} {'CleanVision':>12}")
    for each in PLANTED:
        copies = [each.change(image) for image in images]
        planted = numbers_of(copies)
        code = names.index(each.fault)
        number = FAULTS[code].number
        own = auroc(number(Numbers(*clean.T)), number(Numbers(*planted.T)))
        found, false = shares(clean, planted, code + 1)
        theirs = "-"
        if each.issue and (scores := of_cleanvision([*images, *copies], each.issue)) is not None:
            theirs = f"{auroc(scores[: len(images)], scores[len(images) :]):.3f}"
        line = f"{each.name:20} {each.fault:14} {own:6.3f} {found:6.2f} {false:6.3f} {theirs:>12}"
        print(line, flush=True)


def report_held_out(folder: Path) -> None:
    """Prints tables of the images that chose the limits and of others, in Markdown."""
    tiny = folder / "tiny_imagenet_val2000.parquet"
    sets = {
        "Tiny ImageNet, first 400": read_images(tiny, CHOSEN_BY),
        "Tiny ImageNet, other 1,600": read_images(tiny, 2000, CHOSEN_BY),
        "CIFAR-10 test, 2,000": read_images(folder / "cifar10_test.parquet", 2000),
        "CIFAR-100 test, 2,000": read_images(folder / "cifar100_test.parquet", 2000),
    }
    clean = {name: numbers_of(images) for name, images in sets.items()}
    names = [fault.name for fault in FAULTS]
    print(f"| planted | fault | {' | '.join(sets)} |")
    print(f"| --- | --- |{' --- |' * len(sets)}")
    for each in PLANTED:
        code = names.index(each.fault) + 1
        cells = []
        for name, images in sets.items():
            planted = numbers_of([each.change(image) for image in images])
            cells.append(f"{shares(clean[name], planted, code)[0]:.0%}")
        print(f"| {each.name} | {each.fault} | {' | '.join(cells)} |", flush=True)
    for name, numbers in clean.items():
        codes = clearest_faults(numbers, find_limits(numbers))
        counts = {fault: int((codes == code).sum()) for code, fault in enumerate(names, 1)}
        shown = ", ".join(f"{fault} {count}" for fault, count in counts.items() if count)
        print(f"as they are, {name}: {(codes != 0).mean():.2%} ({shown or 'none'})")


def without_numbers() -> AbstractContextManager[object]:
    """Extraction as it would be without the numbers."""
    nothing = np.zeros((0, len(NUMBERS)), np.float32)
    return patch.multiple(
        batches, sample_pixels=lambda _pixels: None, measure=lambda _sampled: nothing
    )


def cost(backbone: str, write: Callable[[Path, int], object], number: int, rounds: int) -> None:
    """Prints the ratio of the processor times of extraction with and without the numbers."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write(folder / "images", number)
        device = torch.device("cpu")
        loaded = load_backbone(backbone, BackboneOptions(device=device))
        task = ExtractionTask(open_dataset(str(folder / "images"), DatasetOptions()), backbone)
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for number_of_round in range(rounds + 1):
            for measured in (True, False) if number_of_round % 2 else (False, True):
                began = time.process_time()
                with nullcontext() if measured else without_numbers():
                    for _ in extract_shards(task, loaded, range(task.dataset.num_shards)):
                        pass
                if number_of_round:  # the first one warms up
                    seconds[measured].append(time.process_time() - began)
        ratios = [one / two for one, two in zip(*seconds.values(), strict=True)]
        each = 1e6 * statistics.median(seconds[True]) / number
        print(
            f"{backbone}: {each:.0f} core-microseconds an image, {statistics.median(ratios):.3f} "
            f"of those without the numbers ({min(ratios):.3f}-{max(ratios):.3f})"
        )


def cost_beside_decoding(rounds: int) -> None:
    """Prints the share of the numbers in decoding and resizing a photograph, as a GPU waits for."""
    with tempfile.TemporaryDirectory() as temporary:
        files = write_photographs(Path(temporary), 64)
    view = Preprocessing(224, 224, "bicubic", (0.0,) * 3, (1.0,) * 3)

    def prepare(*, measured: bool) -> float:
        began, sampled = time.process_time(), []
        for file in files:
            image = decode(partial(io.BytesIO, file))
            if measured:
                sampled.append(sample_pixels(pixels_of(image)))
            to_view(image, view)
        if measured:
            measure(sampled)
        return time.process_time() - began

    prepare(measured=True)
    pairs = [(prepare(measured=True), prepare(measured=False)) for _ in range(rounds)]
    ratio = statistics.median(one / two for one, two in pairs)
    each = 1e6 * statistics.median(one for one, _ in pairs) / len(files)
    print(f"decoding and resizing alone: {each:.0f} core-microseconds an image, {ratio:.3f}")


def main() -> None:
    """Measures both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    shared = shared_folder()
    usual = shared / "data" / "tiny_imagenet_val2000.parquet"
    parser.add_argument("table", type=Path, nargs="?", default=usual)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--held-out", action="store_true")
    arguments = parser.parse_args()
    print(machine())
    torch.set_num_threads(1)
    if arguments.held_out:
        report_held_out(shared / "data")
        return
    report(read_images(arguments.table, arguments.images))
    cost("builtin", write_small_images, 4096, arguments.rounds)
    cost("builtin-photos", write_photographs, 256, arguments.rounds)
    cost_beside_decoding(10 * arguments.rounds)


if __name__ == "__main__":
    main()
