"""`backbone`: a pretrained network that turns images into features."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from difficulty_service.backbones import load_backbone, usual_precision, warn_of_licence
from difficulty_service.backbones.backbone import Backbone, BackboneOptions
from difficulty_service.datasets.memory import ImagesInMemory, open_memory
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.shards import extract_shard
from difficulty_service.extraction.task import ExtractionTask, ExtractOptions
from difficulty_service.interface.keywords import EncoderOptions
from difficulty_service.interface.options import require_names, run_of
from difficulty_service.interface.scores import warn
from difficulty_service.scoring.pipeline import make_plan


class Encoder:
    """A frozen pretrained network with its preprocessing; made by `backbone`.

    Attributes:
        name: Name of the backbone.
        feature_dim: Length of a feature vector.
    """

    def __init__(
        self, loaded: Backbone, network: BackboneOptions, extraction: ExtractOptions
    ) -> None:
        self.name: str = loaded.name
        self.feature_dim: int = loaded.feature_dim
        self._loaded, self._network, self._extraction = loaded, network, extraction

    def encode(self, images: Iterable[object]) -> NDArray[np.float32]:
        """Features of images, as the commands compute them.

        Args:
            images: PIL images, uint8 arrays (height, width, channels) or tensors (channels,
                height, width), encoded bytes, or paths; a single array or tensor of images is
                read along its first dimension.

        Returns:
            Shape (images, feature_dim), float32.

        Raises:
            ImageError: An image cannot be read; the message names its position.
        """
        held = list(images)
        if not held:
            return np.empty((0, self.feature_dim), np.float32)
        labels = np.zeros(len(held), np.int32)
        names = [f"image {position}" for position in range(len(held))]
        in_memory = ImagesInMemory(held.__getitem__, names, labels, ("",))
        options = DatasetOptions(shard_size=len(held))
        dataset = open_memory(in_memory, f"{len(held):,} images", options)
        task = ExtractionTask(dataset, self.name, self._network, self._extraction)
        features: NDArray[np.float32] = extract_shard(task, self._loaded, 0).table.features.numpy()
        return features

    def __repr__(self) -> str:
        return f"<Encoder {self.name}, {self.feature_dim} dimensions, {self._network.device}>"


def backbone(name: str = "builtin", **options: Unpack[EncoderOptions]) -> Encoder:
    """Loads a pretrained network.

    Args:
        name: Name of the backbone; `difficulty backbones` lists them.
        **options: See `EncoderOptions`.

    Raises:
        BackboneError: The name is unknown, or the device or the weights are missing.
        ConfigError: Another option is unknown or out of bounds.
    """
    require_names(options, EncoderOptions, "backbone")
    plan = make_plan(run_of({**options, "on_error": "stop"}))
    network = plan.network
    if plan.open_precision:
        usual = usual_precision(name, network.precision, network.device)
        network = replace(network, precision=usual)
    encoder = Encoder(load_backbone(name, network), network, plan.options)
    warn(warn_of_licence(name))
    return encoder
