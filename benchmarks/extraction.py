"""Extraction of features beside the bare forward pass, and beside clip-retrieval's kind of loop.

Run: python -m benchmarks.extraction [--backbone builtin ...] [--images 8192] [--rounds 5]

The bare forward pass is the same network, as its library builds it, on the same device and batch
size, again and again on one batch that lies ready: no file, no decoding. Our forward pass is that
of the network that `difficulty` builds, its batch normalisations folded away. The loop is what
users of open_clip and clip-retrieval write: PIL and torchvision transforms in a DataLoader, the
network, .npy. Extraction is `difficulty extract` from files to feature store, all but listing and
loading. All take turns in each round.

A convolutional network of timm is exported first, unless --pytorch is given, and runs by ONNX
Runtime where that is faster; --runtimes compares the libraries alone, on one core: PyTorch with the
channels first and last, as timm builds the network, with its normalisations folded, and ONNX
Runtime.

On a CPU the rates of a core are those of a second of processor time, and the share is that of the
rate at which NumPy multiplies matrices of float32 on one core, the best of the rounds.
Weights are random but for those in the package, unless --weights names a file: their speed is the
same.

Images are 32 x 32 PNG for a backbone that wants them so small, else JPEG photographs of 500 x 400.
"""

import argparse
import copy
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from huggingface_hub import constants
from PIL import Image
from safetensors.torch import save_file
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode
from torchvision import transforms
from torchvision.datasets import ImageFolder

from benchmarks.machine import machine
from benchmarks.photographs import write_photographs
from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import (
    Backbone,
    BackboneOptions,
    Preprocessing,
    choose_device,
    halves_of,
    image_preprocessing,
)
from difficulty_service.backbones.exported_graph import (
    core_rates,
    export_graph,
    run_kept,
    settle_graph,
)
from difficulty_service.backbones.frozen_network import FrozenNetwork
from difficulty_service.backbones.onnx_network import OnnxNetwork
from difficulty_service.backbones.weights_files import PACKAGED_WEIGHTS
from difficulty_service.base.process_setup import enable_avx512_kernels, keep_freed_memory
from difficulty_service.base.threads import num_workers
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.plan import Plan
from difficulty_service.extraction.schedules import SMALL_SIZE, suitable_batch_size
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.images.modes import Mode
from difficulty_service.images.preparation import normalise
from difficulty_service.scoring.pipeline import execute

LEAST_RATIO = 0.9
SMALL_IMAGES, PHOTOGRAPHS = 8192, 1024
DEFAULT = ("builtin", "builtin-photos", "timm:mobilenetv2_100")
OF_TIMM = {"builtin-photos": "timm:tf_efficientnet_lite2"}
"""The network of timm whose weights a network of the package has."""

MATRIX_SIDE, MATRIX_PRODUCTS = 2048, 4


@dataclass(frozen=True)
class Setting:
    """What all four measurements share.

    Attributes:
        folder: Images, in a folder per class.
        out: Folder of the results.
        number: Number of images.
        name: Name of the backbone.
        network: Device, precision and weights of the backbone.
        backbone: The loaded backbone.
        published: The same network as its library builds it.
        batch_size: Number of images in one forward pass.
    """

    folder: Path
    out: Path
    number: int
    name: str
    network: BackboneOptions
    backbone: Backbone
    published: Backbone
    batch_size: int

    @property
    def preprocessing(self) -> Preprocessing:
        """How the images become the network's input."""
        return cast(Preprocessing, self.backbone.preprocessing)


def write_small_images(folder: Path, number: int) -> None:
    """PNGs of 32 x 32 pixels, four classes."""
    generator = np.random.default_rng(0)
    for position in range(number):
        path = folder / f"class{position % 4}" / f"{position}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = generator.integers(0, 255, (8, 8, 3), np.uint8)
        Image.fromarray(coarse).resize((32, 32)).save(path)


def random_weights(name: str, folder: Path) -> str | None:
    """A file of random weights for a backbone; None for what has its own."""
    if name in PACKAGED_WEIGHTS:
        return None
    path = folder / "weights.safetensors"
    if name.startswith("timm:"):
        import timm

        network = timm.create_model(name.removeprefix("timm:"), pretrained=False)
    else:
        import open_clip

        architecture = name.removeprefix("open_clip:").partition("/")[0]
        network = open_clip.create_model(architecture, pretrained=None)
    save_file({key: value.contiguous() for key, value in network.state_dict().items()}, path)
    return str(path)


def as_published(backbone: Backbone, device: torch.device, precision: torch.dtype) -> Backbone:
    """The backbone around timm's own network; others have nothing that is folded when loaded."""
    name = OF_TIMM.get(backbone.name, backbone.name)
    if not name.startswith("timm:"):
        return backbone
    random = BackboneOptions(device=device, precision=precision, random=True)
    ours = cast(FrozenNetwork, load_backbone(name, random))
    import timm

    network = timm.create_model(name.removeprefix("timm:"), num_classes=0)
    network = network.eval().requires_grad_(requires_grad=False).to(device, precision)
    return replace(ours, network=network.to(memory_format=ours.memory_format))


def operations(backbone: Backbone, device: torch.device, precision: torch.dtype) -> int:
    """Floating-point operations of one image, multiplications and additions."""
    shape = image_preprocessing(backbone).shape
    with FlopCounterMode(display=False) as counter:
        backbone.encode(torch.zeros(1, 3, *shape, device=device, dtype=precision))
    return int(counter.get_total_flops())


def exported(backbone: Backbone, *, by_pytorch: bool) -> Backbone:
    """A network with a graph by ONNX Runtime where that is faster, or by PyTorch alone."""
    if not isinstance(backbone, FrozenNetwork) or backbone.graph is None:
        return backbone
    if by_pytorch:
        return replace(backbone, graph=None)
    return run_kept(backbone, settle_graph(backbone, backbone.graph, noise(backbone)))


def noise(backbone: Backbone, number: int = 8) -> Tensor:
    """Normalised images."""
    shape = image_preprocessing(backbone).shape
    return torch.randn(number, 3, *shape, generator=torch.Generator().manual_seed(0))


def compare_runtimes(name: str, arguments: argparse.Namespace) -> None:
    """Prints how many images a second each library encodes on one core, and how features differ."""
    with tempfile.TemporaryDirectory() as temporary:
        weights = arguments.weights or random_weights(name, Path(temporary))
        folded = cast(FrozenNetwork, load_backbone(name, BackboneOptions(weights)))
    images = noise(folded, arguments.batch_size or 8)
    last = cast(FrozenNetwork, as_published(folded, images.device, images.dtype))
    first = replace(
        last,
        network=copy.deepcopy(last.network).to(memory_format=torch.contiguous_format),
        memory_format=torch.contiguous_format,
    )
    by_onnx = folded.run_by(OnnxNetwork(export_graph(folded.network, images)))
    kinds = {
        "PyTorch, channels first": first,
        "PyTorch, channels last": last,
        "PyTorch, folded": folded,
        "ONNX Runtime": by_onnx,
    }
    backbones = list(kinds.values())
    rounds = [core_rates(backbones, images) for _ in range(arguments.rounds)]
    print(f"\n{name}, batches of {len(images)}, {folded.preprocessing.shape} pixels")
    for kind, rates in zip(kinds, zip(*rounds, strict=True), strict=True):
        print(f"{kind:24}{statistics.median(rates):8.1f} images per core-second")
    expected = folded.encode(images)
    difference = (by_onnx.encode(images) - expected).abs().max() / expected.abs().max()
    print(f"features differ by {float(difference):.0e} of the largest")


def matrix_rate() -> float:
    """Floating-point operations per second of matrix products on one core, in float32."""
    one, two = np.random.default_rng(0).random((2, MATRIX_SIDE, MATRIX_SIDE), np.float32)
    with threadpool_limits(1):
        began = time.process_time()
        for _ in range(MATRIX_PRODUCTS):
            one @ two
        seconds = time.process_time() - began
    return MATRIX_PRODUCTS * 2 * MATRIX_SIDE**3 / seconds


def forward(backbone: Backbone, setting: Setting) -> Callable[[], None]:
    """A network alone, on one batch that lies ready on its device."""
    shape, device = setting.preprocessing.shape, setting.network.device
    views = torch.randint(0, 256, (setting.batch_size, 3, *shape), dtype=torch.uint8)
    images = normalise(views.to(device), setting.preprocessing, setting.network.precision)

    def run() -> None:
        for _ in range(setting.number // setting.batch_size):
            features = backbone.encode(images)
        float(features[0, 0])  # waits for a GPU

    return run


def plain_loop(setting: Setting) -> Callable[[], None]:
    """PIL, torchvision and a DataLoader; features to one .npy."""
    preprocessing = setting.preprocessing
    transform = transforms.Compose(
        [
            transforms.Resize(
                # To both sides where that is not what the network sees: the work is similar.
                preprocessing.resize if preprocessing.fit == "crop" else preprocessing.shape,
                transforms.InterpolationMode(preprocessing.interpolation),
            ),
            transforms.CenterCrop(preprocessing.shape),
            transforms.ToTensor(),
            transforms.Normalize(preprocessing.mean, preprocessing.std),
        ]
    )
    device, precision = setting.network.device, setting.network.precision

    def run() -> None:
        images = ImageFolder(str(setting.folder), transform)
        loader = DataLoader(
            images,
            setting.batch_size,
            num_workers=num_workers(),
            multiprocessing_context="forkserver",
            pin_memory=device.type == "cuda",
        )
        features: list[Tensor] = [
            setting.published.encode(batch.to(device, precision, non_blocking=True)).cpu()
            for batch, _ in loader
        ]
        np.save(setting.out / "features.npy", torch.cat(features).numpy())

    return run


def extraction(
    setting: Setting,
    workers: int | None = None,
    limit: int | None = None,
    preprocess: Mode = "fast",
) -> Callable[[], None]:
    """As `difficulty extract`, with dataset and backbone open already, as for the others.

    Args:
        setting: What all measurements share.
        workers: Threads that read and decode; None for all cores.
        limit: Number of images; None for all.
        preprocess: What decodes.
    """
    plan = Plan(
        location=str(setting.folder),
        out=setting.out / "store",
        backbone=setting.name,
        network=setting.network,
        dataset=DatasetOptions(limit=limit),
        options=ExtractOptions(
            batch_size=setting.batch_size, workers=workers, preprocess=preprocess
        ),
        resume=False,
    )
    dataset = open_dataset(plan.location, plan.dataset)

    def run() -> None:
        execute(plan, dataset=dataset, load=lambda _name, _options: setting.backbone)

    return run


def _core_seconds() -> float:
    """Processor time of this process and of those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measure(name: str, arguments: argparse.Namespace) -> bool:
    """Rounds for one backbone; prints them and says whether the aim is reached."""
    device = choose_device(arguments.device)
    precision = torch.float32 if arguments.fp32 else [torch.float32, *halves_of(device)][-1]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        constants.HF_ASSETS_CACHE = str(folder / "assets")  # graphs of random weights are of no use
        weights = arguments.weights or random_weights(name, folder)
        network = BackboneOptions(weights=weights, device=device, precision=precision)
        backbone = exported(load_backbone(name, network), by_pytorch=arguments.pytorch)
        batch_size = arguments.batch_size or suitable_batch_size(device, backbone)
        small = max(image_preprocessing(backbone).shape) <= SMALL_SIZE
        images = arguments.images or (SMALL_IMAGES if small else PHOTOGRAPHS)
        number = max(1, images // batch_size) * batch_size
        write = write_small_images if small else write_photographs
        write(folder / "images", number)
        setting = Setting(
            folder / "images",
            folder,
            number,
            name,
            network,
            backbone,
            as_published(backbone, device, precision),
            batch_size,
        )
        work = {
            "bare forward": forward(setting.published, setting),
            "our forward": forward(backbone, setting),
            "extract": extraction(setting),
            "DataLoader loop": plain_loop(setting),
        }
        rates: dict[str, list[float]] = {kind: [] for kind in work}
        core_rates: dict[str, list[float]] = {kind: [] for kind in work}
        matrix_rates = [matrix_rate()]
        image_operations = operations(setting.published, device, precision)
        for number_of_round in range(arguments.rounds + 1):
            matrix_rates.append(matrix_rate())
            for kind, run in work.items():
                began, began_cores = time.perf_counter(), _core_seconds()
                run()
                if number_of_round:  # the first one warms up
                    rates[kind].append(number / (time.perf_counter() - began))
                    core_rates[kind].append(number / (_core_seconds() - began_cores))
    print(f"\n{name}, batches of {batch_size}, {precision}, {number} images")
    bare = rates["bare forward"]
    for kind, measured in rates.items():
        ratios = [rate / other for rate, other in zip(measured, bare, strict=True)]
        print(
            f"{kind:16}{statistics.median(measured):8.0f} images/s, of the bare forward "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        )
        if device.type == "cpu":
            core_rate = statistics.median(core_rates[kind])
            share = core_rate * image_operations / max(matrix_rates)
            print(
                f"{'':16}{core_rate:8.1f} images per core-second, "
                f"{100 * share:.0f} % of matrix products"
            )
    ratios = [rate / other for rate, other in zip(rates["extract"], bare, strict=True)]
    return statistics.median(ratios) >= LEAST_RATIO


def main() -> None:
    """Measures each backbone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backbone", nargs="+", default=DEFAULT)
    parser.add_argument("--weights", help="a file, in place of random weights")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--fp32", action="store_true")
    parser.add_argument("--images", type=int, help=f"{SMALL_IMAGES} small or {PHOTOGRAPHS} large")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pytorch", action="store_true", help="export no network")
    parser.add_argument("--runtimes", action="store_true", help="compare the libraries alone")
    arguments = parser.parse_args()
    enable_avx512_kernels()
    keep_freed_memory()
    print(machine())
    if arguments.runtimes:
        for name in arguments.backbone:
            compare_runtimes(name, arguments)
        return
    reached = [measure(name, arguments) for name in arguments.backbone]
    print(f"\n{'PASS' if all(reached) else 'FAIL'}: {LEAST_RATIO} of the bare forward are asked")


if __name__ == "__main__":
    main()
