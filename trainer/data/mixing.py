"""MixUp and CutMix of a batch of images, by torchvision."""

import torch
from torch import Tensor

from trainer.config import Mixing


def mix_images(images: Tensor, mixing: Mixing, alpha: float) -> tuple[Tensor, Tensor]:
    """Mixes each image with its neighbour in the batch, all by the same share.

    Random numbers are those of torch's global generator.

    Args:
        images: Shape (samples, 3, height, width).
        mixing: "mixup", "cutmix", or "either" for one of both at random.
        alpha: Both parameters of the beta distribution of the share.

    Returns:
        Mixed images, float32 where they were added up; and how much of each image of the batch,
        the column, is in each mixed one, the row: float32, of shape (samples, samples). A product
        with it mixes whatever else belongs to the samples.
    """
    from torchvision.transforms import v2  # takes long to import

    mixup, cutmix = v2.MixUp(alpha=alpha), v2.CutMix(alpha=alpha)
    choices = {"mixup": [mixup], "cutmix": [cutmix], "either": [mixup, cutmix]}[mixing]
    chosen = choices[int(torch.randint(len(choices), ())) if len(choices) > 1 else 0]
    inputs = images.float() if chosen is mixup else images
    # In place of labels torchvision mixes one-hot rows, which say how it mixes.
    identity = torch.eye(len(images), device=images.device)
    mixed, shares = chosen(inputs, identity)
    return mixed, shares
