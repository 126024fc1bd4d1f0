"""Logits of a whole split."""

from collections.abc import Iterator, Sequence

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from trainer.training.accelerator import predict, share_of_process, to_memory_format


class Numbers:
    """Each sample's inputs are its position, twice."""

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:
        assert draws is None
        for batch in plan:
            yield batch.float().unsqueeze(1).repeat(1, 2)


@pytest.mark.parametrize("batch_size", [1, 4, 11, 100])
def test_logits_are_in_the_order_of_the_samples(accelerator: Accelerator, batch_size: int) -> None:
    logits = predict(nn.Identity(), Numbers(), 11, batch_size, accelerator)

    assert logits[:, 0].tolist() == list(range(11))


@pytest.mark.parametrize("is_training", [True, False])
def test_prediction_uses_evaluation_mode_and_restores_the_mode(
    accelerator: Accelerator,
    is_training: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    model = nn.Dropout(0.9).train(is_training)

    logits = predict(model, Numbers(), 5, 2, accelerator)

    assert logits[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert model.training == is_training


def test_logits_need_no_gradient(accelerator: Accelerator) -> None:
    logits = predict(nn.Linear(2, 3), Numbers(), 5, 2, accelerator)

    assert not logits.requires_grad
    assert logits.dtype == torch.float32


def test_one_process_has_all_samples(accelerator: Accelerator) -> None:
    assert share_of_process(torch.arange(7), accelerator).tolist() == list(range(7))


def test_only_images_are_converted_to_channels_last() -> None:
    images, features = torch.rand(2, 3, 4, 4), torch.rand(2, 3)

    changed = to_memory_format(images, channels_last=True)

    assert changed.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(changed, images)
    assert to_memory_format(images, channels_last=False) is images
    assert to_memory_format(features, channels_last=True) is features
