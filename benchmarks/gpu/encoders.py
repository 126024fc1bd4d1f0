"""Extraction from JPEG files beside the bare forward pass, and how many cores feed the device."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import extraction
from benchmarks.gpu.parts import Row, Rows, Setting
from benchmarks.photographs import write_photographs
from benchmarks.real_data import shared_folder
from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions, halves_of
from difficulty_service.base.errors import DifficultyError
from difficulty_service.base.threads import num_workers
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.policy import Encoded, rank_agreement
from difficulty_service.extraction.schedules import suitable_batch_size
from difficulty_service.extraction.shards import extract_shard
from difficulty_service.extraction.task import ExtractionTask, ExtractOptions
from difficulty_service.features.description import LEAST_AGREEMENT
from difficulty_service.images.modes import Mode
from difficulty_service.images.nvjpeg import jpeg_decoder

WRITTEN, IMAGES, FORWARD_IMAGES = 512, 65_536, 8192
"""Files of their own, files with links to them, and images of a bare forward pass."""

IMAGES_PER_WORKER = 4096
"""Many, since processes that decode take seconds to start."""

FED = 0.9
"""Share of the bare forward pass from which on the device counts as fed."""

ROUNDS = 3


@dataclass(frozen=True)
class Network:
    """A backbone, and what its random weights are those of.

    Attributes:
        name: Name of the backbone.
        weights_of: The same network by the name in its library.
    """

    name: str
    weights_of: str


NETWORKS = (
    Network("open_clip:ViT-B-16/openai", "open_clip:ViT-B-16/openai"),
    Network("open_clip:ViT-L-14/openai", "open_clip:ViT-L-14/openai"),
    Network("dinov2-vit-b14", "timm:vit_base_patch14_dinov2.lvd142m"),
)
QUICK_NETWORKS = (Network("builtin", "builtin"),)


def measure_encoders(setting: Setting) -> Rows:
    """Images per second of each network; each gets an equal share of the time that is left."""
    images = 8 if setting.quick else IMAGES
    write_images(setting.folder / "images", min(images, WRITTEN), images)
    networks = QUICK_NETWORKS if setting.quick else NETWORKS
    for number, network in enumerate(networks):
        ends = time.monotonic() + setting.left() / (len(networks) - number)
        try:
            yield from _measure_network(setting, network, min(images, FORWARD_IMAGES), ends)
        except ImportError as error:
            yield Row(network.name, None, "images/s", f"{error.name} is not installed")
        except torch.OutOfMemoryError:
            yield Row(network.name, None, "images/s", "its memory is too small")
        except DifficultyError as error:
            yield Row(network.name, None, "images/s", str(error))


def write_images(folder: Path, written: int, total: int) -> None:
    """Photographs of 500 x 400 pixels; most are links to others, which are decoded all the same."""
    write_photographs(folder, written)
    files = sorted(folder.rglob("*.jpg"))
    for number in range(written, total):
        original = files[number % written]
        os.link(original, original.with_name(f"{number}.jpg"))


def _measure_network(setting: Setting, network: Network, images: int, ends: float) -> Rows:
    weights = extraction.random_weights(network.weights_of, setting.folder)
    precision = [torch.float32, *halves_of(setting.device)][-1]
    options = BackboneOptions(weights=weights, device=setting.device, precision=precision)
    backbone = load_backbone(network.name, options)
    batch_size = min(images, suitable_batch_size(setting.device, backbone))
    common = extraction.Setting(
        folder=setting.folder / "images",
        out=setting.folder,
        number=images,
        name=network.name,
        network=options,
        backbone=backbone,
        published=backbone,
        batch_size=batch_size,
    )
    forward = extraction.forward(backbone, common)
    setting.time(forward)  # loads kernels
    computed = images // batch_size * batch_size
    bare = computed / min(setting.time(forward) for _ in range(ROUNDS))
    note = f"batches of {batch_size}, {str(precision).removeprefix('torch.')}"
    yield Row(f"{network.name}, bare forward pass", bare, "images/s", note)
    yield from _feed(setting, common, bare, ends)
    yield from _decode_there(setting, common, bare)


def _feed(setting: Setting, common: Any, bare: float, ends: float) -> Rows:  # noqa: ANN401
    """Extraction with all cores, then with one and its doubles until the device is fed."""
    feeding = cores = num_workers()
    row, fed = _extract(setting, common, cores, bare)
    yield row
    if not fed:
        yield Row(f"{common.name}, cores that feed it", None, "cores", f"all {cores} do not")
        return
    note = ""
    for workers in (1 << power for power in range(cores.bit_length()) if 1 << power < cores):
        if time.monotonic() > ends:
            note = "the time was up before fewer were tried"
            break
        row, fed = _extract(setting, common, workers, bare)
        yield row
        if fed:
            feeding = workers
            break
    yield Row(f"{common.name}, cores that feed it", feeding, "cores", note)


def _decode_there(setting: Setting, common: Any, bare: float) -> Rows:  # noqa: ANN401
    """Extraction where the device decodes, too, and whether ranks stay as they are."""
    what = f"{common.name}, extraction with JPEGs decoded by the GPU"
    try:
        jpeg_decoder(setting.device)
    except DifficultyError as error:
        yield Row(what, None, "images/s", str(error))
        return
    number = common.number if setting.quick else IMAGES
    work = extraction.extraction(common, num_workers(), number, preprocess="gpu")
    rate = number / setting.time(work)
    note = f"{number:,} JPEGs, {rate / bare:.2f} of the bare forward pass"
    yield Row(what, rate, "images/s", note)
    what = f"{common.name}, ranks by either decoder"
    photographs = shared_folder() / PHOTOGRAPHS
    if not photographs.exists():
        yield Row(what, None, "correlation", "photographs are missing; set DIFFICULTY_SHARED")
        return
    by_cpu, by_gpu = (_encoded(common, photographs, mode) for mode in MODES)
    agreement = rank_agreement(by_cpu, by_gpu)
    note = f"Spearman's, of rmd of {len(by_cpu.labels)} images; {LEAST_AGREEMENT} is asked"
    yield Row(what, agreement, "correlation", note)


MODES: tuple[Mode, ...] = ("fast", "gpu")
PHOTOGRAPHS = "data/tiny_imagenet_val2000.parquet"


def _encoded(common: Any, photographs: Path, mode: Mode) -> Encoded:  # noqa: ANN401
    """Features of some photographs that were decoded in a mode."""
    options = ExtractOptions(batch_size=common.batch_size, preprocess=mode)
    dataset = open_dataset(str(photographs), DatasetOptions(label_column="label"))
    task = ExtractionTask(dataset, common.name, common.network, options)
    table = extract_shard(task, common.backbone, 0).table
    return Encoded(table.features, table.labels, rate=0)


def _extract(setting: Setting, common: Any, workers: int, bare: float) -> tuple[Row, bool]:  # noqa: ANN401
    """The rate with some cores, and whether it is nearly that of the bare forward pass."""
    number = max(common.batch_size, IMAGES_PER_WORKER * workers)
    number = min(common.number if setting.quick else IMAGES, number)
    rate = number / setting.time(extraction.extraction(common, workers, number))
    note = f"{number:,} JPEGs, {rate / bare:.2f} of the bare forward pass"
    row = Row(f"{common.name}, extraction with {workers} cores", rate, "images/s", note)
    return row, rate >= FED * bare
