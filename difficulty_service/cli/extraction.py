"""The options of extraction, which `extract` and `score` share.

Device and precision of the backbone, as the options of the command line choose them.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cyclopts import Parameter

from difficulty_service.cli.console import err
from difficulty_service.cli.wrong_call import WrongCall, options
from difficulty_service.options import (
    IMAGES_ONLY,
    EncodingOptions,
    ListingOptions,
    NetworkOptions,
    RunOptions,
)

if TYPE_CHECKING:
    import torch

    from difficulty_service.datasets.sample import Dataset
    from difficulty_service.extraction.engines.cluster import ClusterOptions
    from difficulty_service.images.corruptions import Corruption
    from difficulty_service.pipeline import ExtractRequest
    from difficulty_service.scores.fitted_gaussians import FittedGaussians


@Parameter(name="*")
@dataclass(frozen=True)
class Extraction:
    """What a person can choose about the features of a dataset."""

    dataset: ListingOptions = ListingOptions()
    encoding: EncodingOptions = EncodingOptions()
    network: NetworkOptions = NetworkOptions()
    machine: RunOptions = RunOptions()

    @property
    def given(self) -> set[str]:
        """Names of the options that are on the command line."""
        models = (self.dataset, self.encoding, self.network, self.machine)
        return set().union(*(model.model_fields_set for model in models))

    @property
    def text_column(self) -> str | None:
        """The column with the texts; None where the samples are images."""
        is_text = self.dataset.modality == "text"
        return (self.dataset.text_column or "text") if is_text else None


def refuse_other_modality(extraction: Extraction) -> None:
    """Raises WrongCall where an option is given that samples of this kind have no use for."""
    if extraction.dataset.modality == "image":
        if extraction.dataset.text_column is not None:
            raise WrongCall("--text-column needs --modality text")
        return
    images_only = {*IMAGES_ONLY, "weights", "features", "preprocess", "max_pixels"}
    if useless := extraction.given & images_only:
        raise WrongCall(f"{options(useless)} would change nothing with --modality text")


def read_corruption(encoding: EncodingOptions) -> "Corruption | None":
    """The corruption that is named."""
    if encoding.corrupt is None:
        return None
    # Imported here, because SciPy takes time that other commands need not spend.
    from difficulty_service.images.corruptions import parse_corruption

    return parse_corruption(encoding.corrupt, encoding.seed)


def choose_machine(
    extraction: Extraction, cluster: "ClusterOptions | None"
) -> "tuple[torch.device, torch.dtype]":
    """The device and the precision of the backbone, on this machine or on a cluster's nodes."""
    from difficulty_service.backbones.backbone import choose_device, choose_precision

    precision = extraction.machine.precision
    if extraction.dataset.modality == "text" and precision == "auto":
        # Encoders of texts are fast enough in float32, and the built-in one has nothing else.
        precision = "fp32"
    if cluster is None:
        device = choose_device(extraction.machine.device)
        return device, choose_precision(precision, device)
    from difficulty_service.extraction.engines.ray_cluster import choose_on_cluster

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
