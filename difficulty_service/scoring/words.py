"""Images and names of classes in the space that a CLIP gives both."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.clip_space import leads_to_words, load_projection
from difficulty_service.backbones.clip_text import load_text_encoder
from difficulty_service.backbones.weights_files import GET_THEM
from difficulty_service.base.errors import BackboneError, MissingWeights, Setting
from difficulty_service.base.float32_products import full_float32
from difficulty_service.features.description import FeatureDescription
from difficulty_service.scores.score_columns import Remedy
from difficulty_service.settings.options import ScoringOptions

PROMPT = "a photo of a {}"
"""What is compared with an image, of the name of each class."""


@dataclass(frozen=True)
class Words:
    """Names in a CLIP's space; made by `load_words`.

    Attributes:
        phrases: Unit vector of each name. Shape (names, dim).
        projection: Map of features to vectors in the same space.
    """

    phrases: Tensor
    projection: nn.Module

    def cosines(self, features: Tensor) -> Tensor:
        """How well each name fits each sample, from -1 to 1. Shape (samples, names), float32.

        Args:
            features: As the CLIP made them, float32 on the CPU. Shape (samples, dim).
        """
        with torch.inference_mode(), full_float32():
            return F.normalize(self.projection(features), dim=1) @ self.phrases.T


def load_words(known: FeatureDescription, names: Sequence[str], weights: str | None) -> Words:
    """The names in the space of the CLIP that made some features.

    Args:
        weights: File of the CLIP; None for that of the hub.

    Raises:
        BackboneError: The backbone is no CLIP, or the weights are others.
        MissingWeights: The weights are not there.
    """
    backbone = str(known.backbone)
    network = BackboneOptions(weights, str(known.features), torch.device("cpu"))
    encoder = load_text_encoder(backbone, network)
    if encoder.weights_sha256 != known.weights_sha256:
        raise BackboneError(
            f"the weights of {backbone} are not those that made the features",
            "extract the features again, or give the file of those weights as ",
            Setting("weights"),
            parameter="weights",
        )
    phrases = encoder.encode([PROMPT.format(name) for name in names])
    return Words(phrases, load_projection(backbone, network))


def require_words(backbone: str | None, features: str | None, options: ScoringOptions) -> None:
    """Refuses features that have no place among words, by which names could be compared."""
    if not leads_to_words(backbone, features):
        raise BackboneError(
            f"{backbone} cannot compare images with names of classes",
            "use a CLIP, such as ",
            Setting("backbone", "clip-vit-b16"),
            ", or ",
            *_instead_of_words(options),
            parameter="classes" if options.class_list else "scorers",
        )


@contextmanager
def needing_words(options: ScoringOptions) -> Iterator[None]:
    """Says what to do where the weights of a network that knows words are missing.

    A network without words, which else would be suggested, is no help there.
    """
    try:
        yield
    except MissingWeights as error:
        instead = _instead_of_words(options)
        raise MissingWeights(error.problem, *GET_THEM, *instead, parameter="weights") from error


def _instead_of_words(options: ScoringOptions) -> Remedy:
    if options.class_list:
        return ("have classes found by ", Setting("clusters", "auto"))
    return (f"leave out the scorer {options.scorer_of_words}",)
