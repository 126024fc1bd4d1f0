"""The precision of a network whose user asked for none: measured on CPUs with bfloat16.

bfloat16 is several times as fast there with some networks and changes the ranks of the scores with
others, so some images of the dataset are encoded in both precisions before the choice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from difficulty_service.backbones import Loader, load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.extraction.precision_pilot import compare_precisions
from difficulty_service.extraction.task import ExtractionTask, ExtractOptions
from difficulty_service.feature_description import LEAST_AGREEMENT, FeatureKind, PrecisionPilot
from difficulty_service.feature_store.description import is_store, read_description

LEAST_SPEEDUP = 1.2
"""How many times as fast bfloat16 must be: less does not pay for another rounding."""

LEAST_IMAGES = 2048
"""Number of images from which on the comparison takes less time than bfloat16 can save."""

NATIVE_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")
"""Instructions that multiply in bfloat16, as torch names them: two of x86 and that of Arm."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class SettledPrecision:
    """The precision that an extraction computes in.

    Attributes:
        network: Options of the backbone, with that precision.
        options: Options of the extraction, with what the precision was chosen by.
        reason: The precision and why it is that one, for the user; None for that of the device.
    """

    network: BackboneOptions
    options: ExtractOptions
    reason: str | None


def computes_in_bfloat16() -> bool:
    """Whether the processor of this machine has instructions for bfloat16."""
    capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in NATIVE_BFLOAT16)


def settle_precision(
    task: ExtractionTask,
    folder: Path | None,
    fitted_on: FeatureKind | None = None,
    *,
    alone: bool = True,
    load: Loader = load_backbone,
) -> SettledPrecision:
    """The precision of an extraction, where its options leave it open; otherwise the given one.

    It is that of the features that an earlier run left, else that of the Gaussians that will score
    the features, else on a CPU with bfloat16 what a comparison on some images says, else that of
    the network's options.

    Args:
        task: The dataset, the backbone and its options.
        folder: Folder of the features where those of an earlier run are kept; None to ignore them.
        fitted_on: Description of the features of the Gaussians that will score the features.
        alone: Whether this process extracts the whole dataset. Several, or the nodes of a cluster,
            need not have the same processor and must agree on a precision, so none is compared.
        load: Loads the backbone.

    Raises:
        BackboneError: The pretrained weights are missing.
        FeatureStoreError: The description of the earlier features is damaged.
    """
    given = SettledPrecision(task.network, task.options, None)
    if not task.options.open_precision:
        return given
    if folder is not None and is_store(folder):
        return _follow(given, read_description(folder), f"the features in {folder} are")
    if fitted_on is not None:
        return _follow(given, fitted_on, "the features of the Gaussians are")
    if not alone or task.network.device.type != "cpu" or not computes_in_bfloat16():
        return given
    if len(task.dataset.labels) < LEAST_IMAGES or task.dataset.modality == "text":
        return given
    pilot = compare_precisions(task, load)
    return SettledPrecision(
        replace(task.network, precision=best_precision(pilot)),
        replace(task.options, precision_pilot=pilot),
        reason_of(pilot),
    )


def _follow(given: SettledPrecision, before: FeatureKind, which: str) -> SettledPrecision:
    """The precision of other features, with what it was chosen by."""
    precision = DTYPES.get(str(before.precision))
    if precision is None:  # features of another program
        return given
    reason = None
    if precision != given.network.precision:
        reason = f"{before.precision}, as {which}"
    return SettledPrecision(
        replace(given.network, precision=precision),
        replace(given.options, precision_pilot=before.precision_pilot),
        reason,
    )


def best_precision(pilot: PrecisionPilot) -> torch.dtype:
    """bfloat16 where it is faster and ranks as float32 does, else float32."""
    better = pilot.same_ranks and pilot.speedup >= LEAST_SPEEDUP
    return torch.bfloat16 if better else torch.float32


def reason_of(pilot: PrecisionPilot) -> str:
    """Why that precision is the best one, in a sentence."""
    if pilot.agreement is None or pilot.speedup < LEAST_SPEEDUP:
        return f"float32, as bfloat16 is {pilot.speedup:.1f} times as fast here"
    sentence = (
        f"bfloat16 is {pilot.speedup:.1f} times as fast here, and Spearman's correlation of the "
        f"scores of {pilot.num_images} images is {pilot.agreement:.5f}"
    )
    if best_precision(pilot) == torch.bfloat16:
        return f"bfloat16: {sentence}"
    return f"float32: {sentence}, where {LEAST_AGREEMENT} is asked"
