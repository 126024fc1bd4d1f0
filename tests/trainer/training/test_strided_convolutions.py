"""Gradients of convolutions that PyTorch's library for CPUs computes wrongly, or did."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from trainer.config import Recipe
from trainer.data import open_splits
from trainer.recipes.file import recipe_from_dict
from trainer.training.loop import TrainingCallbacks, train
from trainer.training.state import make_train_state
from trainer.training.step import GradientStep, TrainingData
from trainer.training.strided_convolutions import RightGradients

CPU = torch.device("cpu")
UNHEARD = TrainingCallbacks(lambda _: None, lambda _: None, lambda: None, lambda: False)
Size = int | tuple[int, ...]
CHANNELS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 17, 33)


def results_of(
    convolution: nn.Module, images: Tensor, **kind: torch.dtype | torch.memory_format
) -> tuple[Tensor, Tensor, Tensor]:
    """Output of a convolution, and the gradients of its weights and of its images."""
    convolution = convolution.to(**kind)
    convolution.zero_grad()
    inputs = images.to(**kind).detach().requires_grad_()
    with RightGradients():
        outputs = convolution(inputs)
    outputs.square().sum().backward()
    return outputs.detach(), convolution.weight.grad.clone(), inputs.grad


def assert_right(convolution: nn.Module, images: Tensor) -> None:
    """Holds results with the channels last against those of plain float64."""
    expected = results_of(convolution, images, dtype=torch.float64)
    last = {"dtype": torch.float32, "memory_format": torch.channels_last}
    for value, right in zip(results_of(convolution, images, **last), expected, strict=True):
        scale = right.abs().max().item()
        torch.testing.assert_close(value.double(), right, rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("size", [7, 16, 32])
@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("channels", CHANNELS)
def test_pointwise_convolutions_with_a_stride_have_right_gradients(
    channels: int, stride: int, size: int
) -> None:
    for samples in (1, 8):
        torch.manual_seed(0)
        convolution = nn.Conv2d(channels, 8, 1, stride, bias=False)

        assert_right(convolution, torch.randn(samples, channels, size, size))


@pytest.mark.parametrize("size", [7, 8, 15])
@pytest.mark.parametrize(
    ("kernel", "stride"), [(1, 1), (2, 2), (3, 1), (3, 2), (5, 2), (7, 2), ((1, 3), (2, 1))]
)
@pytest.mark.parametrize(
    ("inputs", "outputs", "groups"),
    [(1, 8, 1), (3, 32, 1), (4, 8, 1), (5, 6, 1), (4, 4, 4), (12, 12, 12), (12, 24, 4), (6, 12, 3)],
)
def test_other_convolutions_have_right_gradients(
    inputs: int, outputs: int, groups: int, kernel: Size, stride: Size, size: int
) -> None:
    for samples in (1, 3):
        torch.manual_seed(0)
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, groups=groups, bias=False)

        assert_right(convolution, torch.randn(samples, inputs, size, size))


@pytest.mark.parametrize("padding", [0, 1, (2, 1), "valid"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_taking_the_pixels_first_changes_no_result(dimensions: int, padding: Size | str) -> None:
    if isinstance(padding, tuple) and dimensions != len(padding):
        padding = padding[:1]
    torch.manual_seed(0)
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
    convolution = kind(4, 6, 1, stride=2, padding=padding, groups=2)
    images = torch.randn(3, 4, *(9, 8, 7)[:dimensions])
    plain = convolution(images)

    with RightGradients():
        ours, unbatched = convolution(images), convolution(images[0])

    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(unbatched, plain[0])


def test_arguments_by_name_are_understood() -> None:
    images, weight = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 1, 1)

    with RightGradients():
        ours = F.conv2d(input=images, weight=weight, stride=(2, 2))

    torch.testing.assert_close(ours, F.conv2d(images[:, :, ::2, ::2], weight))


class FewChannels(nn.Module):
    """A network from outside the package that calls a convolution as a function."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.weight = nn.Parameter(torch.randn(12, 6, 1, 1) / 3)
        self.classifier = nn.Linear(12, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        hidden = F.conv2d(self.stem(images).relu(), self.weight, stride=2)
        return self.classifier(hidden.relu().mean((2, 3)))


def recipe_of(images: str, model: dict[str, Any], *, channels_last: bool) -> Recipe:
    return recipe_from_dict(
        {
            "name": "layout",
            "data": {"train": images, "image_size": 16},
            "model": model,
            "optimiser": {"learning_rate": 0.002},
            "training": {"epochs": 1, "batch_size": 16, "channels_last": channels_last},
        },
        "the recipe of the test",
    )


def test_a_training_step_takes_the_pixels_first_on_every_processor(
    images: str, accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    model = {"name": "test_strided_convolutions:FewChannels"}
    recipe = recipe_of(images, model, channels_last=True)
    splits = open_splits(recipe.data, 0, CPU)
    state = make_train_state(recipe, 0, splits, accelerator)
    step = GradientStep(state, TrainingData(splits.train, None, None), recipe, accelerator)
    batch = torch.arange(16)
    (inputs,) = splits.train.inputs.batches([batch], None)

    with torch.profiler.profile(acc_events=True) as profile:
        step.take(batch, batch, inputs)

    called = {event.key for event in profile.key_averages()}
    assert {"aten::conv2d", "aten::avg_pool2d"} <= called


@pytest.mark.parametrize(
    "model",
    [
        {"name": "small_resnet", "widths": [4, 6, 7], "blocks": [1, 1, 1]},
        {"name": "wide_resnet", "depth": 8, "widen": 1},
        {"name": "timm:test_resnet"},
        {"name": "test_strided_convolutions:FewChannels"},
    ],
    ids=["small_resnet", "wide_resnet", "timm", "own"],
)
def test_a_network_learns_the_same_with_the_channels_last(
    images: str,
    accelerator: Accelerator,
    monkeypatch: pytest.MonkeyPatch,
    model: dict[str, Any],
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    learned = []
    for channels_last in (True, False):
        recipe = recipe_of(images, model, channels_last=channels_last)
        splits = open_splits(recipe.data, 0, CPU)
        state = make_train_state(recipe, 0, splits, accelerator)
        data = TrainingData(splits.train, None, splits.validation)

        train(state, data, recipe, 0, accelerator, UNHEARD)

        learned.append(dict(state.model.named_parameters()))

    for name, value in learned[0].items():
        torch.testing.assert_close(value, learned[1][name], rtol=1e-4, atol=1e-5)
