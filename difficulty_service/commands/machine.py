"""Device and precision of the backbone, as the options of the command line choose them."""

from dataclasses import replace
from typing import TYPE_CHECKING

from difficulty_service.commands.console import err
from difficulty_service.commands.extraction import Extraction

if TYPE_CHECKING:
    import torch

    from difficulty_service.datasets.sample import Dataset
    from difficulty_service.engines.cluster import ClusterOptions
    from difficulty_service.pipeline import ExtractRequest
    from difficulty_service.scoring.fitted_gaussians import FittedGaussians


def choose_machine(
    extraction: Extraction, cluster: "ClusterOptions | None"
) -> "tuple[torch.device, torch.dtype]":
    """The device and the precision of the backbone, on this machine or on a cluster's nodes."""
    from difficulty_service.backbones.backbone import choose_device

    precision = extraction.machine.precision
    if extraction.dataset.modality == "text" and precision == "auto":
        # Encoders of texts are fast enough in float32, and the built-in one has nothing else.
        precision = "fp32"
    if cluster is None:
        device = choose_device(extraction.machine.device)
        return device, choose_precision(precision, device)
    from difficulty_service.engines.ray_cluster import choose_on_cluster

    device, best = choose_on_cluster(extraction.machine.device, cluster)
    return device, best if precision == "auto" else choose_precision(precision, device)


def with_precision(
    request: "ExtractRequest", dataset: "Dataset", fitted: "FittedGaussians | None" = None
) -> "ExtractRequest":
    """The request with its precision settled, which is printed with the reason."""
    from difficulty_service.extraction.precision import settle_precision
    from difficulty_service.extraction.task import ExtractionTask

    settled = settle_precision(
        ExtractionTask(dataset, request.backbone, request.network, request.options),
        request.out if request.resume else None,
        None if fitted is None else fitted.description,
        alone=request.cluster is None and request.subset.num_subsets == 1,
    )
    if settled.reason is not None:
        err.print(f"the network computes in {settled.reason}", markup=False)
    return replace(request, network=settled.network, options=settled.options)


def choose_precision(precision: str, device: "torch.device") -> "torch.dtype":
    """The dtype that is named, or for `auto` the one that suits the device."""
    import torch

    from difficulty_service.backbones.backbone import best_precision

    if precision == "auto":
        return best_precision(device)
    return torch.bfloat16 if precision == "bf16" else torch.float32
