"""An encoder of texts with the interface of a backbone."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from difficulty_service.backbones.backbone import BackboneOptions, TextPreprocessing, no_projection
from difficulty_service.base.errors import BackboneError, Setting


@dataclass(eq=False)  # Not frozen: the attributes of the Backbone protocol are settable.
class TextEncoder:
    """A backbone whose samples are texts.

    Attributes:
        weights_sha256: Hex SHA-256 of the weights, or of the settings of an encoder without any.
        network: Function from prepared texts, shape (samples, length), to their features, shape
            (samples, feature_dim).
    """

    name: str
    feature_dim: int
    preprocessing: TextPreprocessing
    weights_sha256: str
    network: Callable[[Tensor], Tensor]

    def encode(self, texts: Tensor) -> Tensor:
        """Features of prepared texts.

        Args:
            texts: What the preprocessing made of each, on the backbone's device. Shape
                (samples, length).

        Returns:
            Shape (samples, feature_dim), float32.
        """
        with torch.inference_mode():
            return self.network(texts).to(torch.float32)


def refuse_image_options(name: str, options: BackboneOptions) -> None:
    """Refuses options that no encoder of texts has a use for.

    Raises:
        BackboneError: There is a weights file, a kind of features, or mirror images.
    """
    if options.weights is not None:
        raise BackboneError(
            f"{name} has no weights file to choose",
            "leave out ",
            Setting("weights"),
            parameter="weights",
        )
    if options.features != "penultimate":
        raise no_projection(name)
    for option in options.given:
        raise BackboneError(
            f"{option} does not apply to texts", "leave out ", Setting(option), parameter=option
        )
