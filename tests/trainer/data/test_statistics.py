"""Mean and standard deviation of training inputs."""

import numpy as np
import torch

from trainer.data.splits import mean_and_std


def test_statistics_of_images_are_per_channel_over_the_chosen_images() -> None:
    pixels = torch.randint(0, 256, (5000, 3, 4, 6), dtype=torch.uint8)
    chosen = torch.randperm(5000)[:4500]

    mean, std = mean_and_std(pixels, chosen)

    values = pixels[chosen].numpy().astype(np.float64)
    np.testing.assert_allclose(mean, values.mean(axis=(0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(std, values.std(axis=(0, 2, 3)), rtol=1e-6)


def test_statistics_of_features_keep_their_digits_far_from_zero() -> None:
    features = 1e4 + torch.randn(3000, 5, generator=torch.Generator().manual_seed(0))

    mean, std = mean_and_std(features, torch.arange(3000))

    values = features.numpy().astype(np.float64)
    np.testing.assert_allclose(mean, values.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(std, values.std(axis=0), rtol=1e-6)


def test_a_constant_dimension_has_a_standard_deviation_of_one() -> None:
    features = torch.tensor([[0.1, 1.0], [0.1, 3.0]])

    mean, std = mean_and_std(features, torch.arange(2))

    torch.testing.assert_close(mean, torch.tensor([0.1, 2.0]))
    torch.testing.assert_close(std, torch.tensor([1.0, 1.0]))
