"""Features of photographs and texts beside those of each library's own pipeline.

    DIFFICULTY_SHARED=FOLDER python -m benchmarks.encoders [--minilm FOLDER]

64 files are cut from photographs of Tiny ImageNet and of scikit-learn, with odd sizes, as grey,
palette, CMYK and RGB images, with and without alpha, in five formats and all orientations of EXIF.
Each network of a family turns them into features twice: by `extract`, in the modes `exact` and
`fast`, and as the library's documentation does it, from files opened with Pillow. One line for each
says the largest difference of a feature in `exact`, as a share of the largest feature, and for
`fast` the least cosine of an image and the largest difference of a pixel, in levels of 255.

Weights are those of DIFFICULTY_SHARED; the networks of open_clip have random ones, which the list
says. With `--minilm`, a folder of all-MiniLM-L6-v2, texts of 20 Newsgroups are compared as well.
"""

import argparse
import importlib.metadata
import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import open_clip
import PIL
import pyarrow as pa
import pyarrow.parquet as pq
import timm
import torch
import transformers
from PIL import Image, ImageOps
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_sample_image
from timm.data.config import resolve_data_config
from timm.data.transforms_factory import create_transform
from torch import Tensor, nn

from benchmarks.machine import machine
from benchmarks.real_data import shared_folder, skipped
from difficulty_service.backbones import load_backbone, timm_models
from difficulty_service.backbones.backbone import BackboneOptions, image_preprocessing
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.plan import Plan
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.features.store import open_store
from difficulty_service.images.modes import Mode
from difficulty_service.images.preparation import prepare
from difficulty_service.scoring.pipeline import execute

PHOTOGRAPHS = 64
BATCH = 8
TEXTS = 64
ORIENTATION = 0x0112

SMALL_PHOTOGRAPHS = "data/tiny_imagenet_val2000.parquet"
NEWSGROUPS = "data/newsgroups20_bydate.parquet"
MOBILENET = "weights/mobilenetv2_100.imagenet1k.safetensors"
EFFICIENTNET = "weights/tf_efficientnet_lite2.imagenet1k.fp16.safetensors"

KINDS = [("RGB", "JPEG"), ("L", "JPEG"), ("CMYK", "JPEG"), ("RGB", "WEBP"), ("RGBA", "PNG")]
KINDS += [("P", "PNG"), ("LA", "PNG"), ("RGBA", "WEBP"), ("P", "GIF"), ("RGB", "TIFF")]
MOBILENET_STATED: dict[str, dict[str, object]] = {
    "as timm says": {},
    "squashed": {"crop_mode": "squash"},
    "with a border": {"crop_mode": "border"},
    "squashed to 288 x 192": {"crop_mode": "squash", "input_size": (3, 288, 192)},
}
"""Descriptions by which one network with saved weights stands for others."""

MODES: tuple[Mode, ...] = ("fast", "exact")
PACKAGES = {"timm": "timm", "open_clip": "open_clip_torch"}

WITH_EXIF = ("JPEG", "WEBP", "TIFF")

Pipeline = Callable[[Image.Image], Tensor]


@dataclass(frozen=True)
class Case:
    """A network, and how its library makes features.

    Attributes:
        weights: File of its weights; None for those that the package has.
        transform: The library's own, from an RGB image to its input.
        network: The library's own, in eval mode, from input to features.
        stated: What replaces the same in timm's description of the pretraining.
        features: Layer of the features.
    """

    library: str
    what: str
    backbone: str
    weights: Path | None
    transform: Pipeline
    network: Callable[[Tensor], Tensor]
    stated: dict[str, Any] = field(default_factory=dict)
    features: str = "penultimate"

    @property
    def options(self) -> BackboneOptions:
        """Options with which this project loads the network."""
        return BackboneOptions(None if self.weights is None else str(self.weights), self.features)

    @contextmanager
    def described(self) -> Iterator[None]:
        """Changes what timm says of its pretrainings, as the case states it."""
        known = timm_models.find_config
        with patch.object(timm_models, "find_config", lambda name: known(name) | self.stated):
            yield


def write_photographs(folder: Path) -> list[Path]:
    """Parts of photographs, in an order that their names keep."""
    table = pq.read_table(shared_folder() / SMALL_PHOTOGRAPHS, columns=["image"])
    large = [Image.fromarray(load_sample_image(name)) for name in ("china.jpg", "flower.jpg")]
    generator = np.random.default_rng(0)
    paths = []
    for number in range(PHOTOGRAPHS):
        if number % 2:
            whole = large[number // 2 % 2]
        else:
            row = int(generator.integers(len(table)))
            whole = Image.open(io.BytesIO(table["image"][row].as_py())).convert("RGB")
        least = np.array(whole.size) // 4
        sides = generator.integers(least, np.array(whole.size) + 1) // 2 * 2 - 1
        left, top = generator.integers(0, np.array(whole.size) - sides + 1)
        part = whole.crop((left, top, left + sides[0], top + sides[1]))
        mode, kind = KINDS[number % len(KINDS)]
        path = folder / "all" / f"{number:02}.{kind.lower()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if mode in {"RGBA", "LA"}:
            part.putalpha(Image.linear_gradient("L").resize(part.size))
        exif = Image.Exif()
        if kind in WITH_EXIF:
            exif[ORIENTATION] = 1 + number % 8
        part.convert(mode).save(path, kind, **({"exif": exif} if kind in WITH_EXIF else {}))
        paths.append(path)
    return paths


def open_upright(path: Path) -> Image.Image:
    """An image as the examples of the libraries open it, upright."""
    with Image.open(path) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


def features_by_library(case: Case, paths: Sequence[Path]) -> Tensor:
    """Features of images by the library alone. Shape (images, dim)."""
    images = torch.stack([case.transform(open_upright(path)) for path in paths])
    with torch.inference_mode():
        return torch.cat([case.network(batch) for batch in images.split(BATCH)])


def features_by_extraction(case: Case, folder: Path, mode: Mode) -> Tensor:
    """Features of the images of a folder by this project. Shape (images, dim)."""
    with tempfile.TemporaryDirectory() as out, case.described():
        plan = Plan(
            str(folder),
            Path(out) / "features",
            case.backbone,
            network=case.options,
            options=ExtractOptions(preprocess=mode, stop_on_error=True),
        )
        execute(plan)
        return open_store(plan.out).read_shard(0).features.clone()


def largest_pixel_difference(case: Case, paths: Sequence[Path]) -> int:
    """Largest difference of a pixel between `fast` and `exact`, in levels of 255."""
    with case.described():
        how = image_preprocessing(load_backbone(case.backbone, case.options))
    largest = 0
    for path in paths:
        fast, exact = (
            prepare(partial(io.BytesIO, path.read_bytes()), how, mode).int() for mode in MODES
        )
        largest = max(largest, int((fast - exact).abs().max()))
    return largest


def cases(folder: Path) -> Iterator[Case]:
    """Networks of all families, one by one because some are large."""
    efficientnet = shared_folder() / EFFICIENTNET
    model = timm_network("tf_efficientnet_lite2", efficientnet)
    whole = create_transform(**resolve_data_config({"crop_pct": 1.0}, model=model))
    about = "EfficientNet-Lite2, the whole shorter side"
    yield Case("timm", about, "builtin-photos", None, whole, model)
    yield timm_case("tf_efficientnet_lite2.in1k", efficientnet, "EfficientNet-Lite2, as timm says")
    for about, stated in MOBILENET_STATED.items():
        weights = shared_folder() / MOBILENET
        yield timm_case("mobilenetv2_100.ra_in1k", weights, f"MobileNetV2, {about}", **stated)
    for architecture, tag in [("ViT-B-32", "openai"), ("PE-Core-T-16-384", "meta")]:
        yield open_clip_case(architecture, tag, folder)


def timm_network(model: str, weights: Path) -> nn.Module:
    """A network of timm with its own functions and saved weights, without its classifier."""
    tensors = {name: tensor.float() for name, tensor in load_file(weights).items()}
    classes = 1000 if "classifier.weight" in tensors else 0
    network: Any = timm.create_model(model, num_classes=classes).eval()
    network.load_state_dict(tensors)
    network.reset_classifier(0)
    return cast("nn.Module", network)


def timm_case(model: str, weights: Path, what: str, **stated: object) -> Case:
    """A network of timm as its documentation runs it, with another description where stated."""
    config = timm_models.find_config(model) | stated
    transform = create_transform(**resolve_data_config({}, pretrained_cfg=config))
    network = timm_network(model, weights)
    return Case("timm", what, f"timm:{model}", weights, transform, network, stated)


def open_clip_case(architecture: str, tag: str, folder: Path) -> Case:
    """A network of open_clip as its documentation runs it, with random weights."""
    torch.manual_seed(0)
    stated = open_clip.get_pretrained_cfg(architecture, tag)
    model, _, transform = open_clip.create_model_and_transforms(
        architecture,
        force_quick_gelu=bool(stated.get("quick_gelu")),
        image_mean=stated["mean"],
        image_std=stated["std"],
        image_interpolation=stated["interpolation"],
        image_resize_mode=stated["resize_mode"],
    )
    weights = folder / f"{architecture}.safetensors"
    save_file({f"visual.{name}": each for name, each in model.visual.state_dict().items()}, weights)
    name, what = f"open_clip:{architecture}/{tag}", f"{architecture}, random weights"
    encode = model.eval().encode_image
    return Case("open_clip", what, name, weights, transform, encode, features="projected")


def compare_texts(folder: Path) -> str:
    """The line of all-MiniLM-L6-v2 beside transformers, as the card of the model runs it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    table = pq.read_table(shared_folder() / NEWSGROUPS, columns=["text"]).slice(0, TEXTS)
    expected = []
    for text in table["text"].to_pylist():
        tokens = tokenizer(text, truncation=True, max_length=256, return_tensors="pt")
        with torch.inference_mode():
            state = model(**tokens).last_hidden_state.mean(1)
        expected.append(nn.functional.normalize(state)[0])
    with tempfile.TemporaryDirectory() as temporary:
        labelled = table.append_column("label", pa.array(["all"] * TEXTS))
        pq.write_table(labelled, Path(temporary) / "texts.parquet")
        plan = Plan(
            str(Path(temporary) / "texts.parquet"),
            Path(temporary) / "features",
            f"transformers:{folder}",
            DatasetOptions(text_column="text"),
        )
        execute(plan)
        found = open_store(plan.out).read_shard(0).features.clone()
    difference = relative_difference(found, torch.stack(expected))
    library = f"transformers {transformers.__version__}"
    return f"| {library} | all-MiniLM-L6-v2, {TEXTS} texts | {difference:.0g} | | |"


def relative_difference(found: Tensor, expected: Tensor) -> float:
    """Largest difference of a feature, as a share of the largest feature."""
    return float((found - expected).abs().max() / expected.abs().max())


def compare(case: Case, folder: Path, paths: Sequence[Path]) -> str:
    """The line of a network."""
    expected = features_by_library(case, paths)
    exact, fast = (features_by_extraction(case, folder, mode) for mode in ("exact", "fast"))
    columns = [
        f"{case.library} {importlib.metadata.version(PACKAGES[case.library])}",
        f"`{case.backbone}`: {case.what}",
        f"{relative_difference(exact, expected):.0g}",
        f"{float(torch.cosine_similarity(fast, expected).min()):.4f}",
        str(largest_pixel_difference(case, paths)),
    ]
    return f"| {' | '.join(columns)} |"


def main() -> None:
    """Prints the lines of the table."""
    parser = argparse.ArgumentParser(description="Encoders beside their libraries.")
    parser.add_argument("--minilm", type=Path, help="folder of all-MiniLM-L6-v2, for texts")
    arguments = parser.parse_args()
    needed = [SMALL_PHOTOGRAPHS, MOBILENET, EFFICIENTNET]
    if missing := [name for name in needed if not (shared_folder() / name).exists()]:
        print(skipped(missing[0]))
        return
    print(f"{machine()}, Pillow {PIL.__version__}\n")
    print("| library | network | exact | fast, least cosine | fast, levels |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "photographs"
        paths = write_photographs(folder)
        for case in cases(Path(temporary)):
            print(compare(case, folder, paths), flush=True)
    if arguments.minilm is not None:
        print(compare_texts(arguments.minilm))


if __name__ == "__main__":
    main()
