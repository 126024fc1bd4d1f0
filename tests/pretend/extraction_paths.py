"""Extraction and the encoder of the server, on a pretended GPU and beside it on the CPU."""

import io
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.datasets.memory import ImagesInMemory, open_memory
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.extraction import decoding_processes, schedules
from difficulty_service.extraction.engines.shard_extractor import ShardExtractor
from difficulty_service.extraction.shards import extract_shard
from difficulty_service.extraction.task import ExtractionTask, ExtractOptions
from difficulty_service.scoring.pipeline import ScoreRequest, make_plan, score_dataset
from difficulty_service.settings.machine import NetworkOptions, RunOptions
from difficulty_service.settings.run import Run
from tests import small_clip
from tests.pretend.counting import Rounds, counted

BATCH_SIZE, NUM_BATCHES = 4, 6
NUM_ROUNDS = 3
"""Batches that are counted: the last ones come when no other is encoded."""

WORDS = ("the", "cat", "sat", "dog", "ran", "dogs")


def extract(
    backbone: str, side: int | None, image_size: int | None = None, weights: str | None = None
) -> dict[str, Any]:
    """What a batch waits for, and the largest difference to the features of the CPU.

    Args:
        side: Side of the images, in pixels; None for texts.
        image_size: Side of the network's input; None for its own.
    """
    dataset = _texts() if side is None else _images(side)
    options = ExtractOptions(batch_size=BATCH_SIZE, workers=1)

    def features(device: str, rounds: Rounds) -> Tensor:
        torch.manual_seed(0)
        network = BackboneOptions(
            weights=weights,
            device=torch.device(device),
            image_size=image_size,
            random=backbone.startswith("timm:"),
        )
        task = ExtractionTask(dataset, backbone, network, options)
        return extract_shard(task, load_backbone(backbone, network), 0, rounds.end).table.features

    rounds = Rounds()
    there, here = features("cuda", rounds), features("cpu", Rounds())
    return {
        **rounds.each(NUM_ROUNDS),
        "apart": _apart(there, here),
    }


def extract_by_processes() -> dict[str, Any]:
    """As `extract`, by the bundled network and images that processes decode."""
    workers, images = decoding_processes.LEAST_WORKERS, decoding_processes.LEAST_IMAGES
    decoding_processes.LEAST_WORKERS = decoding_processes.LEAST_IMAGES = 1
    by_processes: list[bool] = []
    apart = schedules.prepared_apart

    def noted(*arguments: Any, **options: Any) -> Any:
        by_processes.append(True)
        return apart(*arguments, **options)

    schedules.prepared_apart = noted
    try:
        return extract("builtin", 32) | {"by processes": by_processes}
    finally:
        schedules.prepared_apart = apart
        decoding_processes.LEAST_WORKERS, decoding_processes.LEAST_IMAGES = workers, images


def extract_as_actor(announced: bool) -> dict[str, Any]:  # noqa: FBT001 - called with values of JSON
    """How often an actor of two shards starts processes, and the difference to the CPU.

    It has read the second shard before it has returned the first one where that is announced.
    """
    workers, images = decoding_processes.LEAST_WORKERS, decoding_processes.LEAST_IMAGES
    decoding_processes.LEAST_WORKERS, decoding_processes.LEAST_IMAGES = 1, BATCH_SIZE * NUM_BATCHES
    starts: list[int] = []
    processes = decoding_processes.Processes

    def noted(*arguments: Any, **options: Any) -> Any:
        starts.append(len(starts))
        return processes(*arguments, **options)

    decoding_processes.Processes = noted  # type: ignore[assignment, misc]
    dataset = replace(_images(32), shard_size=BATCH_SIZE * NUM_BATCHES // 2)
    options = ExtractOptions(batch_size=BATCH_SIZE, workers=1)
    counter = SimpleNamespace(report=SimpleNamespace(remote=lambda *_: None))

    def features(device: str) -> Tensor:
        network = BackboneOptions(device=torch.device(device))
        actor = ShardExtractor()
        actor.load(ExtractionTask(dataset, "builtin", network, options))
        for shard in (0, 1) if announced else ():
            actor.announce(shard)
        return torch.cat([actor.extract(shard, counter).table.features for shard in (0, 1)])

    try:
        return {"apart": _apart(features("cuda"), features("cpu")), "starts": len(starts)}
    finally:
        decoding_processes.Processes = processes  # type: ignore[misc]
        decoding_processes.LEAST_WORKERS, decoding_processes.LEAST_IMAGES = workers, images


def extract_by_clip(folder: str) -> dict[str, Any]:
    """As `extract`, by a small CLIP that is written to a folder."""
    small_clip.register(Path(folder))
    weights = small_clip.write_weights(Path(folder) / "weights.safetensors")
    return extract(small_clip.BACKBONE, 32, weights=str(weights))


def encode_online() -> dict[str, Any]:
    """What a batch of the server's encoder waits for, and the difference to the CPU's features."""
    rounds = Rounds()
    there, here = encode_by_server("cuda", rounds), encode_by_server("cpu")
    return {**rounds.each(NUM_ROUNDS), "apart": _apart(there, here)}


def encode_by_server(device: str, rounds: Rounds | None = None) -> Tensor:
    """The features that the server's encoder gives some images on a device."""
    from api.online.encoder import BackbonePool
    from difficulty_service.features.description import FeatureDescription

    backbone = load_backbone("builtin", BackboneOptions())
    description = FeatureDescription.of(
        {
            **BackboneOptions().describe(),
            "class_names": ["a", "b"],
            "num_shards": 1,
            "augment_runs": 0,
            "backbone": "builtin",
            "weights_sha256": backbone.weights_sha256,
            "mode": "fast",
            "preprocessing": backbone.preprocessing.describe(),
        }
    )
    openers = list(_images(32).open_images(range(BATCH_SIZE)))
    networks = BackbonePool(RunOptions(device=device, precision="fp32"))
    for _ in range(NUM_ROUNDS + 1):
        rows = networks.encode(openers, description)
        if rounds is not None:
            rounds.end()
    networks.close()
    return torch.stack([row for row in rows if isinstance(row, Tensor)])


def score(device: str, folder: str | None = None) -> None:
    """Scores images as the command does, with what it has extracted in a folder before."""
    with nullcontext(folder) if folder else tempfile.TemporaryDirectory() as place:
        machine = RunOptions(device=device, precision="fp32", workers=1)
        network = NetworkOptions(backbone="builtin")
        run = Run(source=place, features=Path(place) / "f", machine=machine, network=network)
        score_dataset(make_plan(run), ScoreRequest(Path(place) / "s.parquet"), dataset=_images(32))


def score_again(folder: str) -> dict[str, Any]:
    """What the command waits for once the features are extracted: statistics and scores."""
    score("cuda", folder)
    return counted(lambda: score("cuda", folder))


def _apart(there: Tensor, here: Tensor) -> float:
    """The largest difference, as a share of the largest value."""
    return float((there - here).abs().max() / here.abs().max())


def _images(side: int) -> Dataset:
    """Images of noise of two classes."""
    pixels = np.random.default_rng(0).integers(0, 256, (BATCH_SIZE * NUM_BATCHES, side, side, 3))
    encoded = []
    for each in pixels.astype(np.uint8):
        file = io.BytesIO()
        Image.fromarray(each).save(file, "PNG")
        encoded.append(file.getvalue())
    return dataset_of(encoded, DatasetOptions())


def _texts() -> Dataset:
    chosen = np.random.default_rng(0).choice(WORDS, (BATCH_SIZE * NUM_BATCHES, 5))
    return dataset_of([" ".join(words) for words in chosen], DatasetOptions(text_column="text"))


def dataset_of(samples: list[Any], options: DatasetOptions) -> Dataset:
    """Samples of two classes in turn, with their number as id."""
    labels = np.arange(len(samples), dtype=np.int32) % 2
    ids = [f"{row:03d}" for row in range(len(samples))]
    held = ImagesInMemory(samples.__getitem__, ids, labels, ("a", "b"))
    return open_memory(held, "in memory", options)
