"""The options of extraction, which `extract` and `score` share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cyclopts import Parameter

from difficulty_service.commands.wrong_call import WrongCall, options
from difficulty_service.options import (
    IMAGES_ONLY,
    EncodingOptions,
    ListingOptions,
    NetworkOptions,
    RunOptions,
)

if TYPE_CHECKING:
    from difficulty_service.images.corruptions import Corruption


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
