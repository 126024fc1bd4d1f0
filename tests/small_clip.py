"""A CLIP of random weights, so small that open_clip has to be told about it."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import open_clip
import torch
from huggingface_hub import constants
from open_clip import factory
from safetensors.torch import save_file

from api.online import process
from api.settings import Settings

NAME = "two-layers"
BACKBONE = f"open_clip:{NAME}/random"
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 384, "heads": 4, "layers": 1}
VISION = {"image_size": 32, "layers": 1, "width": 64, "head_width": 32, "patch_size": 8}
PRETRAINING = {
    "random": {
        "hf_hub": "nobody/nothing/",
        "mean": (0.5, 0.5, 0.5),
        "std": (0.3, 0.3, 0.3),
        "interpolation": "bicubic",
    }
}


def register(folder: Path, vision: Mapping[str, Any] = VISION) -> Path:
    """Has open_clip know the network, by a file in a folder; gives the file."""
    config = {"embed_dim": 24, "quick_gelu": True, "vision_cfg": vision, "text_cfg": TEXT}
    path = folder / f"{NAME}.json"
    path.write_text(json.dumps(config))
    open_clip.add_model_config(path)
    open_clip.pretrained._PRETRAINED[NAME] = PRETRAINING
    return path


@contextmanager
def known_to_open_clip(folder: Path, vision: Mapping[str, Any] = VISION) -> Iterator[None]:
    """Has open_clip know the network within the context, by a file in a folder."""
    path = register(folder, vision)
    try:
        yield
    finally:
        del open_clip.pretrained._PRETRAINED[NAME]
        factory._MODEL_CONFIG_PATHS.remove(path)
        factory._MODEL_CONFIGS.pop(NAME)


def write_weights(path: Path, seed: int = 0) -> Path:
    """Writes random weights of the network that open_clip knows; gives the path."""
    torch.manual_seed(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(open_clip.create_model(NAME).state_dict(), path)
    return path


def hub_file(hub: Path) -> Path:
    """Where the weights are in a cache folder of the hub."""
    repository = hub / "models--nobody--nothing"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    return repository / "snapshots" / ("0" * 40) / "open_clip_model.safetensors"


def make_scorer(folder: Path, settings: Settings) -> Callable[..., object]:
    """What the process that scores samples begins with, where the network is known to it, too."""
    register(folder)
    constants.HF_HUB_CACHE = str(folder / "hub")
    return process._make_scorer(settings)
