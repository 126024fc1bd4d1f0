"""An encoder of texts with the interface of a backbone."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from difficulty_service.backbones.backbone import BackboneOptions, TextPreprocessing, no_projection
from difficulty_service.base.errors import BackboneError
from difficulty_service.base.float32_products import full_float32


@dataclass(eq=False)  # Not frozen: the attributes of the Backbone protocol are settable.
class TextEncoder:
    """A backbone whose samples are texts.

    Attributes:
        weights_sha256: Hex SHA-256 of the weights, or of the settings of an encoder without any.
        network: From prepared texts (samples, length), on the CPU, where their lengths are known
            without waiting for a GPU, to features (samples, feature_dim).
    """

    name: str
    feature_dim: int
    preprocessing: TextPreprocessing
    weights_sha256: str
    network: Callable[[Tensor], Tensor]
    one_core: bool = False

    def encode(self, texts: Tensor) -> Tensor:
        """Features (samples, feature_dim), float32, of texts (samples, length) on the CPU."""
        with torch.inference_mode(), full_float32():
            return self.network(texts).to(torch.float32)


def refuse_image_options(name: str, options: BackboneOptions) -> None:
    """Refuses a weights file, kinds of features and mirror images: no use to encoders of texts."""
    if options.weights is not None:
        raise BackboneError.leave_out(f"{name} has no weights file to choose", "weights")
    if options.features != "penultimate":
        raise no_projection(name)
    for option in options.given:
        raise BackboneError.leave_out(f"{option} does not apply to texts", option)
