"""Training on a GPU learns what it learns on the CPU, and a step waits for nothing but its loss."""

from typing import Any

import pytest

from tests.pretend.budget import BUDGET, require_within
from tests.pretend.conftest import Call
from trainer.losses import LOSSES, LOSSES_WITH_MEMORY

TRAIN = "tests.pretend.training_paths:train"
Settings = dict[str, Any]

OPTIONS: dict[str, tuple[str, Settings]] = {
    "features": ("features", {}),
    "images": ("images", {}),
    "images, mixup": ("images", {"training.mixing": "mixup", "data.augmentation": "flip"}),
    "images, random_resized_crop": ("images", {"data.augmentation": "random_resized_crop"}),
    "adamw": ("features", {"optimiser.name": "adamw", "optimiser.momentum": None}),
    "adagrad": ("features", {"optimiser.name": "adagrad", "optimiser.momentum": None}),
    "gradient_clip": ("features", {"optimiser.gradient_clip": 1.0}),
    "gradient_accumulation": ("features", {"training.gradient_accumulation": 2}),
    "ema_decay": ("features", {"training.ema_decay": 0.9}),
}

CONSTANTS: dict[str, Settings] = {
    "scheduled_focal": {"loss.fractional": True, "loss.boundaries": [0.3, 0.6]}
}


def test_every_path_of_training_has_a_budget() -> None:
    assert set(BUDGET["training"]) == set(OPTIONS)
    assert set(BUDGET["losses"]) == {*LOSSES, *LOSSES_WITH_MEMORY}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.slow if kind == "images" else ())
        for path, (kind, _) in OPTIONS.items()
    ],
)
def test_a_step_keeps_to_its_budget_and_learns_what_the_cpu_learns(
    path: str, on_gpus: Call
) -> None:
    counted = on_gpus(TRAIN, *OPTIONS[path])

    there, here = counted["losses"]
    assert there == pytest.approx(here, rel=1e-5)
    require_within("training", path, counted)


@pytest.mark.slow
@pytest.mark.parametrize("loss", sorted({*LOSSES, *LOSSES_WITH_MEMORY}))
def test_a_step_of_a_loss_keeps_to_its_budget_and_learns_what_the_cpu_learns(
    loss: str, on_gpus: Call
) -> None:
    counted = on_gpus(TRAIN, "features", {"loss.name": loss, **CONSTANTS.get(loss, {})})

    there, here = counted["losses"]
    assert there == pytest.approx(here, rel=1e-5)
    require_within("losses", loss, counted)


def test_a_launched_process_trains_only_where_all_gpus_are_there_that_are_named(
    on_gpus: Call,
) -> None:
    both, one_more = (
        on_gpus("tests.pretend.training_paths:launched_with", names) for names in ("0,1", "0,1,7")
    )

    assert both == "cuda"
    assert one_more.startswith("CUDA_VISIBLE_DEVICES names 3 GPUs (0, 1, 7), and CUDA finds 2")
