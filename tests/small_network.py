"""Networks of few features, for tests to which it does not matter what encodes an image.

The covariances of 896 features take most of the time of a job on a few dozen images. No list of
networks has these names, which processes know that were told so, and those forked from them.
"""

import os
import sys
import time
from multiprocessing import parent_process

import torch
from torch import Tensor, nn

import difficulty_service.backbones
from difficulty_service.backbones import Loader, find_loader
from difficulty_service.backbones.backbone import Backbone, BackboneOptions, Preprocessing
from difficulty_service.backbones.frozen_network import freeze
from difficulty_service.base import devices

SMALL = "small"
"""Name of a network of 48 features, the mean colours of a grid of four by four."""

SLOW = "small-slow"
"""Name of the same network, which takes `SECONDS` for each image without using a processor."""

FRAGILE = "small-fragile"
"""Name of the same network, on a GPU that fails for good where the environment has `GPU_FAILS`."""

SECONDS = 0.01
GPU_FAILURE = "CUDA error: device-side assert triggered"
PREPROCESSING = Preprocessing(32, 32, "bicubic", mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))


class Waiting(nn.Module):
    """Returns what it is given, after some time."""

    def forward(self, images: Tensor) -> Tensor:
        time.sleep(SECONDS * len(images))
        return images


class Fragile(nn.Module):
    """Returns what it is given, unless the GPU fails: it then refuses all work of this process.

    It does not fail for the process that runs the tests.
    """

    def forward(self, images: Tensor) -> Tensor:
        if "GPU_FAILS" in os.environ and parent_process() is not None:
            torch.cuda.is_initialized = lambda: True
            devices.one_and_one = _refuse
            _refuse("cuda")
        return images


def _refuse(_device: str) -> float:
    raise torch.AcceleratorError(f"{GPU_FAILURE}\nSearch for `cudaErrorAssert' in the manual")


def make_known() -> None:
    """Has this process load the networks by their names, also for jobs that are submitted to it."""
    from api.jobs import submission  # beside some GPUs, what the service needs is not installed

    # One that was imported before has the function itself.
    trial = sys.modules.get("difficulty_service.analyses.backbones.backbone_trial")
    for module in filter(None, (difficulty_service.backbones, submission, trial)):
        module.find_loader = _find_loader  # type: ignore[attr-defined]


def _find_loader(name: str) -> Loader:
    return _load if name in {SMALL, SLOW, FRAGILE} else find_loader(name)


def _load(name: str, options: BackboneOptions) -> Backbone:
    layers = [nn.AvgPool2d(8), nn.Flatten()]
    first = {SLOW: [Waiting()], FRAGILE: [Fragile()]}.get(name, [])
    network = nn.Sequential(*first, *layers)
    return freeze(name, network, PREPROCESSING, None, options)
